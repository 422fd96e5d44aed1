"""Every stability function gives the same numbers in every library, traced to ONNX
too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import label_distribution, label_stability
from hokical._core.arrays import Backend, backend_of, to_float64
from hokical.rules import Logits, as_logits
from hokical.stability import Gaussian, Noise, Uniform, gumbel, uniform
from hokical.stability.families import FAMILIES
from hokical.stability.sampled import Draws, survivals
from tests.conftest import max_examples
from tests.libraries import NAMES, get_library
from tests.stability.examples import NOISES, each_noise

Solver = Callable[[Logits], Any]

N_CLASSES = st.sampled_from(
    [2, 3, 11, 90]
)  # 90: more rivals than the fixed-shape rule sorts
WIDTHS = st.sampled_from([0.3, 1.0, 4.0, 30.0])
OTHERS = [name for name in NAMES if name not in ("numpy", "jax")]


def make_rows(n_classes: int, seed: int, dtype: str = "float64") -> np.ndarray:
    """Ties at the top, impossible classes, one class alone, leads of many noise
    widths.
    """
    rng = np.random.default_rng(seed)
    values = 3.0 * rng.normal(size=(9, n_classes))
    values[0] = 0.0
    values[1, : max(2, n_classes // 3)] = values[1].max()
    values[2, 1:] = -np.inf
    values[3, n_classes // 2 + 1 :] = -np.inf
    values[4:7, 1] += np.array([8.0, 30.0, 200.0])
    return values.astype(dtype)


def solvers(width: float, n_classes: int) -> dict[str, tuple[Solver, float]]:
    """Every solver, and how far another library may be off."""
    draws = Draws(Gaussian(width), 5, 70, n_classes)
    known: dict[str, tuple[Solver, float]] = {
        "sampled": (lambda x: survivals(x, draws), 0.0)
    }
    for name, family in FAMILIES.items():
        noise = family.of_width(width)
        error = 1e-6 if family is Uniform else 1e-12
        known |= {name: (noise.stability, error)}
        known |= {f"{name}, all": (noise.distribution, error)}
    return known


SOLVERS = sorted(solvers(1.0, 2))


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("solver", SOLVERS)
@given(
    n_classes=N_CLASSES,
    width=WIDTHS,
    seed=st.integers(0, 99),
    dtype=st.sampled_from(["float32", "float64"]),
)
@max_examples(5)
def test_every_library_agrees_with_numpy(
    name: str, solver: str, n_classes: int, width: float, seed: int, dtype: str
) -> None:
    assert_agreement(name, solver, make_rows(n_classes, seed, dtype), width)


@pytest.mark.parametrize("solver", SOLVERS)
def test_jax_agrees_with_numpy(solver: str) -> None:
    """Once: every operation is compiled for every shape."""
    assert_agreement(
        "jax", solver, make_rows(80 if solver == "uniform" else 6, seed=1), 1.3
    )


def assert_agreement(name: str, solver: str, rows: np.ndarray, width: float) -> None:
    library = get_library(name)
    with library.scope():
        logits = as_logits(library.make(rows))
        work, error = solvers(width, rows.shape[1])[solver]
        found = logits.to_host(work(logits))
    np.testing.assert_allclose(found, work(as_logits(rows)), rtol=0, atol=error)


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("solver", "n_classes"),
    [*((solver, n) for solver in SOLVERS for n in (3, 11)), ("uniform", 70)],
)
def test_a_traced_graph_agrees_with_numpy(solver: str, n_classes: int) -> None:
    rows = make_rows(n_classes, seed=n_classes)
    work, error = solvers(1.3, n_classes)[solver]
    np.testing.assert_allclose(
        run_traced(work, rows), work(as_logits(rows)), rtol=0, atol=max(error, 1e-7)
    )


def run_traced(work: Solver, rows: np.ndarray) -> np.ndarray:
    """What a graph with a free number of rows gives in onnxruntime."""
    ndonnx = pytest.importorskip("ndonnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    values = ndonnx.argument(shape=("n", rows.shape[1]), dtype=ndonnx.float64)
    backend = backend_of(values)
    assert backend is not None
    xp = backend.namespace(values)
    logits = Logits(values, to_float64(xp.max(values, axis=1), xp), backend)
    model = ndonnx.build({"logits": values}, {"found": work(logits)})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(["found"], {"logits": rows})[0])


@pytest.mark.parametrize("name", NAMES)
@each_noise
class TestPublicFunctions:
    def test_answers_come_back_in_kind(self, name: str, noise: Noise) -> None:
        library = get_library(name)
        for dtype in ("float32", "float64"):
            rows = make_rows(7, seed=1, dtype=dtype)
            wide = dtype == "float64" or name == "numpy"
            with library.scope():
                logits = library.make(rows)
                found = (
                    label_stability(logits, noise),
                    label_stability(logits, noise, draws=50, random_state=3),
                    label_distribution(logits, noise),
                )
                assert all(library.owns(answer) for answer in found)
                answers = [library.read(answer) for answer in found]
            assert {answer.dtype.name for answer in answers} == {
                "float64" if wide else "float32"
            }
            expected = (
                label_stability(rows, noise),
                label_stability(rows, noise, draws=50, random_state=3),
                label_distribution(rows, noise),
            )
            for one, other in zip(answers, expected, strict=True):
                np.testing.assert_allclose(one, other, atol=1e-12 if wide else 1e-6)


@pytest.mark.parametrize("name", OTHERS)
@each_noise
def test_many_rows_are_cut_into_blocks(
    name: str, noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, rows = get_library(name), np.tile(make_rows(70, seed=2), (5, 1))
    monkeypatch.setattr(Backend, "block_size", 12_000)
    logits = as_logits(library.make(rows))
    found = logits.to_host(label_stability(logits, noise))
    np.testing.assert_allclose(found, label_stability(rows, noise), atol=1e-6)
    np.testing.assert_allclose(found, np.tile(found[:9], 5), rtol=0, atol=1e-13)


def test_jax_answers_while_it_is_traced() -> None:
    jax = pytest.importorskip("jax")
    rows = make_rows(7, seed=3)
    for noise in NOISES:
        with jax.enable_x64(True):
            compiled = jax.jit(lambda x, noise=noise: label_stability(x, noise))
            found = np.asarray(compiled(jax.numpy.asarray(rows)))
        np.testing.assert_allclose(found, label_stability(rows, noise), atol=1e-6)


def test_the_width_may_be_an_array_of_one_number() -> None:
    """As while a graph is traced."""
    strict = pytest.importorskip("array_api_strict")
    rows = make_rows(7, seed=4)
    logits, width = as_logits(strict.asarray(rows)), strict.asarray(1.7)
    noise = Gaussian.make_unchecked(width)
    for solve in (Gaussian.stability, Gaussian.distribution):
        found, expected = solve(noise, logits), solve(Gaussian(1.7), as_logits(rows))
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=1e-12)
    for solve in (uniform.stability, gumbel.stability):
        np.testing.assert_allclose(
            np.asarray(solve(logits, width)),
            solve(as_logits(rows), 1.7),
            rtol=0,
            atol=1e-12,
        )

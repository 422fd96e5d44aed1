"""On a CUDA device: the kernels, fits and predictions give what the host gives.

Needs few packages, so that it can be run on a bare machine with a GPU, from the
repository's root: `python -m pytest --noconftest -c /dev/null --rootdir=.
tests/integrations/torch/test_cuda.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hokical import Gaussian, Gumbel, Hoki, Uniform
from hokical.calibrators import make
from hokical.guarantees.class_features import label_distances
from hokical.guarantees.scores import label_log_odds
from hokical.rules import Logits, as_logits
from hokical.stability import Noise, gaussian, gumbel, uniform
from hokical.stability.sampled import Draws, survivals
from tests.integrations.torch.examples import (
    as_on_device,
    extreme_rows,
    off,
    torch_backend,
)

torch = pytest.importorskip("torch")

from hokical.integrations.torch import as_module, backend  # noqa: E402

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU"
)

#: How far kernels may be off for logits in float64; narrower ones are computed in
#: float32 in part.
EXACT = (
    (gaussian.stability, 1e-11),
    (gumbel.stability, 1e-14),
    (uniform.stability, 2e-7),
)
NARROW = 1e-7


def normal(n: int, n_classes: int, spread: float) -> np.ndarray:
    return spread * np.random.default_rng(n_classes).normal(size=(n, n_classes))


CASES = {
    "awkward": extreme_rows(),
    "two classes": normal(300, 2, 3.0),
    "ten": normal(333, 10, 3.0).astype(np.float32),
    "twenty that tie": np.rint(normal(133, 20, 1.0)).astype(np.float16),
    "few ties": np.rint(normal(300, 30, 1.0)).astype(np.float16),
    "hundred": normal(200, 100, 2.0).astype(np.float32),
    "thousand": normal(100, 1000, 2.0).astype(np.float16),
    "long": normal(10, 20_000, 0.5).astype(np.float32),
    "rivals that tie": np.repeat(normal(30, 2, 3.0), [1, 300], axis=1).astype(
        np.float32
    ),
    "crowded": normal(20, 700, 0.01),
}


def allowed(limit: float, values: np.ndarray) -> float:
    return limit if values.dtype == np.float64 else max(limit, NARROW)


@pytest.fixture(params=list(CASES))
def values(request: pytest.FixtureRequest) -> np.ndarray:
    return CASES[request.param]


def on_gpu(values: np.ndarray) -> Iterator[Logits]:
    """The logits on the device, row by row and column by column."""
    there = torch.from_numpy(values).cuda()
    yield as_on_device(there)
    yield as_on_device(there.T.contiguous().T)


@pytest.fixture(params=["triton", "plain"])
def plain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With Triton, and without."""
    monkeypatch.setenv("HOKICAL_TRITON", "0" if request.param == "plain" else "1")
    return request.param == "plain"


def test_triton_is_used(plain: bool) -> None:
    assert backend.usable(torch.zeros(2, 3, device="cuda")) is not plain


@pytest.mark.parametrize("scale", [0.7, 4.0])
def test_stability(values: np.ndarray, scale: float, plain: bool) -> None:
    host = as_logits(values)
    for there in on_gpu(values):
        for function, limit in EXACT:
            got = function(there, scale)
            assert got.dtype == torch.float64
            assert off(function(host, scale), got) < allowed(limit, values)
    assert not backend._broken


@pytest.mark.parametrize("family", [Gaussian, Gumbel, Uniform])
def test_several_widths(values: np.ndarray, family: type[Noise], plain: bool) -> None:
    widths = np.array([0.1, 0.7, 4.0, 100.0])
    for logits in on_gpu(values):
        alone = [
            noise.stability(logits) for noise in map(family.of_width, widths.tolist())
        ]
        found = family.stabilities(logits, widths)
        assert torch.equal(found, torch.stack(alone))


@pytest.mark.parametrize("noise", [Gaussian(2.0), Uniform(-1.0, 2.0)])
def test_sampled(values: np.ndarray, noise: Noise, plain: bool) -> None:
    draws = Draws(noise, 5, 150, values.shape[1])
    expected = survivals(as_logits(values), draws)
    for there in on_gpu(values):
        assert off(expected, survivals(there, draws)) == 0.0


@pytest.mark.parametrize("n_draws", [1, 256, 257, 700])
def test_sampled_with_any_number_of_draws(n_draws: int) -> None:
    for name in ("awkward", "ten"):
        draws = Draws(Gaussian(2.0), 5, n_draws, CASES[name].shape[1])
        expected = survivals(as_logits(CASES[name]), draws)
        for there in on_gpu(CASES[name]):
            assert off(expected, survivals(there, draws)) == 0.0


def test_one_row(values: np.ndarray) -> None:
    host, there = (
        as_logits(values[7:8]),
        as_on_device(torch.from_numpy(values[7:8]).cuda()),
    )
    draws = Draws(Gaussian(2.0), 5, 150, values.shape[1])
    assert off(survivals(host, draws), survivals(there, draws)) == 0.0
    for function, limit in EXACT:
        assert off(function(host, 2.0), function(there, 2.0)) < allowed(limit, values)


def test_torch_func() -> None:
    there = torch.from_numpy(normal(6, 30, 2.0)).cuda()
    leaf = there.clone().requires_grad_()
    for function in (gaussian.stability, gumbel.stability):

        def of(values: Any, function: Any = function) -> Any:
            return function(as_on_device(values), 2.0)

        got = torch.func.vmap(lambda row, of=of: of(row[None])[0])(there)
        torch.testing.assert_close(got, of(there), rtol=0.0, atol=1e-11)
        (slope,) = torch.autograd.grad(of(leaf).sum(), leaf)
        got = torch.func.grad(lambda z, of=of: of(z).sum())(there)
        torch.testing.assert_close(got, slope, rtol=0.0, atol=1e-11)


def test_the_rest(values: np.ndarray) -> None:
    host = as_logits(values)
    for there in on_gpu(values):
        assert off(label_log_odds(host), label_log_odds(there)) < 1e-5
        for expected, found in zip(
            label_distances(host), label_distances(there), strict=True
        ):
            size = 1.0 + np.abs(expected).max()
            assert off(expected, found) < 1e-12 * size
        assert (
            off(gaussian.distribution(host, 2.0), gaussian.distribution(there, 2.0))
            < 1e-12
        )
        assert off(host.labels, there.labels) == 0


@pytest.mark.parametrize("method", ["predict", "predict_confidence", "predict_proba"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_rows_are_refused(method: str, bad: float) -> None:
    """They are looked at once the work on them is under way."""
    values = normal(40, 30, 2.0).astype(np.float32)
    labels = np.where(np.arange(40) % 4 == 0, 0, values.argmax(axis=1))
    for name in ("hoki", "temps", "irm"):
        calibrator = make(name).fit(values, labels)
        there = torch.from_numpy(values).cuda()
        there[7, 3] = bad
        with pytest.raises(ValueError, match="in row 7, column 3"):
            getattr(calibrator, method)(there)


def test_bfloat16() -> None:
    there = torch.from_numpy(CASES["hundred"]).cuda().bfloat16()
    host = as_logits(there.float().cpu().numpy())
    draws = Draws(Gaussian(1.0), 5, 37, 100)
    for function, limit in EXACT:
        assert off(function(host, 2.0), function(as_on_device(there), 2.0)) < max(
            limit, NARROW
        )
    assert off(survivals(host, draws), survivals(as_on_device(there), draws)) == 0


def test_a_row_does_not_see_its_batch() -> None:
    there = torch.from_numpy(CASES["hundred"]).cuda()
    for function, _ in EXACT:
        whole = function(as_on_device(there), 2.0)
        assert torch.equal(whole[7:12], function(as_on_device(there[7:12]), 2.0))


def test_no_rows() -> None:
    for function, _ in EXACT:
        assert function(as_on_device(torch.empty(0, 5, device="cuda")), 1.0).shape == (
            0,
        )


@pytest.mark.parametrize(
    "function",
    [gaussian.stability, gaussian.distribution, gumbel.stability, uniform.stability],
)
def test_gradients(function: Any) -> None:
    values = torch.from_numpy(normal(4, 12, 2.0)).cuda().requires_grad_()
    scale = torch.tensor(1.3, dtype=torch.float64, device="cuda", requires_grad=True)

    def of(values: Any, scale: Any) -> Any:
        return function(as_on_device(values), scale)

    assert torch.autograd.gradcheck(of, (values, scale), eps=1e-7)


def test_tables_stay_on_the_gpu() -> None:
    there = torch.zeros(1, device="cuda")
    table = np.arange(7.0)
    with torch.inference_mode():
        first = torch_backend().from_host(table, there)
    assert torch_backend().from_host(table, there) is first
    assert not first.is_inference()


def examples(n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    labels = rng.integers(n_classes, size=n)
    logits = 3.0 * (rng.normal(size=(n, n_classes)) + 2.0 * np.eye(n_classes)[labels])
    return logits.astype(np.float32), labels


METHODS = ("hoki", "temps", "ets", "vecs", "irm", "irova_ts", "structured")


@pytest.mark.parametrize("method", METHODS)
def test_fit_and_predict(method: str) -> None:
    logits, labels = examples(1500, 12)
    there, truth = torch.from_numpy(logits).cuda(), torch.from_numpy(labels).cuda()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here_fit = make(method).fit(logits, labels)
        there_fit = make(method).fit(there, truth)
    expected = here_fit.predict_confidence(logits)
    assert there_fit.predict_confidence(there).is_cuda
    # A solver stops where it is close enough, and the two sums differ in their last
    # digits.
    assert off(expected, there_fit.predict_confidence(there)) < 1e-5
    # The same calibrator, on either side.
    assert off(expected, here_fit.predict_confidence(there)) < 1e-6
    answer = here_fit.predict_proba(there)
    assert answer.is_cuda
    assert off(here_fit.predict_proba(logits), answer) < 1e-5
    assert off(here_fit.predict(logits), here_fit.predict(there)) == 0


def test_sampled_hoki() -> None:
    logits, labels = examples(1500, 12)
    there = torch.from_numpy(logits).cuda()
    both = [
        Hoki(noise=Gaussian(2.0), draws=100, random_state=0).fit(data, labels)
        for data in (logits, there)
    ]
    assert (
        off(both[0].predict_confidence(logits), both[1].predict_confidence(there))
        < 1e-6
    )


def test_module_under_autocast() -> None:
    logits, labels = examples(1500, 12)
    module = as_module(Hoki().fit(logits, labels)).cuda()
    there = torch.from_numpy(logits).cuda()
    expected = module(there).confidence
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.equal(module(there).confidence, expected)

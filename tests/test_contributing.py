"""The walk-through of CONTRIBUTING.md, executed: a method, and all that follows by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import hokical
from hokical.calibrators import Calibrator, catalog, make, method_names
from hokical.streams import fit as fit_stream
from hokical.streams import open_source
from tests.conftest import synthetic_logits
from tests.libraries import NAMES, get_library

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"


def example() -> str:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return str(code)


@pytest.fixture(scope="module", autouse=True)
def _hedge() -> Iterator[None]:
    """The method of the page, registered as its reader would have it."""
    module = ModuleType("hedge_example")
    sys.modules[module.__name__] = module
    exec(compile(example(), str(PAGE), "exec"), module.__dict__)
    yield
    catalog._registered.pop("hedge", None)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    return synthetic_logits(500, 4, seed=6)


@pytest.fixture(scope="module")
def fitted(_hedge: None, data: tuple[np.ndarray, np.ndarray]) -> Calibrator:
    return make("hedge").fit(*data)


def test_the_walk_through_is_short() -> None:
    assert len([line for line in example().splitlines() if line.strip()]) <= 60


def test_it_is_listed_and_compared(data: tuple[np.ndarray, np.ndarray]) -> None:
    assert "hedge" in method_names()
    found = hokical.compare(data, data, ["uncalibrated", "hedge"])
    assert found["hedge"].score("log_loss") < found["uncalibrated"].score("log_loss")


def test_it_is_stored(fitted: Any, data: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    fitted.save(tmp_path / "cal.json")
    loaded = hokical.load(tmp_path / "cal.json")
    assert loaded.share_ == fitted.share_
    assert loaded.log_loss_ == fitted.log_loss_
    np.testing.assert_array_equal(loaded.predict_proba(data[0]), fitted.predict_proba(data[0]))
    assert loaded.share_ == fitted.share_


@pytest.mark.parametrize("library", NAMES)
def test_it_answers_every_library(
    fitted: Any, data: tuple[np.ndarray, np.ndarray], library: str
) -> None:
    kind = get_library(library)
    with kind.scope():
        found = fitted.predict_proba(kind.make(data[0]))
        assert kind.owns(found)
        got = kind.read(found)
    np.testing.assert_allclose(got, fitted.predict_proba(data[0]), rtol=0.0, atol=1e-12)


def test_it_streams(fitted: Any, data: tuple[np.ndarray, np.ndarray]) -> None:
    chunks = [(data[0][i : i + 100], data[1][i : i + 100]) for i in range(0, 500, 100)]
    streamed = fit_stream(make("hedge"), open_source(chunks))
    assert streamed.share_ == fitted.share_


def test_it_is_a_torch_module(fitted: Any, data: tuple[np.ndarray, np.ndarray]) -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch import as_module

    labels, confidence = as_module(fitted)(torch.from_numpy(data[0]))
    np.testing.assert_array_equal(labels.numpy(), fitted.predict(data[0]))
    np.testing.assert_allclose(
        confidence.numpy(), fitted.predict_confidence(data[0]), rtol=0.0, atol=1e-12
    )


def test_it_is_an_onnx_graph(fitted: Any, data: tuple[np.ndarray, np.ndarray]) -> None:
    pytest.importorskip("ndonnx")
    runtime = pytest.importorskip("onnxruntime")
    from hokical.integrations.onnx import export

    model = export(fitted, input_dtype="float64")
    session = runtime.InferenceSession(model.SerializeToString())
    _, confidence, _ = session.run(None, {"logits": data[0]})
    np.testing.assert_allclose(confidence, fitted.predict_confidence(data[0]), rtol=0.0, atol=1e-7)


def test_names_are_taken_once() -> None:
    kind = catalog.load_class("hedge")
    assert catalog.register(kind) is kind
    with pytest.raises(ValueError, match="is taken"):
        catalog.register(type("Other", (kind,), {}))


def test_another_package_brings_it_to_the_command_line_and_to_load(
    fitted: Any, data: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    """A process that knows the method by its entry point alone."""
    (tmp_path / "hedge_package.py").write_text(example())
    about = tmp_path / "hedge_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hedge-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{catalog.GROUP}]\nhedge = hedge_package:Hedge\n")
    np.savez(tmp_path / "val.npz", logits=data[0], labels=data[1])
    program = (
        "import sys, hokical; from hokical.cli import main; sys.argv[0] = 'hokical'\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "print('share', hokical.load('cal.json').share_)"
    )
    words = ["fit", "val.npz", "--method", "hedge", "-o", "cal.json"]
    run = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert float(run.stdout.split("share ")[1]) == pytest.approx(fitted.share_, rel=1e-12)

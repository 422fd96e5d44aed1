"""Modules as graphs: exported with a batch of any size, saved, and compiled."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integrations.torch.examples import NAMES, awkward, fitted, synthetic_logits

torch = pytest.importorskip("torch")

from hokical.integrations.torch import CalibratedModel, as_module  # noqa: E402

EXPORTED = [
    name for name in NAMES if name != "auto"
]  # its parts are exported by themselves


def exported(module: Any, logits: torch.Tensor, **options: Any) -> Any:
    batch = {0: torch.export.Dim("batch")}
    program = torch.export.export(
        module, (logits[:7],), dynamic_shapes=(batch,), **options
    )
    return program.module()


@pytest.fixture(scope="module")
def logits() -> torch.Tensor:
    return torch.tensor(awkward(synthetic_logits(30, 5, seed=9)[0]))


@pytest.mark.parametrize("name", EXPORTED)
def test_exported_module_gives_the_same(name: str, logits: torch.Tensor) -> None:
    module = as_module(fitted(name))
    wanted, got = module(logits), exported(module, logits)(logits)
    assert torch.equal(got.labels, wanted.labels)
    torch.testing.assert_close(got.confidence, wanted.confidence, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings(
    "ignore:The given buffer is not writable"
)  # of torch 2.11 itself
def test_exported_network_can_be_saved_and_loaded() -> None:
    model = CalibratedModel(torch.nn.Linear(4, 5), fitted("hoki gumbel")).eval()
    inputs = torch.randn(6, 4)
    program = torch.export.export(model, (inputs,))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    got, wanted = torch.export.load(file).module()(inputs), model(inputs)
    np.testing.assert_array_equal(got.labels, wanted.labels)
    torch.testing.assert_close(got.confidence, wanted.confidence)


def test_exported_tuples_are_loaded_without_this_package(tmp_path: Path) -> None:
    model = CalibratedModel(
        torch.nn.Linear(4, 5), fitted("temps"), as_tuple=True
    ).eval()
    program = torch.export.export(model, (torch.zeros(6, 4),))
    torch.export.save(program, tmp_path / "model.pt2")
    code = (
        "import sys, torch; answer = "
        "torch.export.load(sys.argv[1]).module()(torch.zeros(6, 4)); assert 'hokical' "
        "not in sys.modules; print(type(answer).__name__, answer[2].tolist())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model.pt2")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"tuple {model(torch.zeros(6, 4))[2].tolist()}"


COMPILED = [
    *(
        ("eager", name)
        for name in ("temps", "vecs", "irm", "hoki gumbel", "hoki sampled")
    ),
    *(("aot_eager", name) for name in ("vecs", "hoki sampled")),
]


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(("backend", "name"), COMPILED)
def test_compiled_as_one_graph(backend: str, name: str, logits: torch.Tensor) -> None:
    module = as_module(fitted(name))
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    got, wanted = compiled(logits), module(logits)
    assert torch.equal(got.labels, wanted.labels)
    torch.testing.assert_close(got.confidence, wanted.confidence, rtol=0, atol=1e-12)
    torch.testing.assert_close(compiled(logits[:4]).confidence, wanted.confidence[:4])


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_is_differentiated_and_takes_other_numbers() -> None:
    module = as_module(fitted("temps"))
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    sound = torch.tensor(synthetic_logits(10, 5, seed=9)[0]).requires_grad_()
    (found,) = torch.autograd.grad(compiled(sound).confidence.sum(), sound)
    (wanted,) = torch.autograd.grad(module(sound).confidence.sum(), sound)
    torch.testing.assert_close(found, wanted)
    other = as_module(fitted("temps", seed=1))
    module.load_state_dict(other.state_dict())
    torch.testing.assert_close(compiled(sound).confidence, other(sound).confidence)


def test_the_compiler_is_not_imported_before_it_is_used() -> None:
    code = (
        "import sys, hokical.integrations.torch; heavy = {'torch._dynamo', 'sklearn', "
        "'scipy', 'numba'}; print(heavy & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"

"""Fits on a device: what moves there, what tables say about it, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hokical import TopK
from hokical_paper.running import cells as running
from hokical_paper.running.devices import (
    ON_DEVICE,
    check_device,
    device_notes,
    move_to_fit,
)
from hokical_paper.running.results import Results
from hokical_paper.suite.manifest import open_suite
from hokical_paper.tables.builders import builders


@pytest.fixture
def torch_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for PyTorch with a GPU: its tensors are NumPy arrays that know where
    they are.
    """

    class Tensor(np.ndarray):
        device = SimpleNamespace(type="cuda")

    stub = SimpleNamespace(
        as_tensor=lambda array, device: np.asarray(array).view(Tensor),
        cuda=SimpleNamespace(get_device_name=lambda device: "Fast 3000"),
    )
    monkeypatch.setitem(sys.modules, "torch", stub)


def test_only_validation_logits_move(
    torch_stub: None, ran: tuple[Path, Path, Results]
) -> None:
    data = open_suite(ran[0]).pairs[0].load()
    moved, name = move_to_fit(data, "cuda")
    assert name == "Fast 3000"
    assert type(moved.val_logits) is not np.ndarray
    assert moved.test_logits is data.test_logits
    top = TopK.from_log_probabilities(np.log([[0.6, 0.3]]), np.array([[1, 0]]), 4)
    assert move_to_fit(replace(data, val_logits=top), "cuda")[1] is None


def test_tables_name_the_device(results: Results) -> None:
    assert device_notes(results.by_cell.values()) == []  # ReCal has a note of its own
    key = ("mnist_lenet5", "vecs")
    there = replace(results.by_cell[key], facts={"device": "Fast 3000"}, n_parallel=8)
    table = builders()["time"](
        replace(results, by_cell={**results.by_cell, key: there})
    )
    assert (
        "Fitted on Fast 3000, up to 8 at a time: vecs on mnist_lenet5." in table.notes
    )
    assert "one fit at a time" in table.notes[0]


def test_a_result_says_where_it_was_fitted(
    ran: tuple[Path, Path, Results], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        running, "move_to_fit", lambda data, device: (data, f"the {device}")
    )
    for method in ("vecs", "temps"):
        task = running.Task(
            str(ran[0]), "mnist_lenet5", method, str(tmp_path), 1, "gpu"
        )
        assert running.compute(task).facts.get("device") == (
            "the gpu" if method in ON_DEVICE else None
        )


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    check_device(None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\./paper"):
        check_device("cuda")

    def refuse(*_: object, device: str) -> None:
        raise RuntimeError("no driver.\nMore.")

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(empty=refuse))
    with pytest.raises(ValueError, match=r"got 'cuda': no driver\. Leave it out"):
        check_device("cuda")

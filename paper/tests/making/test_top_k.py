"""Top-k exports as pairs: what is refused with its row, what is read, what is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import synthetic_logits
from typer.testing import CliRunner

from hokical import TopK
from hokical.cli import app
from hokical.io import DataFileError
from hokical_paper.making.top_k import TopKFile, add_top_k_pair
from hokical_paper.running.experiments import run_method
from hokical_paper.running.methods import METHODS, why_absent
from hokical_paper.running.results import Results
from hokical_paper.suite.manifest import Pair, open_suite
from hokical_paper.tables.method_columns import mark_methods, top_k_table
from hokical_paper.tables.table import number

N, K, N_CLASSES = 240, 3, 8
NAME = "imagenet_resnet152"


def export() -> dict[str, np.ndarray]:
    """The arrays of an export: the best probabilities of synthetic logits."""
    logits, labels = synthetic_logits(N, N_CLASSES, seed=4)
    proba = np.exp(logits - logits.max(axis=1, keepdims=True))
    proba /= proba.sum(axis=1, keepdims=True)
    classes = np.argsort(-proba, axis=1)[:, :K]
    probs = np.take_along_axis(proba, classes, axis=1).astype(np.float32)
    return {
        "probs": probs,
        "classes": classes.astype(np.int16),
        "labels": labels.astype(np.int16),
    }


def save(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(path, **arrays)
    return path


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    file = TopKFile(save(tmp_path / "top.npz", export()))
    add_top_k_pair(tmp_path / "suite", NAME, file, n_classes=N_CLASSES, n_val=100)
    return open_suite(tmp_path / "suite")[NAME]


def swap(row: np.ndarray) -> None:
    row[[0, 1]] = row[[1, 0]]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("probs", swap, r"probabilities must descend; row 7 has \["),
        (
            "probs",
            lambda row: row.__imul__(1.5 / row.sum()),
            "exceed 1 in sum; row 7 has 1\\.[45]",
        ),
        ("probs", lambda row: row.fill(np.nan), r"must lie in \[0, 1\]; row 7"),
        ("probs", lambda row: row.fill(0.0), r"must be above 0; row 7"),
        ("classes", lambda row: row.fill(2), r"each class once; row 7 has \[2, 2, 2\]"),
        ("classes", lambda row: row.__iadd__(90), r"classes must be in 0..7; row 7"),
        ("labels", lambda row: row.fill(-1), "labels must be in 0..7; row 7 has -1"),
    ],
)
def test_bad_rows_are_refused_by_number(
    tmp_path: Path, name: str, change: Any, message: str
) -> None:
    arrays = export()
    change(arrays[name][7:8] if name == "labels" else arrays[name][7])
    file = TopKFile(save(tmp_path / "top.npz", arrays))
    with pytest.raises(DataFileError, match=message):
        file.read(N_CLASSES)


def test_missing_labels_are_refused(tmp_path: Path) -> None:
    arrays = export()
    arrays["labels"] = arrays["labels"][:-5]
    with pytest.raises(
        DataFileError, match=r"each of 240 rows; got \(235,\); row 235 is the"
    ):
        TopKFile(save(tmp_path / "short.npz", arrays)).read(N_CLASSES)
    arrays["labels"] = np.where(np.arange(240) == 9, np.nan, 0.0)
    with pytest.raises(DataFileError, match="`labels` must be integers; row 9 has nan"):
        TopKFile(save(tmp_path / "nan.npz", arrays)).read(N_CLASSES)
    del arrays["labels"]
    with pytest.raises(
        DataFileError, match="expected an array 'labels'; found probs, classes"
    ):
        TopKFile(save(tmp_path / "none.npz", arrays)).read(N_CLASSES)
    with pytest.raises(DataFileError, match="expected an array 'net/probs'"):
        TopKFile(tmp_path / "none.npz", "net").read(N_CLASSES)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("probs", lambda a: a.astype(str), "`probs` must be floats; got <U"),
        (
            "classes",
            lambda a: a.astype(float),
            "`classes` must be integers; got float64",
        ),
    ],
)
def test_wrong_types_are_refused(
    tmp_path: Path, name: str, change: Any, message: str
) -> None:
    arrays = export()
    arrays[name] = change(arrays[name])
    with pytest.raises(DataFileError, match=message):
        TopKFile(save(tmp_path / "top.npz", arrays)).read(N_CLASSES)
    one = {key: value[:1] for key, value in export().items()}
    with pytest.raises(DataFileError, match="at least two rows"):
        TopKFile(save(tmp_path / "one.npz", one)).read(N_CLASSES)


def test_rows_are_shuffled_and_all_there(pair: Pair) -> None:
    data, arrays = pair.load(), export()
    assert (data.val_labels.size, data.test_labels.size, pair.top_k) == (100, 140, K)
    assert isinstance(data.test_logits, TopK)
    labels = np.concatenate([data.val_labels, data.test_labels])
    assert sorted(labels) == sorted(arrays["labels"])
    assert labels.tolist() != arrays["labels"].tolist()
    right = (arrays["classes"][:, 0] == arrays["labels"]).mean()
    found = np.concatenate([data.val_correct, data.test_correct])
    assert found.mean() == pytest.approx(right)


def test_methods_that_take_top_k_run_and_others_say_why(pair: Pair) -> None:
    data = pair.load()
    reasons = {name: why_absent(pair, name, slow=False) for name in METHODS}
    ran = [name for name, reason in reasons.items() if reason is None]
    assert {"temps", "ets", "hoki", "adaptive"} <= set(ran)
    assert (
        reasons["vecs"]
        == reasons["ms_odir"]
        == reasons["hoki_sampled"]
        == "needs all logits"
    )
    temps = run_method(pair, data, "temps")
    suite = open_suite(pair.folder)
    table = top_k_table(Results(suite, {(NAME, "temps"): temps}, {}, ("temps",)))
    assert [row.source for row in table.rows] == ["ours", "paper"]
    assert table.rows[-1].cells[0].text == "0.0201"


def test_recut_keeps_rows_whole(pair: Pair) -> None:
    data = pair.load()
    again = data.divide_anew(3)
    assert again.val_labels.size == data.val_labels.size
    before, after = (
        sorted(
            (float(top), int(label))
            for logits, labels in (
                (d.val_logits, d.val_labels),
                (d.test_logits, d.test_labels),
            )
            for top, label in zip(logits.top, labels, strict=True)
        )
        for d in (data, again)
    )
    assert before == after
    assert again.val_labels.tolist() != data.val_labels.tolist()


def test_the_command(tmp_path: Path) -> None:
    arrays = export()
    parts = {"net/probs": arrays["probs"], "net/classes": arrays["classes"]}
    file = save(tmp_path / "top.npz", {**parts, "labels": arrays["labels"]})
    words = [
        "paper",
        "add",
        NAME,
        "--top-k",
        str(file),
        "--suite",
        str(tmp_path / "new"),
    ]
    done = CliRunner().invoke(
        app, [*words, "--classes", str(N_CLASSES), "--key", "net"]
    )
    assert done.exit_code == 0, done.output
    assert "120 examples" in done.stdout
    assert open_suite(tmp_path / "new").names == [NAME]
    wrong = CliRunner().invoke(app, [*words, "--classes", "2", "--key", "net"])
    assert wrong.exit_code == 2
    assert "k at most 2" in wrong.stderr
    for name in ("resnet152", "../x_y"):
        words[2] = name
        bad = CliRunner().invoke(app, [*words, "--classes", "8", "--key", "net"])
        assert (bad.exit_code, "DATASET_NETWORK" in bad.stderr) == (1, True)


def test_own_methods_are_marked_apart() -> None:
    methods = ("temps", "ets", "hoki", "auto")
    cells = mark_methods([number(x) for x in (0.2, 0.3, 0.25, 0.1)], methods)
    assert [cell.mark for cell in cells] == ["best", "second", "", "best"]

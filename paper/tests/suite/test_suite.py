"""The suite: where it is looked for, what is checked before its arrays are used."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import Hoki
from hokical.calibrators import Uncalibrated
from hokical.io import DataFileError
from hokical.metrics import ece
from hokical_paper.suite.manifest import find_suite, open_suite
from hokical_paper.suite.overview import overview
from paper.tests.tiny_suite import (
    N_CLASSES,
    N_TEST,
    N_VAL,
    pair_arrays,
    write_manifest,
    write_suite,
)


def edit_manifest(folder: Path, **changes: Any) -> None:
    """Change the first pair's entry."""
    path = folder / "manifest.json"
    document = json.loads(path.read_text())
    document["pairs"][0] |= changes
    path.write_text(json.dumps(document))


def test_folder_is_looked_for_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, named, here = (
        write_suite(tmp_path / name) for name in ("given", "named", "suite")
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOKICAL_SUITE", str(named))
    assert find_suite(given) == given
    assert find_suite() == named
    monkeypatch.delenv("HOKICAL_SUITE")
    assert find_suite().resolve() == here


def test_a_missing_suite_is_said_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOKICAL_SUITE", raising=False)
    with pytest.raises(
        DataFileError, match=r"no logit suite here.*--suite, or set HOKICAL_SUITE"
    ):
        open_suite(tmp_path)


def test_arrays_come_back_as_they_were_written(suite_folder: Path) -> None:
    suite = open_suite(suite_folder)
    assert suite.names == ["mnist_lenet5", "cifar10_resnet110", "imagenet_small"]
    data, written = suite["mnist_lenet5"].load(), pair_arrays(1, extras=True)
    assert data.val_logits.shape == (N_VAL, N_CLASSES)
    for name, array in written.items():
        np.testing.assert_array_equal(getattr(data, name), array)


def test_a_pair_in_several_files_is_one(suite_folder: Path) -> None:
    pair = open_suite(suite_folder)["imagenet_small"]
    data = pair.load()
    assert len(pair.entry["files"]) == 2
    assert data.test_logits.shape == (N_TEST, N_CLASSES)
    assert data.val_kept is None
    assert data.recal_confidence is None
    assert not pair.has_views
    assert pair.recal is None


def test_a_changed_file_is_refused(suite_folder: Path) -> None:
    path = suite_folder / "mnist_lenet5.npz"
    np.savez_compressed(path, **pair_arrays(9, extras=True))
    with pytest.raises(
        DataFileError, match=r"mnist_lenet5.npz: does not match the manifest"
    ):
        open_suite(suite_folder)["mnist_lenet5"].load()


def test_errors_reach_the_reader_from_another_process(suite_folder: Path) -> None:
    """Pairs are loaded in processes; what does not come back breaks the whole pool."""
    (suite_folder / "mnist_lenet5.npz").unlink()
    with pytest.raises(DataFileError) as caught:
        open_suite(suite_folder)["mnist_lenet5"].load()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.path) == (str(caught.value), caught.value.path)


def test_a_missing_file_is_refused(suite_folder: Path) -> None:
    (suite_folder / "mnist_lenet5.npz").unlink()
    with pytest.raises(DataFileError, match="missing from the suite"):
        open_suite(suite_folder)["mnist_lenet5"].load()


def test_wrong_number_of_classes_is_refused(suite_folder: Path) -> None:
    edit_manifest(suite_folder, n_classes=7)
    with pytest.raises(
        DataFileError, match=r"val_logits must be \(150, 7\).*got \(150, 4\)"
    ):
        open_suite(suite_folder)["mnist_lenet5"].load()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"files": {"../secret.npz": "0"}}, "must not contain a folder"),
        ({"name": "cifar10_resnet110"}, "names must be unique"),
        ({"name": 3}, "`name` of pair 3 must be text; got 3"),
        (
            {"files": ["a.npz"]},
            r"`files` of pair 'mnist_lenet5' must be an object.*got \['a.npz'\]",
        ),
        ({"files": {"a.npz": None}}, "`files` .* must be an object with the SHA-256"),
        ({"n_classes": "ten"}, "`n_classes` .* an integer of at least 2; got 'ten'"),
        ({"n_classes": 1}, "`n_classes` .* an integer of at least 2; got 1"),
    ],
)
def test_bad_entries_are_refused(
    suite_folder: Path, changes: dict[str, Any], message: str
) -> None:
    edit_manifest(suite_folder, **changes)
    with pytest.raises(DataFileError, match=message):
        open_suite(suite_folder)


def test_bad_manifests_are_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{ not JSON")
    with pytest.raises(DataFileError, match="damaged or truncated"):
        open_suite(tmp_path)
    write_manifest(tmp_path, [], version=2)
    with pytest.raises(DataFileError, match="expected a suite of format 1; found 2"):
        open_suite(tmp_path)
    write_manifest(tmp_path, [])
    with pytest.raises(DataFileError, match="at least one pair"):
        open_suite(tmp_path)
    write_manifest(tmp_path, [{"name": "x"}])
    with pytest.raises(DataFileError, match="pair 'x' lacks"):
        open_suite(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 1, "pairs": ["x"]}')
    with pytest.raises(DataFileError, match="a pair must be an object; got 'x'"):
        open_suite(tmp_path)


def test_an_unknown_pair_is_named_with_the_known(suite_folder: Path) -> None:
    suite = open_suite(suite_folder)
    with pytest.raises(KeyError, match=r"no pair 'mnist'.*mnist_lenet5"):
        suite.only(["mnist"])
    assert suite.only(["imagenet_small", "mnist_lenet5"]).names == [
        "mnist_lenet5",
        "imagenet_small",
    ]


def test_digest_follows_the_data(suite_folder: Path, tmp_path: Path) -> None:
    first, again = open_suite(suite_folder), open_suite(write_suite(tmp_path / "again"))
    assert [pair.digest for pair in first.pairs] == [
        pair.digest for pair in again.pairs
    ]
    assert len({pair.digest for pair in first.pairs}) == 3


def test_quick_pairs_are_named_and_missing_means_real(suite_folder: Path) -> None:
    assert open_suite(suite_folder).caution == ""
    edit_manifest(suite_folder, quick=True)
    suite = open_suite(suite_folder)
    assert [pair.is_quick for pair in suite.pairs] == [True, False, False]
    assert "1 of 3 pairs were made with --quick (mnist_lenet5)" in suite.caution
    assert "not comparable with the paper" in suite.caution


def test_overview_measures_the_logits(suite_folder: Path) -> None:
    suite = open_suite(suite_folder)
    data = suite.pairs[1].load()
    row = overview(suite)[1]
    plain = Uncalibrated().fit(data.val_logits, data.val_labels)
    correct = Hoki().fit(data.val_logits, data.val_labels).predict(data.test_logits)
    correct = correct == data.test_labels
    assert (row["dataset"], row["model"]) == ("CIFAR-10", "ResNet-110")
    assert row["test_accuracy"] == correct.mean()
    assert row["uncalibrated_ece"] == ece(
        plain.predict_confidence(data.test_logits), correct
    )

"""Ensembles in files: several evaluations of each row, in one file or in several."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from hokical import Calibrator, Ensemble
from hokical.io import DataFileError, Rows, read_ensemble, read_examples
from hokical.io.ensembles import name_members
from tests.ensembles import NAMES, noisy_members

CLASSES = ("ant", "bee", "cat", "dog")
MEMBERS, LABELS = noisy_members(40, seed=1)
IDS = [f"x{row}" for row in range(40)]


def write_csv(path: Path, columns: dict[str, Any]) -> Path:
    with path.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return path


def score_columns(member: np.ndarray, prefix: str = "logit_") -> dict[str, list[str]]:
    """Columns of one member, empty cells where it was not evaluated."""
    return {
        f"{prefix}{name}": ["" if np.isnan(x) else repr(float(x)) for x in column]
        for name, column in zip(CLASSES, member.T, strict=True)
    }


def write_wide(path: Path, members: np.ndarray = MEMBERS, mark: str = ":") -> Path:
    """A table with the columns of all members."""
    columns: dict[str, Any] = {"id": IDS, "label": np.array(CLASSES)[LABELS]}
    for name, member in zip(NAMES, members, strict=True):
        columns |= score_columns(member, f"{name}{mark}logit_")
    return write_csv(path, columns)


def write_members(folder: Path, *, seed: int = 0, part: str = "val") -> list[Path]:
    """A file for each member; all but the first in another order of rows."""
    rng = np.random.default_rng(seed)
    paths = []
    for v, name in enumerate(NAMES):
        order = rng.permutation(40) if v else np.arange(40)
        columns = {
            "id": np.array(IDS)[order],
            "label": np.array(CLASSES)[LABELS[order]],
            **score_columns(MEMBERS[v][order]),
        }
        paths.append(write_csv(folder / f"{part}_{name}.csv", columns))
    return paths


def check_rows(rows: Rows, names: tuple[str, ...] = NAMES) -> None:
    assert isinstance(rows.scores, Ensemble)
    assert rows.scores.names == names
    for member, expected in zip(rows.scores.members, MEMBERS, strict=True):
        np.testing.assert_allclose(member, expected, rtol=1e-12)
    assert (rows.labels == LABELS).all()
    assert rows.n_rows == 40
    assert rows.n_classes == 4


@pytest.fixture(scope="module")
def fitted() -> Calibrator:
    return hokical.make("temps").fit(Ensemble(MEMBERS, NAMES), LABELS)


@pytest.fixture(scope="module")
def single() -> Calibrator:
    return hokical.make("temps").fit(MEMBERS[0], LABELS)


@pytest.mark.parametrize("mark", [":", "."])
def test_columns_of_a_table_name_their_member(tmp_path: Path, mark: str) -> None:
    rows = read_examples(write_wide(tmp_path / "val.csv", mark=mark), keep=None)
    check_rows(rows)
    assert rows.classes == CLASSES
    assert rows.kept["id"].tolist() == IDS


def test_parquet_and_probabilities(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    proba = np.exp(MEMBERS)
    proba /= proba.sum(axis=2, keepdims=True)
    columns = {
        f"{name}.prob_{k}": proba[v, :, k]
        for v, name in enumerate(NAMES)
        for k in range(4)
    }
    table = pyarrow.table(columns | {"label": LABELS})
    parquet.write_table(table, tmp_path / "val.parquet")
    rows = read_examples(tmp_path / "val.parquet")
    assert rows.about["scores"] == "probabilities"
    for v, member in enumerate(rows.scores.members):
        np.testing.assert_allclose(member, np.log(proba[v]))
    fit = hokical.make("temps").fit(table, "label")
    assert fit.members_.names == NAMES


def test_one_array_of_all_members(tmp_path: Path) -> None:
    path = tmp_path / "val.npz"
    np.savez(path, val_logits=MEMBERS, val_labels=LABELS)
    rows = read_examples(path)
    check_rows(rows, ("0", "1", "2", "3"))
    assert rows.part == "val"
    np.savez(path, logits=MEMBERS, labels=LABELS, members=NAMES)
    check_rows(read_examples(path))
    np.savez(path, logits=MEMBERS.transpose(1, 0, 2), labels=LABELS)
    with pytest.raises(DataFileError, match=r"logits.transpose\(1, 0, 2\)"):
        read_examples(path)


def test_an_array_of_each_member(tmp_path: Path) -> None:
    path = tmp_path / "val.npz"
    arrays = {f"logits_{name}": MEMBERS[v] for v, name in enumerate(NAMES)}
    np.savez(path, labels=LABELS, **arrays)
    check_rows(read_examples(path))
    of_parts = {f"test_{name}": array for name, array in arrays.items()}
    np.savez(path, test_labels=LABELS, val_labels=LABELS[::-1], **of_parts)
    check_rows(read_examples(path, split="test"))
    np.savez(path, labels=LABELS, **(arrays | {"logits_shifted": MEMBERS[0][1:]}))
    with pytest.raises(DataFileError, match=r"expected 40 rows .* 39 of shifted"):
        read_examples(path)


def test_scores_without_a_member_go_before(tmp_path: Path) -> None:
    path = tmp_path / "val.npz"
    np.savez(path, labels=LABELS, logits=MEMBERS[0], logits_old=MEMBERS[1])
    assert not isinstance(read_examples(path).scores, Ensemble)
    lone = {"label": LABELS, **score_columns(MEMBERS[0])}
    more = score_columns(MEMBERS[1], "old:logit_") | score_columns(
        MEMBERS[2], "new:logit_"
    )
    rows = read_examples(write_csv(tmp_path / "val.csv", lone | more))
    assert not isinstance(rows.scores, Ensemble)


def test_columns_of_classes_with_dots_are_no_members(tmp_path: Path) -> None:
    columns = {"label": LABELS}
    for name, column in zip(("u.s", "e.u", "logit.a", "b"), MEMBERS[0].T, strict=True):
        columns[f"logit_{name}"] = column
    rows = read_examples(write_csv(tmp_path / "val.csv", columns))
    assert rows.classes == ("u.s", "e.u", "logit.a", "b")


def test_empty_scores_are_members_that_were_not_evaluated(tmp_path: Path) -> None:
    members = MEMBERS.copy()
    members[1, 3:9] = np.nan
    members[:, 5] = np.nan
    path = write_wide(tmp_path / "val.csv", members)
    with pytest.raises(DataFileError, match=r"none in line 7.*--missing drop"):
        read_examples(path)
    rows = read_examples(path, missing="drop")
    assert rows.n_rows == 39
    assert rows.n_dropped == 1
    used = np.arange(40) != 5
    for member, expected in zip(rows.scores.members, members, strict=True):
        np.testing.assert_array_equal(member, expected[used])
    assert (rows.labels == LABELS[used]).all()
    members[2, 20, 1] = np.nan
    with pytest.raises(DataFileError, match=r"expected a number in line 22.*logit_bee"):
        read_examples(write_wide(tmp_path / "val.csv", members), missing="drop")


def test_files_of_members_are_joined_by_id(tmp_path: Path) -> None:
    rows = read_ensemble(write_members(tmp_path), keep=None)
    check_rows(rows)
    assert rows.kept["id"].tolist() == IDS
    with pytest.raises(TypeError, match="'group'"):
        read_ensemble(write_members(tmp_path), **{"group": ("id",)})
    named = read_ensemble(dict(zip("abcd", write_members(tmp_path), strict=True)))
    check_rows(named, ("a", "b", "c", "d"))


def test_files_are_matched_by_name_also_where_names_are_numbers(
    tmp_path: Path,
) -> None:
    paths = [tmp_path / f"test_{v}.npz" for v in range(len(MEMBERS))]
    for path, member in zip(paths, MEMBERS, strict=True):
        np.savez(path, logits=member)
    validation = Ensemble(MEMBERS, ["0", "1", "2", "3"])
    fitted = hokical.make("temps").fit(validation, LABELS, most_members=2)
    assert fitted.needed_members_ == ("0", "2")
    expected = fitted.predict_proba(validation)
    options = {"fitted_by": fitted, "labelled": "none"}
    needed = read_ensemble([paths[2], paths[0]], **options)
    assert (fitted.predict_proba(needed.scores) == expected).all()
    others = read_ensemble(paths[:2], **options)
    with pytest.raises(ValueError, match=r"got 0, 1 \(2 missing"):
        fitted.predict(others.scores)
    np.savez(tmp_path / "stacked.npz", logits=MEMBERS[[0, 2]])
    unnamed = read_examples(tmp_path / "stacked.npz", **options)
    assert (fitted.predict_proba(unnamed.scores) == expected).all()


def test_rows_without_a_label_or_a_member_are_dropped_together(tmp_path: Path) -> None:
    paths = write_members(tmp_path)
    labels = np.array(CLASSES)[LABELS].astype(object)
    labels[2] = ""
    members = MEMBERS.copy()
    members[:, 5] = np.nan
    for path, member in zip(paths, members, strict=True):
        write_csv(path, {"id": IDS, "label": labels, **score_columns(member)})
    rows = read_ensemble(paths, missing="drop", groups=("id",), keep=None)
    used = ~np.isin(np.arange(40), [2, 5])
    assert (rows.used == used).all()
    assert (rows.labels == LABELS[used]).all()
    assert rows.groups["id"].tolist() == np.array(IDS)[used].tolist()
    for member, expected in zip(rows.scores.members, MEMBERS, strict=True):
        np.testing.assert_allclose(member, expected[used], rtol=1e-12)
    filled = rows.fill(np.arange(38.0))
    assert np.flatnonzero(np.isnan(filled)).tolist() == [2, 5]


def test_files_without_ids_have_one_order(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.npz" for name in NAMES]
    for path, member in zip(paths, MEMBERS, strict=True):
        np.savez(path, logits=member, labels=LABELS)
    check_rows(read_ensemble(paths))
    np.savez(paths[2], logits=MEMBERS[2][::-1], labels=LABELS[::-1])
    with pytest.raises(DataFileError, match=r"shifted.npz: expected the labels of the"):
        read_ensemble(paths)
    np.savez(paths[2], logits=MEMBERS[2][1:])
    with pytest.raises(DataFileError, match=r"shifted.npz: expected the 40 rows"):
        read_ensemble(paths)


def test_classes_are_in_the_order_of_the_first_file(tmp_path: Path) -> None:
    paths = write_members(tmp_path)
    scores = score_columns(MEMBERS[1])
    shuffled = {name: scores[name] for name in reversed(scores)}
    write_csv(paths[1], {"id": IDS, **shuffled})
    check_rows(read_ensemble(paths))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["y", *IDS[1:]], "found none for 'x0', and 0 others"),
        ([*IDS, "y"], "found 'y', and 0 others"),
        ([*IDS[:-1], "x0"], "found 'x0' twice"),
    ],
)
def test_ids_must_match(tmp_path: Path, ids: list[str], message: str) -> None:
    paths = write_members(tmp_path)
    member = np.resize(MEMBERS[1], (len(ids), 4))
    write_csv(paths[1], {"id": ids, **score_columns(member)})
    with pytest.raises(DataFileError, match=f"val_flipped.csv: .*{message}"):
        read_ensemble(paths)
    write_csv(paths[1], score_columns(member))
    with pytest.raises(DataFileError, match="expected the column `id` in all files"):
        read_ensemble(paths)


def test_what_was_fitted_on_members_needs_members(
    tmp_path: Path, fitted: Calibrator, single: Calibrator
) -> None:
    wide = write_wide(tmp_path / "wide.csv")
    one = write_members(tmp_path)[0]
    with pytest.raises(DataFileError, match=r"wide.csv: .*found 4 members"):
        read_examples(wide, fitted_by=single)
    with pytest.raises(DataFileError, match=r"found one row of scores.*--ensemble"):
        read_examples(one, fitted_by=fitted)
    with pytest.raises(DataFileError, match="as in the fit; found an ensemble"):
        read_ensemble([one], fitted_by=single)
    rows = read_examples(wide, fitted_by=fitted)
    np.testing.assert_allclose(
        fitted.predict_proba(rows.scores),
        fitted.predict_proba(Ensemble(MEMBERS, NAMES)),
    )


@pytest.mark.parametrize(
    ("files", "fitted_names", "names"),
    [
        (["val_vit.csv", "val_cnn.csv.gz"], (), ["vit", "cnn"]),
        (["seed-1-val.npz", "seed-2-val.npz"], (), ["1", "2"]),
        (["a/val.npz", "b/val.npz"], (), ["a", "b"]),
        (["resnet.v2.csv", "resnet.csv"], (), ["resnet.v2", "resnet"]),
        (["test_resnet_50.csv", "test_resnet.csv"], ("resnet", "resnet_50"), None),
        (["b/test.npz"], ("a", "b"), ["b"]),
        (["one.npz"], (), ["one"]),
    ],
)
def test_members_are_named_like_their_files(
    files: list[str], fitted_names: tuple[str, ...], names: list[str] | None
) -> None:
    expected = names or ["resnet_50", "resnet"]
    assert name_members([Path(file) for file in files], fitted_names) == expected


def test_two_files_of_one_name_are_refused() -> None:
    with pytest.raises(DataFileError, match="has the name of another member"):
        name_members([Path("a.csv"), Path("a.npz")], ())


def test_members_are_not_read_in_parts(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        f"{name}:logit_{k}": MEMBERS[v, :, k]
        for v, name in enumerate(NAMES)
        for k in range(4)
    }
    for part in "ab":
        path = tmp_path / f"{part}.parquet"
        parquet.write_table(pyarrow.table(columns | {"label": LABELS}), path)
    with pytest.raises(DataFileError, match="read from one file, not in parts"):
        hokical.streams.fit(hokical.make("temps"), tmp_path)
    rows = read_examples(tmp_path / "a.parquet", score_columns=("plain:logit_*",))
    np.testing.assert_allclose(rows.scores.values, MEMBERS[0])

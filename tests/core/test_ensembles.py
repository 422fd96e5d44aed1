"""Ensembles as input: what they take, how they are cut, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from hokical import Ensemble, TopK, auto, from_probabilities

ROWS = np.random.default_rng(0).normal(size=(3, 7, 4))


def test_members_may_come_as_array_sequence_or_mapping() -> None:
    names = ("a", "b", "c")
    ensembles = [
        Ensemble(ROWS, names),
        Ensemble(list(ROWS), names),
        Ensemble(dict(zip(names, ROWS, strict=True))),
    ]
    for ensemble in ensembles:
        assert ensemble.names == names
        assert ensemble.shape == (7, 4)
        assert ensemble.n_members == 3
        assert (np.stack(ensemble.checked()[0]) == ROWS).all()


@pytest.mark.parametrize(
    "rows", [slice(2, 5), np.array([6, 0, 0]), np.arange(7) % 2 == 0]
)
def test_rows_are_cut_from_every_member(rows: Any) -> None:
    ensemble = Ensemble(ROWS)
    assert (np.stack(ensemble[rows].checked()[0]) == ROWS[:, rows]).all()


def test_selected_members_keep_their_names() -> None:
    chosen = Ensemble(ROWS, ["a", "b", "c"]).select(["c", "a"])
    assert chosen.names == ("c", "a")
    assert (np.stack(chosen.checked()[0]) == ROWS[[2, 0]]).all()
    assert chosen[:3].names == ("c", "a")


def test_probabilities_become_logits_member_by_member() -> None:
    odds = np.exp(ROWS)
    proba = odds / odds.sum(axis=2, keepdims=True)
    proba[1, 3] = np.nan
    converted = from_probabilities(Ensemble(proba, ["a", "b", "c"]))
    assert converted.names == ("a", "b", "c")
    values = np.stack(converted.checked()[0])
    assert np.isnan(values[1, 3]).all()
    values[1, 3] = 0.0
    proba[1, 3] = 0.25
    recovered = np.exp(values) / np.exp(values).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(recovered, proba, rtol=1e-12)


def test_frames_are_matched_by_the_names_of_their_columns() -> None:
    columns = list("wxyz")
    first = pd.DataFrame(ROWS[0], columns=columns)
    second = pd.DataFrame(ROWS[1], columns=columns)[columns[::-1]]
    values = np.stack(Ensemble([first, second]).checked()[0])
    assert (values == ROWS[:2]).all()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_rows_of_frames_keep_the_names_of_their_columns(library: str) -> None:
    module = pytest.importorskip(library)
    table = {name: ROWS[0][:, k] for k, name in enumerate("wxyz")}
    frame = getattr(module, "table", getattr(module, "DataFrame", None))(table)
    for rows in (slice(2, 5), np.arange(2, 5), np.isin(np.arange(7), [2, 3, 4])):
        chosen = Ensemble([frame])[rows]
        assert chosen.columns == tuple("wxyz")
        assert (chosen.checked()[0][0] == ROWS[0][2:5]).all()
    assert (Ensemble([frame])[-1].checked()[0][0] == ROWS[0][-1:]).all()


def test_rows_of_a_member_that_only_becomes_an_array() -> None:
    ensemble = Ensemble([memoryview(ROWS[0])])
    assert (ensemble[np.array([5, 2])].checked()[0][0] == ROWS[0][[5, 2]]).all()


@pytest.mark.parametrize(
    ("members", "options", "message"),
    [
        (ROWS[0], {}, r"array \(members, n, classes\).*got shape \(7, 4\)"),
        ([], {}, "at least one"),
        ("logits.npz", {}, "must be a sequence or a mapping"),
        ([ROWS[0], ROWS[1][:5]], {}, r"members\[1\].*\(7, 4\); got \(5, 4\)"),
        ([ROWS[0], ROWS[1][:, :3]], {}, r"members\[1\].*\(7, 4\); got \(7, 3\)"),
        (ROWS, {"names": ["a", "a", "b"]}, "each of the 3 members once"),
        (ROWS, {"names": ["a", "b"]}, "each of the 3 members once"),
        (ROWS, {"names": "abc"}, "sequence of texts"),
        ({"a": ROWS[0]}, {"names": ["b"]}, "whose keys are the names"),
        (ROWS, {"exchangeable": 1}, "exchangeable"),
        ([TopK(ROWS[0], np.tile(np.arange(4), (7, 1)), 9)], {}, "to_dense"),
    ],
)
def test_mistaken_members_are_told(members: Any, options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Ensemble(members, **options)


def test_an_unknown_member_is_named() -> None:
    with pytest.raises(ValueError, match="among a, b, c; got 'd'"):
        Ensemble(ROWS, ["a", "b", "c"]).select(["d"])


def with_cell(value: float, member: int, row: int, column: Any) -> np.ndarray:
    changed = ROWS.copy()
    changed[member, row, column] = value
    return changed


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (with_cell(np.nan, 1, 2, 3), r"members\[1\].*nan in row 2, column 3"),
        (with_cell(np.inf, 2, 4, 0), r"members\[2\].*inf in row 4, column 0"),
        (with_cell(-np.inf, 0, 1, slice(None)), r"members\[0\].*row 1"),
        (
            np.where(np.arange(7)[:, None] == 5, np.nan, ROWS),
            "all are NaN in row 5",
        ),
    ],
)
def test_cells_that_are_no_logits_are_refused(
    members: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        auto(Ensemble(members), np.arange(7) % 4)


def test_three_dimensions_without_an_ensemble_are_told_first_of_it() -> None:
    with pytest.raises(ValueError, match=r"hokical\.Ensemble\(logits\).*Dense"):
        auto(ROWS, np.arange(7) % 4)
    with pytest.raises(ValueError, match=r"from_probabilities\(hokical\.Ensemble"):
        from_probabilities(np.full((3, 7, 4), 0.25))


def test_an_ensemble_is_no_array() -> None:
    with pytest.raises(TypeError, match="choose a member"):
        np.asarray(Ensemble(ROWS))

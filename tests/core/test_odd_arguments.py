"""Arguments of another type are refused by name, by the checks that all rooms share."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest

from hokical import Ensemble, TopK
from hokical._core import checks, reading, storage

FRAME = pd.DataFrame(np.zeros((40, 3)))


@pytest.mark.parametrize("path", [3.5, None, ["a.json"], FRAME, b"a.json", "a\0b"])
def test_paths(path: Any) -> None:
    read_and_write = (
        storage.read_document,
        lambda place: storage.write_text_atomically(place, ""),
        lambda place: storage.lock_file(place).__enter__(),
    )
    for work in read_and_write:
        with pytest.raises((TypeError, ValueError), match="`path` must be the path of"):
            work(path)


@pytest.mark.parametrize("value", [FRAME, np.zeros(3), pd.NA, ["a"], Decimal(1)])
def test_choices(value: Any) -> None:
    with pytest.raises(ValueError, match=r"`by` must be one of \['a', 'b'\]; got"):
        checks.check_choice("by", value, Literal["a", "b"])


def test_long_values_are_not_shown() -> None:
    with pytest.raises(ValueError, match=r"got a DataFrame\.$"):
        checks.check_flag("pooled", FRAME)


@pytest.mark.parametrize("names", ["abc", 3, {0: "a"}, {"a"}, FRAME, np.array("a")])
def test_names_in_an_order(names: Any) -> None:
    with pytest.raises(TypeError, match="`classes` must be a sequence of names"):
        checks.check_names("classes", names)


@pytest.mark.parametrize("value", [10**400, np.timedelta64(1, "s"), "1", True, 1j])
def test_numbers(value: Any) -> None:
    with pytest.raises(ValueError, match="`scale` must be a finite number above 0"):
        checks.check_positive("scale", value, "")


def test_numbers_of_any_kind_are_read() -> None:
    assert checks.as_number(np.float32(0.5)) == 0.5
    assert checks.as_number(-(10**400)) == -np.inf


@pytest.mark.parametrize("rows", ["a", [[0]], [0.5], np.ones(2, bool), None, FRAME])
def test_rows(rows: Any) -> None:
    ensemble = Ensemble(np.zeros((2, 5, 3)))
    with pytest.raises(TypeError, match="`rows` must be"):
        ensemble.take(rows)
    with pytest.raises(IndexError, match="`rows` must be numbers of the 5 rows"):
        ensemble.take([7])
    assert ensemble.take([]).n_rows == 0
    assert ensemble.take(np.arange(5) > 2).n_rows == 2


def test_members_and_other_ensembles() -> None:
    ensemble = Ensemble(np.zeros((2, 5, 3)))
    for members in (3, "01", FRAME):
        with pytest.raises(TypeError, match="`members` must be a sequence of names"):
            ensemble.select(members)  # type: ignore[arg-type]
    for others in (3, ensemble, ["a"], np.zeros((2, 5, 3))):
        with pytest.raises(TypeError, match="`others` must be"):
            ensemble.append(others)  # type: ignore[arg-type]


def test_best_logits() -> None:
    logits = TopK.from_logits(np.arange(6.0).reshape(2, 3), 2)
    for fill in (np.zeros((2, 3)), "a", [1.0, 2.0, 3.0], [{}, {}]):
        with pytest.raises((TypeError, ValueError), match="`fill` "):
            logits.to_dense(fill=fill)
    assert logits.to_dense(fill=-1)[0, 0] == -1.0
    with pytest.raises(ValueError, match="`keep_rest` must be one of"):
        TopK.from_logits(np.zeros((2, 3)), 2, keep_rest=FRAME)  # type: ignore[arg-type]


def test_labels_that_cannot_be_looked_up() -> None:
    labels = np.array(["a", ["b"]], object)
    with pytest.raises(ValueError, match="`y` must be names of the classes"):
        reading.class_index(labels, ["a", "b"], "y")


def test_chunks() -> None:
    with pytest.raises(TypeError, match="`proba` must be an iterable of chunks"):
        reading.iterate(int, "proba")

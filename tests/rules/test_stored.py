"""Rules in files: read back exactly, and a file that lies does no harm."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from hokical import CalibratorFileError
from hokical._core.storage import read_document, write_document
from hokical.rules import Rule, as_logits
from hokical.rules.base import predict_blocks
from hokical.rules.scaling import N_FEATURES
from hokical.rules.sets import SetRule
from tests.conftest import max_examples, write_encoded
from tests.rules.making import (
    NAMES,
    assert_chances,
    class_counts,
    make_rows,
    make_rule,
    seeds,
)

#: What a damaged or hostile file may have in the place of a number.
SPOILT: list[Any] = [
    0,
    1,
    -1,
    2,
    3,
    0.5,
    -0.5,
    1e-320,
    1e300,
    -1e300,
    1e9,
    -1e9,
    10**30,
    1.0 + 1e-10,
    {"$float": "nan"},
    {"$float": "inf"},
    {"$float": "-inf"},
    None,
    True,
    "1",
    [],
    [1.0],
    {},
]
EDITS = 200


def stored(rule: Rule, folder: Path) -> Any:
    """The rule as a file has it."""
    path = folder / "rule.json"
    write_document(path, {"rule": rule})
    return json.loads(path.read_text())["rule"]


def read(document: Any, folder: Path) -> Rule:
    """A rule from what a file has."""
    path = folder / "rule.json"
    write_encoded(path, {"rule": document})
    rule = read_document(path)["rule"]
    assert isinstance(rule, Rule)
    return rule


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rules")


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds, n_classes=class_counts)
@max_examples(20)
def test_a_rule_comes_back_exactly(
    name: str, seed: int, n_classes: int, folder: Path
) -> None:
    rule = make_rule(name, seed, n_classes)
    twin = read(stored(rule, folder), folder)
    assert type(twin) is type(rule)
    for ours, theirs in (
        (rule.numbers(), twin.numbers()),
        (rule.indices(), twin.indices()),
    ):
        assert ours.keys() == theirs.keys()
        for field, value in ours.items():
            np.testing.assert_array_equal(
                value, theirs[field], strict=isinstance(value, np.ndarray)
            )


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "uncalibrated"])
def test_a_file_that_lies_is_refused_or_harmless(name: str, folder: Path) -> None:
    """Random edits either raise, or leave a rule whose answers are still
    probabilities.
    """
    rng = np.random.default_rng(0)
    documents = [
        stored(make_rule(name, seed, 2 + seed % 4), folder) for seed in range(20)
    ]
    refused = 0
    for trial in range(EDITS):
        n_classes = 2 + trial % 20 % 4
        try:
            rule = read(spoil(documents[trial % 20], rng), folder)
        except CalibratorFileError:
            refused += 1
            continue
        if (
            rule.n_classes in (None, n_classes)
            and getattr(rule, "n_transforms", 3) == 3
        ):
            assert_sound(rule, n_classes, trial)
    assert refused > 0.2 * EDITS


def spoil(document: Any, rng: np.random.Generator) -> Any:
    """A copy in which one to three values are something else."""
    spoilt = copy.deepcopy(document)
    for _ in range(rng.integers(1, 4)):
        places = list(leaves(spoilt))
        holder, key = places[rng.integers(len(places))]
        value = holder[key]
        if isinstance(value, float) and rng.random() < 0.5:
            product = value * float(rng.choice([-1.0, 0.0, 0.99, 1.5, 1e150]))
            holder[key] = float(np.clip(product, -1e300, 1e300))
        elif isinstance(holder, list) and rng.random() < 0.1:
            holder.pop(key)
        else:
            holder[key] = copy.deepcopy(SPOILT[rng.integers(len(SPOILT))])
    return spoilt


def leaves(node: Any) -> Any:
    """Where the values are: (list or dict, index or key)."""
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        if isinstance(value, (dict, list)) and value:
            yield from leaves(value)
        else:
            yield node, key


def assert_sound(rule: Rule, n_classes: int, seed: int) -> None:
    rows = make_rows(seed, n_classes)
    logits = as_logits(rows)
    for what in ("confidence", "proba"):
        assert_chances(predict_blocks(rule, what, logits))


def test_numbers_that_no_fit_makes_are_refused() -> None:
    """One number at a time, by name."""
    good = {name: make_rule(name, 5, 3) for name in NAMES}
    knots = good["irova_ts"].knots
    wrong: list[tuple[str, dict[str, Any]]] = [
        *(
            ("temps", {"temperature": bad})
            for bad in (0.0, -1.0, np.nan, np.inf, "1", True, None)
        ),
        ("ets", {"weights": np.array([0.5, 0.5, 0.1])}),
        ("ets", {"weights": np.array([1.5, -0.5, 0.0])}),
        ("ets", {"weights": np.array([1.0, 0.0])}),
        ("vecs", {"scale": np.array([1.0, np.nan, 1.0])}),
        ("vecs", {"bias": np.zeros(4)}),
        ("platt", {"slope": np.inf}),
        ("beta", {"fall": -0.1}),
        ("venn_abers", {"lower": good["venn_abers"].upper + 0.1}),
        ("venn_abers", {"upper": np.zeros_like(good["venn_abers"].upper)}),
        ("floored", {"floor": -1e-9}),
        ("floored", {"rule": good["floored"]}),
        ("clipped", {"lowest": 0.1}),
        ("clipped", {"rule": good["clipped"]}),
        ("irm", {"knots": np.array([-1.0, -2.0]), "values": np.array([0.0, 1.0])}),
        ("irm", {"knots": np.array([-1.0, -0.1]), "values": np.array([0.0, 1.0])}),
        ("irm", {"knots": np.array([-2.0, -1.0]), "values": np.array([1.0, 0.5])}),
        ("irm", {"normalize": 1}),
        ("irova_ts", {"offsets": np.array([0, 1, 1, knots.size])}),
        ("irova_ts", {"offsets": np.array([0, 1, knots.size, knots.size + 1])}),
        ("irova_ts", {"knots": knots[::-1].copy()}),
        ("adaptive", {"temperature": 0.0}),
        ("adaptive", {"correction": None}),
        ("adaptive", {"correction.spread": np.zeros(N_FEATURES)}),
        ("adaptive", {"correction.shift": np.zeros(N_FEATURES)}),
        ("auto", {"base": None}),
        ("auto", {"correction": 1.0}),
        ("auto", {"keep_labels": 1}),
        ("hoki", {"levels": 7}),
        ("hoki", {"link": None}),
    ]
    for name, numbers in wrong:
        with pytest.raises(ValueError, match="must"):
            good[name].with_numbers(numbers, check=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": np.array([np.nan])},
        {"threshold": 0.5},
        {"own_scores": 1},
        {"allow_empty": None},
        {"free_ranks": -1},
        {"penalty": -0.1},
        {"kind": "largest"},
        {"rule": None},
    ],
)
def test_a_rule_of_sets_checks_what_it_is_given(wrong: dict[str, Any]) -> None:
    rule = SetRule(make_rule("temps", 5, 3), "smallest", np.array([-0.1]))
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must"):
        dataclasses.replace(rule, **wrong)

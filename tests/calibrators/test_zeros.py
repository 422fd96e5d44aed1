"""Probabilities of exactly 0: very unlikely unless said to be impossible, in every
method.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.tree import DecisionTreeClassifier

from hokical import CalibratedClassifier, TopK, from_probabilities, load, make
from hokical.calibrators import method_names
from hokical.io import read_examples
from hokical.rules.base import FlooredRule
from hokical.streams import fit as fit_stream
from tests.conftest import QUICK, synthetic_logits
from tests.fitted import fingerprint, with_rule

CASES = [(name, 4) for name in method_names(4)]
CASES += [(name, 2) for name in method_names(2) if (name, 4) not in CASES] + [
    ("auto", 4)
]
#: These learn nothing about how likely a 0 is.
WITHOUT = ("uncalibrated", "hoki", "hoki_from_p0")
Data = tuple[np.ndarray, np.ndarray]


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def votes(n_classes: int, n: int = 600, n_voters: int = 6) -> Data:
    """Shares of a few voters: many zeros, some of them for the true class; and
    labels.
    """
    logits, labels = synthetic_logits(n, n_classes, seed=4, stretch=1.0)
    drawn = np.random.default_rng(1).multinomial(n_voters, softmax(logits, axis=1))
    return drawn / n_voters, labels


def log_loss(proba: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(proba[np.arange(labels.size), labels]).mean())


@pytest.mark.sample(6)
@pytest.mark.parametrize(("name", "n_classes"), CASES)
def test_no_method_takes_a_zero_for_certain(
    name: str, n_classes: int, tmp_path: Path
) -> None:
    proba, labels = votes(n_classes)
    logits = from_probabilities(proba)
    assert (proba[np.arange(300, 600), labels[300:]] == 0.0).any()
    options = QUICK.get(name, {})
    cal = make(name, **options).fit(logits[:300], labels[:300])
    found = cal.predict_proba(logits[300:])
    assert found.min() > 0.0
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    if name not in WITHOUT:
        assert log_loss(found, labels[300:]) < np.log(n_classes)
    has_floor = name not in (*WITHOUT, "auto")  # which has it in its parts
    assert not has_floor or 0.0 < cal.floor_ <= 0.1
    cal.save(tmp_path / "cal.json")
    for again in (load(tmp_path / "cal.json"), load(tmp_path / "cal.json")):
        np.testing.assert_array_equal(again.predict_proba(logits[300:]), found)
        assert fingerprint(again) == fingerprint(cal)
        assert not has_floor or again.floor_ == cal.floor_


@pytest.mark.parametrize("name", ["temps", "irm", "structured", "hoki"])
def test_impossible_stays_impossible(name: str) -> None:
    proba, labels = votes(4)
    labels = np.where(proba[np.arange(600), labels] > 0.0, labels, proba.argmax(axis=1))
    cal = make(name).fit(from_probabilities(proba, zeros="impossible"), labels)
    found = cal.predict_proba(from_probabilities(proba, zeros="impossible"))
    np.testing.assert_array_equal(found == 0.0, proba == 0.0)


def test_a_floor_is_fitted_for_zeros_alone() -> None:
    proba, labels = votes(4)
    smooth = 0.99 * proba + 0.0025
    far = from_probabilities(smooth) * 1000.0  # decision scores, say
    for logits in (
        from_probabilities(smooth),
        far,
        from_probabilities(proba, zeros="impossible"),
    ):
        kept = np.where(
            np.isfinite(logits[np.arange(600), labels]), labels, logits.argmax(axis=1)
        )
        assert not isinstance(make("temps").fit(logits, kept).rule_, FlooredRule)
    cal = make("temps").fit(from_probabilities(proba), labels)
    assert isinstance(cal.rule_, FlooredRule)
    assert cal.temperature_ == cal.rule_.rule.temperature
    moved = (
        from_probabilities(proba) + 30.0
    )  # logits are what they are up to a constant
    assert make("temps").fit(moved, labels).floor_ == cal.floor_
    with pytest.raises(ValueError, match="needs the logit of every class"):
        cal.predict(TopK([[2.0, 1.0]], [[3, 1]], n_classes=4))


def test_a_zero_that_was_not_in_the_fit_is_not_certain() -> None:
    proba, labels = votes(4)
    cal = make("temps").fit(from_probabilities(0.9 * proba + 0.025), labels)
    assert cal.predict_proba(from_probabilities([[1.0, 0.0, 0.0, 0.0]])).min() > 0.0
    sharp = make("temps").fit(from_probabilities(proba), labels)
    tempered = replace(sharp.rule_.rule, temperature=2e-3)
    sharp = with_rule(sharp, replace(sharp.rule_, rule=tempered))
    torch = pytest.importorskip("torch")
    zeros = torch.tensor(from_probabilities(np.eye(4)), dtype=torch.float32)
    for fitted in (cal, sharp):
        for given in (
            zeros,
            zeros.clone().requires_grad_(),
        ):  # as an array, and as a tensor
            single = fitted.predict_proba(given).detach()
            assert single.dtype == torch.float32
            assert float(single.min()) > 0.0


@pytest.mark.parametrize("name", ["irm", "structured"])
def test_streams_that_are_gathered_have_the_floor_too(name: str) -> None:
    proba, labels = votes(4, 300)
    logits = from_probabilities(proba)
    options = QUICK.get(name, {})
    whole = make(name, **options).fit(logits, labels)
    chunks = [(logits[a : a + 77], labels[a : a + 77]) for a in range(0, 300, 77)]
    streamed = fit_stream(make(name, **options), chunks)
    np.testing.assert_allclose(
        streamed.predict_proba(logits), whole.predict_proba(logits), atol=1e-12
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["temps", "ets", "vecs"])
def test_fits_in_passes_have_the_floor_too(name: str) -> None:
    """Chosen on the rows that a fit in memory chooses it on."""
    proba, labels = votes(4, 300)
    logits = np.tile(from_probabilities(proba), (40, 1))
    truth = np.tile(labels, 40)
    whole = make(name).fit(logits, truth)
    chunks = [
        (logits[a : a + 4999], truth[a : a + 4999]) for a in range(0, 12_000, 4999)
    ]
    streamed = fit_stream(make(name), chunks)
    assert streamed.floor_ == whole.floor_ > 0.0
    np.testing.assert_allclose(
        streamed.predict_proba(logits[:300]),
        whole.predict_proba(logits[:300]),
        atol=1e-7,
    )


def test_a_rare_zero_of_the_truth_is_not_overlooked() -> None:
    """One example in 12,000, between those that floors are compared on."""
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.full(4, 0.5), size=12_000)
    labels = (proba.cumsum(axis=1) < rng.random((12_000, 1))).sum(axis=1)
    proba[7] = np.where(np.arange(4) == labels[7], 0.0, 1.0 / 3.0)
    cal = make("temps").fit(from_probabilities(proba), labels)
    assert cal.floor_ > 0.0
    assert cal.temperature_ == pytest.approx(1.0, abs=0.1)


def test_zeros_among_the_best_are_hidden() -> None:
    values, classes = (
        np.array([[0.0, 0.7, 0.3], [0.4, 0.2, 0.4]]),
        [[5, 4, 1], [3, 2, 0]],
    )
    known = np.where(values > 0.0, classes, -1)
    top = TopK.from_log_probabilities(
        np.log(np.maximum(values, 1e-300)), known, n_classes=6
    )
    np.testing.assert_array_equal(top.labels, [4, 0])  # ties: the first class
    np.testing.assert_array_equal(top.hidden, [4, 3])
    proba = make("uncalibrated").fit(np.eye(6), np.arange(6)).predict_proba(top)
    assert proba.min() > 0.0


def test_readers_are_told_what_zeros_mean(tmp_path: Path) -> None:
    proba = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    np.savez(tmp_path / "p.npz", probs=proba, labels=[0, 1])
    for zeros in ("unlikely", "impossible"):
        rows = read_examples(tmp_path / "p.npz", zeros=zeros).scores
        np.testing.assert_array_equal(
            rows.values, from_probabilities(proba, zeros=zeros)
        )
        np.testing.assert_array_equal(rows.labels, [0, 0])


def test_zeros_of_a_classifier_are_unlikely_not_impossible() -> None:
    X = np.repeat(np.eye(3), 10, axis=0)
    y = np.repeat([0, 1, 2], 10)
    tree = DecisionTreeClassifier().fit(X, y)
    model = CalibratedClassifier(tree, method="ets", cv="prefit").fit(X, y)
    assert model.predict_proba(X).min() > 0.0

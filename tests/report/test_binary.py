"""Two classes: the event comes first in evaluations, comparisons, tables and
reports.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import hokical
from hokical._core.reading import event_index
from hokical.metrics import binary_summary


def loans(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a model whose risks are too low, as two columns, and defaults."""
    rng = np.random.default_rng([n, seed])
    x = rng.normal(-1.6, 1.1, n)
    default = rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-0.5 - x))
    return np.column_stack([np.zeros(n), x]), default.astype(int)


@pytest.fixture(scope="module")
def cal() -> Any:
    return hokical.make("platt").fit(*loans(800, 0))


@pytest.fixture(scope="module")
def evaluation(cal: Any) -> Any:
    return hokical.evaluate(cal, *loans(1500, 1), classes=("paid", "default"))


def test_the_event_is_that_of_the_probabilities(evaluation: Any, cal: Any) -> None:
    scores, truth = loans(1500, 1)
    p = cal.predict_proba(scores)[:, 1]
    assert evaluation.binary["auroc"].value == pytest.approx(
        roc_auc_score(truth, p), abs=1e-9
    )
    expected = binary_summary(p, truth).estimates
    for name, estimate in evaluation.binary.estimates.items():
        assert estimate.value == pytest.approx(expected[name].value, abs=1e-6), name
    uncalibrated = 1.0 / (1.0 + np.exp(-scores[:, 1]))
    ratio = truth.mean() / uncalibrated.mean()
    assert evaluation.before.binary["oe_ratio"].value == pytest.approx(ratio, abs=1e-9)


def test_no_dash_stands_before_a_minus(evaluation: Any, tmp_path: Path) -> None:
    assert evaluation.binary["intercept"].low < 0.0
    evaluation.to_html(tmp_path / "loans.html")
    page = (tmp_path / "loans.html").read_text(encoding="utf-8")
    assert re.search(r"<small>-0\.\d+ to -?0\.\d+</small>", page)
    assert "\N{EN DASH}-" not in page


def test_the_headline_says_that_risks_are_too_low(evaluation: Any) -> None:
    first, now = (stage.binary["oe_ratio"] for stage in evaluation.stages)
    said, says = (
        f"{stage.binary['mean_probability'].value:.1%}" for stage in evaluation.stages
    )
    share = f"{evaluation.binary['prevalence'].value:.1%}"
    before, after = evaluation.verdict.split("; with Platt scaling (platt) it says ")
    assert before.startswith(
        f"The model said {said} on average and the event (default) happened in {share} "
        "of 1,500 examples: probabilities are too low"
    )
    assert after.startswith(says)
    assert ("too high" in after) == (now.high < 1.0)
    assert first.low > 1.0
    assert evaluation.headline.startswith(evaluation.verdict)
    assert evaluation.details.startswith(
        f"Observed events are {first.value:.2f} ({first.low:.2f} to {first.high:.2f}), "
        f"then {now.value:.2f} ({now.low:.2f} to {now.high:.2f}) times the expected; "
        "the slope is "
    )
    text = str(evaluation)
    assert text.index("O:E ratio") < text.index("Predicted label") < text.index("\nECE")
    assert evaluation.words("label")[0] in " ".join(text.split())


def test_the_verdict_judges_slope_and_bands() -> None:
    rng = np.random.default_rng(5)
    log_odds = rng.normal(size=4000)
    labels = rng.uniform(size=4000) < 1.0 / (1.0 + np.exp(-log_odds))
    extreme = np.stack([np.zeros(4000), 2.5 * log_odds], axis=1)
    evaluation = hokical.evaluate(None, extreme, labels.astype(int))
    assert evaluation.binary["slope"].high < 1.0
    bands = evaluation.binary.bands().rows
    n_flagged = sum(band.flagged for band in bands)
    assert n_flagged > 3
    assert evaluation.verdict.endswith(
        f": probabilities are too extreme, and {n_flagged} of {len(bands)} bands are "
        "miscalibrated."
    )
    calibrated = hokical.evaluate(None, extreme / 2.5, labels.astype(int))
    assert calibrated.verdict.endswith("of 4,000 examples.")


def test_the_finding_is_the_band_with_most_misplaced_events(evaluation: Any) -> None:
    bands = evaluation.before.binary.bands().rows
    worst = max(
        bands, key=lambda band: abs(band.events - band.n * band.mean_probability)
    )
    assert (
        f"{worst.n:,.0f} examples had a predicted probability of {worst.lower:.1%} to "
        f"{worst.upper:.1%} ({worst.mean_probability:.1%} on average), and "
        f"{worst.observed:.1%} of them had the event."
    ) in evaluation.finding


def test_the_event_is_class_1_unless_it_is_named(cal: Any) -> None:
    scores, truth = loans(600, 2)
    plain = hokical.evaluate(cal, scores, truth)
    assert "the event (class 1) happened in" in plain.headline
    by_number = hokical.evaluate(cal, scores, truth, positive=0)
    names = ("paid", "default")
    named = hokical.evaluate(cal, scores, truth, classes=names, positive="paid")
    for evaluation in (by_number, named):
        assert evaluation.binary["prevalence"].value == pytest.approx(
            1.0 - truth.mean()
        )
    assert named.binary.event == "paid"
    assert plain.summary.estimates == by_number.summary.estimates
    with pytest.raises(
        ValueError, match=r"`positive` must be one of \['paid', 'default', 0, 1\]"
    ):
        hokical.evaluate(cal, scores, truth, classes=names, positive="late")


def test_more_classes_have_no_event() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(300, 3)), rng.integers(3, size=300)
    evaluation = hokical.evaluate(None, logits, labels)
    assert evaluation.binary is None
    assert evaluation.headline == " ".join(evaluation.words("label"))
    assert "event" not in str(evaluation)
    assert "binary" not in evaluation.to_dict()["methods"][0]
    with pytest.raises(ValueError, match="`positive` must be None for 3 classes"):
        hokical.evaluate(None, logits, labels, positive=1)


def test_streams_and_weights_have_the_same_event(cal: Any) -> None:
    scores, truth = loans(900, 3)
    evaluation = hokical.evaluate(cal, scores, truth)
    chunks = [(scores[k::3], truth[k::3]) for k in range(3)]
    streamed = hokical.evaluate(cal, chunks)
    for name, estimate in streamed.binary.estimates.items():
        assert estimate.value == pytest.approx(
            evaluation.binary[name].value, rel=1e-9
        ), name
    twice = hokical.evaluate(cal, scores, truth, sample_weight=np.full(900, 2.0))
    assert twice.binary["slope"].low == pytest.approx(
        evaluation.binary["slope"].low, rel=1e-6
    )


def test_tables_and_json_have_the_event(evaluation: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(evaluation.to_csv())))
    assert [row["method"] for row in rows] == ["uncalibrated", "platt"]
    for row, stage in zip(rows, evaluation.stages, strict=True):
        for name in ("slope", "intercept", "auroc", "brier", "log_loss"):
            assert float(row[f"event_{name}"]) == stage.binary[name].value
    assert (
        "O:E ratio & intercept & slope & AUROC & Brier score & log loss"
        in evaluation.to_latex()
    )
    values = json.loads(json.dumps(evaluation.to_dict()))["methods"][1]["binary"]
    assert values["estimates"]["slope"]["value"] == evaluation.binary["slope"].value
    assert len(values["bands"]["rows"]) == 10
    compared = hokical.compare(loans(800, 0), loans(1500, 1), ["uncalibrated", "platt"])
    assert compared.records()[1]["event_auroc"] == evaluation.binary["auroc"].value
    assert "O:E ratio" in str(compared)


def test_one_outcome_is_no_reason_to_fail(cal: Any) -> None:
    scores, _ = loans(50, 4)
    evaluation = hokical.evaluate(cal, scores, np.zeros(50, int))
    assert math.isnan(evaluation.binary["slope"].value)
    assert evaluation.binary.curve is None
    assert "the event (class 1) happened in 0.0% of 50 examples" in evaluation.headline
    assert "Observed events are 0.00 (0.00 to" in evaluation.headline
    assert "the slope is unknown;" in evaluation.headline


def test_every_prediction_is_made_once(
    cal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    rule = type(cal.rule_)
    plain = rule.proba
    monkeypatch.setattr(
        rule, "proba", lambda self, x: calls.append(x.n_rows) or plain(self, x)
    )
    hokical.evaluate(cal, *loans(400, 5))
    assert sum(calls) == 400


@pytest.mark.slow
def test_the_report_shows_the_event_first(evaluation: Any, tmp_path: Path) -> None:
    text = evaluation.to_html(tmp_path / "report.html").read_text("utf-8")
    order = [
        "The probability of the event: default",
        "Decision curve",
        "By band of probability",
        "The predicted label",
        evaluation.words("label")[0],
    ]
    positions = [text.index(words) for words in order]
    assert positions == sorted(positions)
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', text)[1])
    event = data["methods"][1]["event"]
    assert event["estimates"]["slope"] == f"{evaluation.binary['slope'].value:.3f}"
    assert (
        sum(row["events"] for row in event["bands"]["rows"])
        == evaluation.binary.n_events
    )
    assert len(event["curve"]["observed"]) == 101
    assert sum(event["events"]) == pytest.approx(1.0, abs=1e-4)


def test_the_plot_is_that_of_the_event(evaluation: Any) -> None:
    ax = evaluation.plot()
    assert ax.get_xlabel() == "predicted probability"
    np.testing.assert_allclose(
        ax.lines[1].get_ydata(), evaluation.binary.curve.observed
    )
    assert evaluation.plot(of="label").get_xlabel() == "confidence"


@pytest.mark.slow
def test_folds_are_predicted_by_fits_on_the_others() -> None:
    scores, truth = loans(300, 6)
    evaluation = hokical.evaluate("platt", scores, truth, folds=5)
    fair = hokical.evaluate(hokical.make("platt").fit(scores, truth), *loans(20_000, 7))
    assert evaluation.folds == 5
    assert "Cross-fitted in 5 folds: intervals are conditional" in evaluation.headline
    assert not evaluation.summary.bounds
    assert evaluation.n == 300
    assert evaluation.before.binary["auroc"].value == pytest.approx(
        roc_auc_score(truth, scores[:, 1]), abs=1e-9
    )
    low, high = evaluation.binary["log_loss"].low, evaluation.binary["log_loss"].high
    assert low < fair.binary["log_loss"].value < high
    p = evaluation.calibrator.predict_proba(scores)[
        :, 1
    ]  # of all examples, which is better than fair
    assert (
        binary_summary(p, truth)["log_loss"].value < evaluation.binary["log_loss"].value
    )
    of_a_calibrator = hokical.evaluate(hokical.make("platt"), scores, truth, folds=5)
    assert of_a_calibrator.binary.estimates == evaluation.binary.estimates


def test_folds_of_an_interpolating_method_are_not_optimistic() -> None:
    """Isotonic regression finds in the sample what is not there; cross-fitted it
    does not.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    scores = np.column_stack([np.zeros(400), x])
    truth = (rng.uniform(size=400) < 1.0 / (1.0 + np.exp(-0.4 * x))).astype(int)
    with pytest.warns(UserWarning, match="folds=10"):
        fooled = hokical.evaluate(
            hokical.make("irova_ts").fit(scores, truth), scores, truth
        )
    fair = hokical.evaluate("irova_ts", scores, truth, folds=10)
    assert fair.binary["auroc"].value < fooled.binary["auroc"].value - 0.01
    assert fair.binary["log_loss"].value > fooled.binary["log_loss"].value + 0.01


def test_folds_take_weights_groups_and_a_method() -> None:
    scores, truth = loans(400, 8)
    options = {
        "groups": np.repeat(["a", "b"], 200),
        "sample_weight": np.arange(400) % 3,
    }
    evaluation = hokical.evaluate("auto", scores, truth, folds=4, **options)
    assert evaluation.groups is not None
    with pytest.raises(
        ValueError, match="`folds` must be an integer from 2 to 400; got 1"
    ):
        hokical.evaluate("platt", scores, truth, folds=1)
    with pytest.raises(ValueError, match="`cal`"):
        hokical.evaluate("plat", scores, truth, folds=4)
    with pytest.raises(TypeError, match="`coverage` cannot be given with `folds`"):
        hokical.evaluate("platt", scores, truth, folds=4, coverage=0.9)


def test_an_event_is_named_alike_everywhere() -> None:
    """By its name or number; without names a number may be text, as in a shell."""
    names = ("paid", "default")
    for positive, expected in (("paid", 0), ("default", 1), (0, 0), (np.int64(1), 1)):
        assert event_index(positive, names, 2) == expected
        assert event_index(positive, np.array(names), 2) == expected
    assert event_index("1", (), 2) == 1
    assert event_index("1", ("1", "0"), 2) == 0
    assert [event_index(None, (), n) for n in (1, 2, 3)] == [None, 1, None]
    assert event_index("1", names, 2) == 1
    for positive in ("late", "2", True, 2, -1, 0.5):
        with pytest.raises(ValueError, match="`positive` must be one of"):
            event_index(positive, names, 2)

"""What is refused, and in which words."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from hokical import metrics

TOP = [metrics.ece, metrics.brier, metrics.log_loss, metrics.auroc, metrics.smooth_ece]
FULL = [
    metrics.brier,
    metrics.log_loss,
    metrics.classwise_ece,
    metrics.ece,
    metrics.auroc,
]


@pytest.mark.parametrize("metric", TOP)
@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5, 1.2], [1, 0], r"`confidence` must lie in \[0, 1\]; got 1.2 in row 1"),
        ([math.nan], [1], r"`confidence` must lie in \[0, 1\]; got nan in row 0"),
        (
            np.full((1, 1, 1), 0.5),
            [1],
            r"`confidence` must be 1-D.*got shape \(1, 1, 1\)",
        ),
        ([], [], "`confidence` must be 1-D .* at least one entry"),
        ([0.5, 0.6], [1], r"`correct` must be 1-D with one entry per row \(2\)"),
        ([0.5], [3], "`correct` must be True or False .*got 3 in row 0"),
        ([0.5], [math.nan], "`correct` must be True or False .*got nan in row 0"),
    ],
)
def test_bad_top_label_data(
    metric: object, confidence: list, correct: list, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        metric(confidence, correct)  # type: ignore[operator]


@pytest.mark.parametrize("metric", FULL)
@pytest.mark.parametrize(
    ("proba", "labels", "message"),
    [
        ([[0.5]], [1], r"`proba` must be 2-D \(n, classes\)"),
        ([[0.5, 0.6]], [1], "`proba` rows must sum to 1; got 1.1 in row 0"),
        ([[0.5, 0.5], [-0.5, 1.5]], [1, 0], r"`proba` must lie in \[0, 1\].* in row 1"),
        ([[math.nan, 0.5]], [1], r"`proba` must lie in \[0, 1\].* in row 0"),
        ([[0.5, 0.5]], [2], r"`labels` must lie in \[0, 1\].*got 2 in row 0"),
        (
            [[0.5, 0.5]],
            [0, 1],
            r"`labels` must be 1-D with one entry per row \(1\); got .*2",
        ),
    ],
)
def test_bad_full_vector_data(
    metric: object, proba: list, labels: list, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        metric(proba, labels)  # type: ignore[operator]


#: What a metric does with (n, classes): that of the top label, that of all classes, or
#: of class 1.
SHAPES = {
    "top": [
        "ece",
        "debiased_ece",
        "smooth_ece",
        "auroc",
        "aurc",
        "selective_risk",
        "risk_coverage_curve",
    ],
    "all": [
        "brier",
        "log_loss",
        "classwise_ece",
        "ranked_probability_score",
        "summary",
        "group_table",
    ],
    "two": [
        "binary_summary",
        "calibration_slope",
        "decision_curve",
        "risk_bands",
        "smooth_calibration_curve",
    ],
    "samples": ["population_stability_index", "prediction_powered_accuracy"],
}


@pytest.mark.parametrize("n_classes", [2, 5])
def test_every_metric_takes_either_shape_or_says_what_it_takes(n_classes: int) -> None:
    functions = {name for name in metrics.__all__ if name.islower()}
    assert functions == {name for names in SHAPES.values() for name in names}
    rng = np.random.default_rng(0)
    proba, labels = (
        rng.dirichlet(np.ones(n_classes), size=60),
        rng.integers(n_classes, size=60),
    )
    top = proba.max(axis=1), proba.argmax(axis=1) == labels
    for name in SHAPES["top"]:
        metric = getattr(metrics, name)
        np.testing.assert_array_equal(metric(proba, labels), metric(*top))
    for name in SHAPES["all"]:
        metric, extra = (
            getattr(metrics, name),
            (labels,) if name == "group_table" else (),
        )
        assert metric(proba, labels, *extra) is not None
        if name in ("classwise_ece", "ranked_probability_score"):
            with pytest.raises(ValueError, match=r"`proba` must be 2-D \(n, classes\)"):
                metric(*top)
        else:
            assert metric(*top, *extra) is not None
    for name in SHAPES["two"]:
        metric = getattr(metrics, name)
        if n_classes > 2:
            words = f"two classes.*got {n_classes}.*Pass the probability of one"
            with pytest.raises(ValueError, match=words):
                metric(proba, labels)
        risk, event = proba[:, 1], labels == 1
        both = metric(np.column_stack([1.0 - risk, risk]), event.astype(int))
        alone = metric(risk, event)
        if name == "binary_summary":  # its log loss adds up both columns
            assert both["log_loss"].value == pytest.approx(alone["log_loss"].value)
            both.estimates["log_loss"] = alone["log_loss"]
        assert repr(both) == repr(alone)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, 2.0], r"`sample_weight` must be 1-D with one entry per row \(1\)"),
        ([-1.0], "`sample_weight` must be finite and >= 0; got -1.0 in row 0"),
        ([0.0], "`sample_weight` must not be zero everywhere"),
    ],
)
def test_bad_weights(weight: list, message: str) -> None:
    for metric, data in (
        (metrics.ece, ([0.5], [True])),
        (metrics.brier, ([[0.5, 0.5]], [0])),
    ):
        with pytest.raises(ValueError, match=message):
            metric(*data, sample_weight=weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 0}, "`n_bins` must be an integer of at least 1; got 0"),
        ({"bins": "mas"}, r"`bins` must be one of \['width', 'mass'\]; got 'mas'"),
        ({"norm": 0.5}, "`norm` must be a number of at least 1, or inf; got 0.5"),
        ({"norm": math.nan}, "`norm` must be a number of at least 1, or inf; got nan"),
        ({"norm": "l1"}, "`norm` must be a number of at least 1, or inf; got 'l1'"),
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.ece([0.5], [True], **options)


def test_wrong_types_are_type_errors() -> None:
    with pytest.raises(TypeError, match="`confidence` must be numbers"):
        metrics.ece(["high"], [True])
    with pytest.raises(TypeError, match=r"`correct` must be .* got 'yes' in row 0"):
        metrics.ece([0.5], ["yes"])
    with pytest.raises(TypeError, match="`proba` must be numbers"):
        metrics.brier([["a", "b"]], [0])


def test_inputs_are_not_changed_and_any_dtype_is_read() -> None:
    confidence = np.array([0.5, 1.0, 0.25], np.float16)
    correct = np.array([1, 0, 1], np.uint8)
    before = confidence.copy()
    assert metrics.ece(confidence, correct) == metrics.ece(
        confidence.tolist(), [True, False, True]
    )
    assert np.array_equal(confidence, before)
    for metric in TOP:
        assert isinstance(metric(confidence[:2], correct[:2]), float)


def test_rows_of_weight_zero_do_not_count() -> None:
    confidence, correct = [0.9, 0.3, 1.0], [True, False, False]
    for metric in (metrics.ece, metrics.aurc, metrics.brier, metrics.smooth_ece):
        assert metric(confidence, correct, sample_weight=[1, 1, 0]) == metric(
            confidence[:2], correct[:2]
        )


@pytest.mark.slow
def test_the_import_is_light() -> None:
    code = (
        "import sys, hokical.metrics\n"
        "print([m for m in ('matplotlib', 'torch', 'numba', 'pandas') if m in "
        "sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_rows_of_series_are_in_one_order() -> None:
    pd = pytest.importorskip("pandas")
    index = ["a", "b", "c"]
    confidence = pd.Series([0.9, 0.6, 0.8], index=index)
    correct = pd.Series([True, False, True], index=index)
    assert metrics.brier(confidence, correct) == pytest.approx(0.41 / 3)
    for data, labels in (
        (confidence, correct[::-1]),
        (pd.DataFrame({0: 1 - confidence, 1: confidence}), correct[::-1].astype(int)),
    ):
        with pytest.raises(ValueError, match="must have its rows in the order of"):
            metrics.brier(data, labels)


def test_what_is_missing_is_no_logit() -> None:
    with pytest.raises(ValueError, match=r"got nan in row 1\. Drop rows without one"):
        metrics.ece([0.5, np.nan], [True, False])
    with pytest.raises(ValueError, match=r"got shape \(2, 1\)\. Pass .* as one column"):
        metrics.ece([[0.5], [0.7]], [True, False])

"""The same sets wherever a probability goes."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import hokical
from hokical import CalibratedClassifier, Dense, make
from hokical.calibrators import with_sets
from hokical.monitoring import CoverageMonitor
from hokical.rules.scaling import TemperatureRule
from hokical.rules.sets import SetRule
from hokical.streams import certify, open_source, predict, predict_to
from tests.conftest import softmax_examples

OPTIONS = [
    {"coverage": 0.9},
    {"coverage": 0.9, "by": "class", "allow_empty": True},
    {"coverage": 0.9, "kind": "adaptive", "penalty": 0.01, "free_ranks": 1},
    {"coverage": 0.9, "kind": "ordered"},
]


@pytest.fixture(scope="module")
def cal() -> Any:
    return (
        make("hoki")
        .fit(*softmax_examples(400, seed=1))
        .certify(*softmax_examples(500, seed=2))
    )


@pytest.fixture(scope="module")
def logits() -> Any:
    rows = softmax_examples(300, seed=3)[0].astype(np.float32)
    rows[::9, 2] = -np.inf
    return rows


@pytest.mark.parametrize("library", ["torch", "jax.numpy", "array_api_strict"])
@pytest.mark.parametrize("options", OPTIONS)
def test_arrays_of_every_library(cal, logits, library, options) -> None:
    xp = pytest.importorskip(library)
    given = xp.asarray(logits)
    found = cal.predict_set(given, **options)
    assert type(found.members) is type(given)
    assert type(found.sizes) is type(given)
    expected = cal.predict_set(logits, **options)
    np.testing.assert_array_equal(np.asarray(found.members), expected.members)
    np.testing.assert_array_equal(np.asarray(found.sizes), expected.sizes)
    actions = cal.predict_action(given, 1.0 - np.eye(6)).actions
    assert type(actions) is type(given)


@pytest.mark.parametrize("options", OPTIONS)
def test_torch_modules(cal, logits, options) -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch import as_module

    module, tensor = as_module(with_sets(cal, **options)), torch.tensor(logits)
    expected = cal.predict_set(logits, **options).members
    np.testing.assert_array_equal(module.members(tensor).numpy(), expected)
    graph = module.members(tensor.clone().requires_grad_())
    np.testing.assert_array_equal(graph.numpy(), expected)
    assert module.members(tensor.reshape(3, 100, 6)).shape == (3, 100, 6)
    with pytest.raises(ValueError, match="no sets"):
        as_module(cal).members(tensor)


@pytest.mark.sample(0)
@pytest.mark.parametrize("options", OPTIONS)
def test_onnx_graphs(cal, logits, options) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("ndonnx")
    from hokical.integrations.onnx import export

    model = export(with_sets(cal, **options))
    session = runtime.InferenceSession(model.SerializeToString())
    rows = np.concatenate([logits, np.full((1, 6), np.nan, np.float32)])
    (members,) = session.run(["members"], {"logits": rows})
    expected = cal.predict_set(logits, **options).members
    np.testing.assert_array_equal(members[:-1], expected)
    assert not members[-1].any()


@pytest.mark.parametrize("options", OPTIONS)
def test_dask_arrays_and_streams(cal, logits, options, tmp_path) -> None:
    expected = cal.predict_set(logits, **options)
    sets, chunks = with_sets(cal, **options), [logits[:120], logits[120:]]
    streamed = np.concatenate(list(predict(sets, chunks, what="members")))
    np.testing.assert_array_equal(streamed, expected.members)
    predict_to(sets, open_source(chunks), tmp_path / "sets.npy", what="members")
    np.testing.assert_array_equal(np.load(tmp_path / "sets.npy"), expected.members)
    da = pytest.importorskip("dask.array")
    found = cal.predict_set(da.from_array(logits, chunks=(100, 4)), **options)
    assert isinstance(found.members, da.Array)
    np.testing.assert_array_equal(found.members.compute(), expected.members)
    np.testing.assert_array_equal(found.sizes.compute(), expected.sizes)


def test_a_stream_certifies_as_an_array_does(cal) -> None:
    logits, labels = softmax_examples(500, seed=2)
    twin = make("hoki").fit(*softmax_examples(400, seed=1))
    certify(twin, [(logits[:90], labels[:90]), (logits[90:], labels[90:])])
    for name in ("proba", "above", "rank", "labels"):
        found, expected = (
            getattr(each.predictor_.held_out.conformity, name) for each in (twin, cal)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(ValueError, match="at least one part"):
        twin.certify_parts([])


@pytest.mark.slow
def test_classifiers_name_their_sets() -> None:
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression

    data = load_iris()
    names = data.target_names[data.target]
    model = CalibratedClassifier(
        LogisticRegression(max_iter=500), method="temps", ensemble=False
    )  # a fold of 17 flowers has no mistakes
    model.fit(data.data[::3], names[::3])
    with pytest.raises(ValueError, match="no examples to go by"):
        model.predict_set(data.data[2::3], coverage=0.9)
    found = model.certify(data.data[1::3], names[1::3]).predict_set(
        data.data[2::3], coverage=0.9
    )
    assert set(found.labels(0)) <= set(data.target_names)
    truth = names[2::3]
    assert np.mean([truth[i] in found.labels(i) for i in range(50)]) > 0.8
    flagged = model.detect(data.data[2::3], "virginica", recall=0.9)
    assert flagged.flagged[truth == "virginica"].mean() > 0.8
    assert flagged.guarantee.startswith("Recall of class virginica at least 90%")
    assert flagged.guarantee.endswith(" held-out examples.")
    with pytest.raises(
        ValueError, match=r"`label` must be names of the classes.*got 'rose'"
    ):
        model.detect(data.data, "rose")
    costs = 1.0 - np.eye(3)
    cheap = model.predict_action(data.data[2::3], costs)
    np.testing.assert_array_equal(cheap.actions, model.predict(data.data[2::3]))
    asked = model.predict_action(
        data.data[2::3], np.c_[costs, np.full(3, 0.01)]
    ).actions
    assert set(asked) <= {0, 1, 2, 3}
    named = model.predict_action(data.data[2::3], [[0, 1], [1, 0], [1, 0]])
    assert set(named.actions) == {0, 1}
    with pytest.raises(ValueError, match=r"`positive` must be None for costs"):
        model.predict_action(data.data, costs, positive="setosa")
    by_name = {"ask": 0.01, "setosa": costs[0], "virginica": costs[2]}
    named = model.predict_action(data.data[2::3], by_name)
    assert {"ask", "setosa"} <= set(named.named) <= set(by_name)


def dense_examples(n: int, seed: int) -> Any:
    """Maps whose items are more or less difficult as a whole."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=(n, 5, 6))
    noise = rng.normal(size=(n, 5, 6, 3)) * rng.uniform(0.3, 2.0, size=(n, 1, 1, 1))
    return np.moveaxis(2.0 * np.eye(3)[labels] + noise, 3, 1), labels


def test_the_share_of_missed_positions_is_bounded() -> None:
    cal = Dense("temps", class_axis=1).fit(*dense_examples(60, 0))
    missed = []
    for seed in range(1, 61):
        cal.certify(*dense_examples(20, 2 * seed))
        logits, labels = dense_examples(60, 2 * seed + 1)
        found = cal.predict_set(logits, coverage=0.9)
        inside = np.take_along_axis(found.members, labels[:, None], axis=1)[:, 0]
        missed.append(1.0 - inside.mean())
    assert found.members.shape == logits.shape
    assert found.sizes.shape == labels.shape
    assert np.mean(missed) <= 0.1 + 4.0 * np.std(missed) / 60**0.5
    assert found.guarantee.startswith(
        "Coverage of the positions of a new item at least 90%"
    )
    mask = labels == 0
    masked = cal.predict_set(logits, coverage=0.9, mask=mask)
    assert not np.moveaxis(masked.members, 1, -1)[~mask].any()
    one, two = cal.predict_set([logits[:10], logits[10:]], coverage=0.9)
    np.testing.assert_array_equal(
        np.concatenate([one.members, two.members]), found.members
    )
    assert "on 20 held-out items" in found.guarantee
    assert "weights" not in found.guarantee  # nobody gave any
    with pytest.raises(ValueError, match="no names by row"):
        found.labels(0)
    with pytest.raises(ValueError, match="got rows of the fit"):
        cal.certify(*dense_examples(60, 0))


def test_item_weights_are_those_of_risk_control() -> None:
    """The threshold by the definition: the mean share over items, with room for one
    more.
    """
    cal = Dense("temps").fit(*_last(dense_examples(60, 0)))
    logits, labels = _last(dense_examples(25, 9))
    noted = cal.certify(logits, labels).calibrator_.predictor_.held_out.conformity
    assert noted.n == 25 * 30
    threshold = cal.predict_set(logits, coverage=0.85).thresholds[0]
    truth = noted.proba.reshape(25, 30)

    def risk(limit: float) -> float:
        return float(((truth < limit).mean(axis=1).sum() + 1.0) / 26.0)

    assert risk(threshold) <= 0.15 + 1e-9 < risk(np.nextafter(threshold, 1.0))


def _last(pair: Any) -> Any:
    return np.moveaxis(pair[0], 1, -1), pair[1]


@pytest.mark.slow
def test_coverage_is_watched_at_any_time() -> None:
    alarms = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        alarms += (
            CoverageMonitor(0.9, delta=0.05).update(rng.random(2000) < 0.9).alarm
            is not None
        )
    assert alarms <= 20
    cal = (
        make("temps")
        .fit(*softmax_examples(300, seed=1))
        .certify(*softmax_examples(400, seed=2))
    )
    logits, labels = softmax_examples(3000, seed=3)
    found = cal.predict_set(logits, coverage=0.9)
    late = np.where(np.arange(3000) % 3 == 0, -1, labels)
    monitor = CoverageMonitor(0.9).update_sets(found, late)
    assert monitor.n == 2000
    assert monitor.alarm is None
    monitor.update_sets(found, (labels + 1) % 6)
    assert monitor.alarm is not None
    assert "less than the guaranteed 0.9, started no later than label 2," in str(
        monitor
    )
    for wrong in ([np.nan, 1.0], [0.3], [[True]]):
        with pytest.raises(
            ValueError, match=r"`covered` must be 1-D.*got array.*Pass `members"
        ):
            monitor.update(wrong)
    with pytest.raises(ValueError, match="`tolerance` must lie"):
        CoverageMonitor(0.9, tolerance=np.nan)


def test_comparisons_show_sets(tmp_path) -> None:
    found = hokical.compare(
        softmax_examples(500, seed=1),
        softmax_examples(1000, seed=2),
        ["uncalibrated", "temps"],
        coverage=0.9,
    )
    sets = found["temps"].sets
    assert sets.overall.n == 500
    assert abs(sets.overall.coverage - 0.9) < 0.07
    assert found.to_dict()["methods"][1]["sets"]["goal"] == 0.9
    found.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Prediction sets at 90%" in page
    assert f"{sets.overall.coverage:.1%}<small>" in page
    plain = hokical.compare(
        softmax_examples(500, seed=1), softmax_examples(300, seed=2), ["temps"]
    )
    assert plain["temps"].sets is None


def test_a_picture(cal, logits) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from hokical.plots import draw_sets

    found = cal.predict_set(logits, coverage=0.9)
    axes = draw_sets(found.members, softmax_examples(300, seed=3)[1], goal=0.9)
    assert axes.get_xlabel() == "classes in the set"


def test_streams_certify_with_groups() -> None:
    fit, (logits, labels) = softmax_examples(300, seed=1), softmax_examples(900, seed=2)
    groups = np.array(["a", "b", None], object)[np.arange(900) % 3]
    whole = make("temps").fit(*fit).certify(logits, labels, groups=groups)
    chunks = open_source(
        [(logits[k : k + 250], labels[k : k + 250]) for k in range(0, 900, 250)]
    )
    parts = certify(make("temps").fit(*fit), chunks, groups=groups)
    asked = {"coverage": 0.9, "by": "group", "groups": groups}
    one, other = (cal.predict_set(logits, **asked) for cal in (whole, parts))
    np.testing.assert_array_equal(one.members, other.members)
    assert one.guarantee == other.guarantee
    for wrong in (groups[:-1], np.append(groups, "c")):
        with pytest.raises(ValueError, match="`groups` must"):
            certify(make("temps").fit(*fit), chunks, groups=wrong)


def test_samples_of_many_batches_stay_bounded_and_fair() -> None:
    """Whatever the sizes of batches, sets after `fit` alone go by shares of each."""
    logits, labels = softmax_examples(9000, seed=1, spread=0.5)
    cal = hokical.Hoki(noise=hokical.stability.Gaussian(scale=1.0)).fit(
        logits[:3000], labels[:3000]
    )
    for first in range(3000, 9000, 500):
        rows = slice(first, first + 500)
        cal.partial_fit(logits[rows], labels[rows])
    sample = cal.predictor_.fit_record.conformity
    assert sample.n == 2048
    whole = (
        hokical.Hoki(noise=hokical.stability.Gaussian(scale=1.0))
        .fit(logits, labels)
        .predictor_.fit_record.conformity
    )
    proba = make("uncalibrated").fit(logits, labels).predict_proba(logits)
    truth = proba[np.arange(9000), labels]
    shares = [
        np.isin(sample.proba, truth[rows]).mean()
        for rows in (slice(3000), slice(3000, None))
    ]
    assert shares[0] == pytest.approx(1 / 3, abs=0.02)
    assert shares[1] == pytest.approx(2 / 3, abs=0.02)
    assert abs(np.quantile(sample.proba, 0.1) - np.quantile(whole.proba, 0.1)) < 0.02


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": np.array([np.nan])},
        {"threshold": np.array([[0.1]])},
        {"threshold": np.array([0.1]), "own_scores": "no"},
        {"threshold": np.array([0.1]), "allow_empty": 2},
        {"threshold": np.array([0.1]), "free_ranks": -1},
    ],
    ids=lambda wrong: list(wrong)[-1],
)
def test_a_rule_of_sets_checks_its_threshold_and_flags(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"`{list(wrong)[-1]}` must"):
        SetRule(TemperatureRule(1.0), "smallest", **wrong)


def test_every_kind_of_sets_has_the_same_default_coverage() -> None:
    kinds = (hokical.Calibrator, hokical.Dense, hokical.MultilabelCalibrator)
    found = {
        inspect.signature(kind.predict_set).parameters["coverage"].default
        for kind in kinds
    }
    assert found == {0.9}

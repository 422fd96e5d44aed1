"""Every entry point that takes data, with the same list of mistakes: answered rightly
or refused.

Each entry point gets the scores, labels, weights and groups of the same frame. A
mistake changes one of them; `WALK` says which entry points can make it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hokical
from hokical import (
    CalibratedClassifier,
    CalibrationMonitor,
    ConfidenceCalibrator,
    FitDataWarning,
    MultilabelCalibrator,
    make,
    streams,
)
from hokical.dense import Dense
from tests.conftest import grouped_examples

N = 400
NAMES = ("ant", "bee", "cow")
rng = np.random.default_rng(0)
SCORES = rng.normal(size=(2 * N, 3))
LABELS = np.argmax(SCORES + 0.7 * rng.gumbel(size=SCORES.shape), axis=1)
STATED = rng.uniform(0.05, 0.95, 2 * N)
RIGHT = rng.random(2 * N) < STATED
TAGS = rng.logistic(size=SCORES.shape) < SCORES
INDEX = [f"row {k}" for k in range(2 * N)]
FIT, NEW = slice(0, N), slice(N, 2 * N)
TEXTS = np.array(["north", "south"])[np.arange(2 * N) % 2]


def frame(values: Any, rows: slice = NEW, columns: Any = NAMES) -> Any:
    return pd.DataFrame(values[rows], columns=list(columns), index=INDEX[rows])


def series(values: Any, rows: slice = NEW) -> Any:
    return pd.Series(values[rows], index=INDEX[rows])


def fitted() -> Any:
    return make("temps").fit(frame(SCORES, FIT), LABELS[FIT], classes=NAMES)


def confidences() -> Any:
    return ConfidenceCalibrator().fit(STATED[FIT], RIGHT[FIT])


def tags() -> Any:
    return MultilabelCalibrator().fit(SCORES[FIT], TAGS[FIT])


def classifier() -> Any:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(frame(SCORES, FIT), np.array(NAMES)[LABELS[FIT]])
    return CalibratedClassifier(model, method="temps", cv="prefit")


def missed(proba: Any, labels: Any, threshold: float) -> Any:
    return (labels == 1) & (proba[:, 1] < threshold)


def tag_missed(proba: Any, labels: Any, threshold: float) -> Any:
    return ((proba < threshold) & (labels == 1)).mean(axis=1)


RISK: dict[str, Any] = {"risk": 0.5, "delta": 0.1}
Work = Callable[[Any, Any, Any, Any], Any]
#: Entry points of logits and labels: scores, labels, weights and groups of rows.
LOGITS: dict[str, Work] = {
    "fit": lambda x, y, w, g: make("temps").fit(x, y, w),
    "auto": lambda x, y, w, g: hokical.auto(x, y, w, groups=g),
    "certify": lambda x, y, w, g: fitted().certify(x, y, w, groups=g),
    "score": lambda x, y, w, g: fitted().score(x, y, w, groups=g),
    "control_risk": lambda x, y, w, g: fitted().control_risk(
        x, y, w, groups=g, loss=missed, risk=0.5
    ),
    "evaluate": lambda x, y, w, g: hokical.evaluate(fitted(), x, y, w, groups=g),
    "evaluate alone": lambda x, y, w, g: hokical.evaluate(None, x, y, w, groups=g),
    "from_validation": lambda x, y, w, g: CalibrationMonitor.from_validation(
        fitted(), x, y, groups=g
    ),
    "update_logits": lambda x, y, w, g: CalibrationMonitor(
        fitted(), groups=None if g is None else np.array(["north", "south"])
    ).update_logits(x, y, groups=g),
    "compare": lambda x, y, w, g: hokical.compare(
        (frame(SCORES, FIT), LABELS[FIT]), (x, y), ["temps"], groups=(None, g)
    ),
}
CONFIDENCES: dict[str, Work] = {
    "confidence fit": lambda x, y, w, g: ConfidenceCalibrator().fit(x, y, w, groups=g),
    "calibrate_confidence": lambda x, y, w, g: hokical.calibrate_confidence(
        x, y, w, groups=g
    ),
    "confidence certify": lambda x, y, w, g: confidences().certify(x, y, w, groups=g),
    "confidence evaluate": lambda x, y, w, g: hokical.evaluate(
        confidences(), x, y, w, groups=g
    ),
    "confidence from_validation": lambda x, y, w, g: CalibrationMonitor.from_validation(
        confidences(), x, y, groups=g
    ),
}
SEVERAL: dict[str, Work] = {
    "tags fit": lambda x, y, w, g: MultilabelCalibrator().fit(x, y, w),
    "tags certify": lambda x, y, w, g: tags().certify(x, y, w, groups=g),
    "tags control_risk": lambda x, y, w, g: tags().control_risk(
        x, y, w, loss=tag_missed, risk=0.9
    ),
    "tags evaluate": lambda x, y, w, g: hokical.evaluate(tags(), x, y),
}
SKLEARN: dict[str, Work] = {
    "classifier fit": lambda x, y, w, g: classifier().fit(x, y, w),
    "classifier certify": lambda x, y, w, g: (
        classifier()
        .fit(frame(SCORES, FIT), np.array(NAMES)[LABELS[FIT]])
        .certify(x, y, w, groups=g)
    ),
}


def in_chunks(x: Any, y: Any = None, w: Any = None) -> Any:
    """Two chunks of rows, the first of the same length whatever is beside them."""
    cuts = slice(0, 150), slice(150, None)
    return [
        tuple(
            each.iloc[cut] if hasattr(each, "iloc") else each[cut]
            for each in (x, y, w)
            if each is not None
        )
        for cut in cuts
    ]


#: The same with a source of chunks, and with a frame that is opened as one.
SOURCES: dict[str, Work] = {
    "streams.fit": lambda x, y, w, g: streams.fit(make("temps"), in_chunks(x, y, w)),
    "streams.partial_fit": lambda x, y, w, g: streams.partial_fit(
        hokical.Hoki().fit(frame(SCORES, FIT), LABELS[FIT], classes=NAMES),
        in_chunks(x, y, w),
    ),
    "streams.certify": lambda x, y, w, g: streams.certify(
        fitted(), in_chunks(x, y, w), groups=g
    ),
    "evaluate chunks": lambda x, y, w, g: hokical.evaluate(
        fitted(), in_chunks(x, y, w)
    ),
    "open_source": lambda x, y, w, g: streams.certify(
        fitted(), streams.open_source(x, y, w, fitted_by=fitted()), groups=g
    ),
    "evaluate source": lambda x, y, w, g: hokical.evaluate(
        fitted(), streams.open_source(x, y, w, fitted_by=fitted())
    ),
}
KINDS: list[tuple[dict[str, Work], Any, Any]] = [
    (LOGITS, frame(SCORES), series(LABELS)),
    (SOURCES, frame(SCORES), series(LABELS)),
    (CONFIDENCES, series(STATED), series(RIGHT)),
    (SEVERAL, frame(SCORES), frame(TAGS)),
    (SKLEARN, frame(SCORES), series(np.array(NAMES)[LABELS])),
]
#: Who takes no weights, or no groups.
NO_WEIGHTS = {
    "from_validation",
    "confidence from_validation",
    "update_logits",
    "compare",
    "tags evaluate",
}
NO_GROUPS = {
    "fit",
    "tags fit",
    "tags control_risk",
    "tags evaluate",
    "classifier fit",
    "streams.fit",
    "streams.partial_fit",
    "evaluate chunks",
    "evaluate source",
}
#: Groups of all rows of a source are one array, which has no order to compare.
SOURCES_BY_PLACE = {"streams.certify", "open_source"}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def shuffled(part: Any) -> Any:
    """The same rows in another order, within the first 150 and within the others."""
    order = np.random.default_rng(5)
    places = order.permutation(150), 150 + order.permutation(len(part) - 150)
    return part.iloc[np.concatenate(places)]


def walk() -> Iterator[Any]:
    for works, x, y in KINDS:
        for name, work in works.items():
            w, g = series(np.ones(2 * N)), series(TEXTS)
            mistakes: dict[str, tuple[Any, Any, Any, Any]] = {
                "labels in another order": (x, shuffled(y), None, None),
                "too few labels": (x, y.iloc[:-1], None, None),
                "too many labels": (x.iloc[:-1], y, None, None),
            }
            if name not in NO_WEIGHTS:
                mistakes["weights in another order"] = (x, y, shuffled(w), None)
                mistakes["groups as weights"] = (x, y, g.to_numpy(), None)
                mistakes["a negative weight"] = (x, y, -w.to_numpy(), None)
            if name not in NO_GROUPS:
                if name not in SOURCES_BY_PLACE:
                    mistakes["groups in another order"] = (x, y, None, shuffled(g))
                mistakes["too few groups"] = (x, y, None, g.to_numpy()[:-1])
            if works in (LOGITS, SOURCES):
                mistakes["a label beyond the classes"] = (x, y + 1, None, None)
                mistakes["unknown names"] = (
                    x,
                    series(np.array(["x", "y", "z"])[LABELS]),
                    None,
                    None,
                )
                mistakes["a score that is NaN"] = (x.mask(x > 2.0), y, None, None)
            for mistake, rows in mistakes.items():
                yield pytest.param(work, rows, id=f"{name}: {mistake}")


@pytest.mark.parametrize(("work", "rows"), list(walk()))
def test_mistakes_are_refused(work: Work, rows: tuple[Any, Any, Any, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=r"`|samples"):
        work(*rows)


@pytest.mark.parametrize(
    ("work", "rows"),
    [
        pytest.param(w, (x, y), id=name)
        for works, x, y in KINDS
        for name, w in works.items()
    ],
)
def test_the_same_rows_are_taken_where_nothing_is_wrong(work: Work, rows: Any) -> None:
    assert work(*rows, None, None) is not None


#: Entry points that know a fit, and so its columns and classes.
FITTED = {
    name: work
    for name, work in (LOGITS | SOURCES).items()
    if name not in ("fit", "auto", "compare", "evaluate alone", "streams.fit")
}


@pytest.mark.parametrize("name", FITTED)
def test_columns_are_put_in_the_order_of_the_fit(name: str) -> None:
    x, y = frame(SCORES), series(LABELS)
    one, two = (
        FITTED[name](given, y, None, None) for given in (x, x[["cow", "ant", "bee"]])
    )
    if isinstance(one, float):
        assert one == two
    elif hasattr(one, "score"):
        assert not hasattr(one, "before") or one.score("brier") == two.score("brier")
    with pytest.raises(ValueError, match="columns used in `fit`"):
        FITTED[name](frame(SCORES, columns=("ant", "bee", "dog")), y, None, None)


@pytest.mark.parametrize("name", ["fit", "auto", "streams.fit", *FITTED])
def test_labels_may_be_names_of_the_classes(name: str) -> None:
    found = (LOGITS | SOURCES)[name](
        frame(SCORES), series(np.array(NAMES)[LABELS]), None, None
    )
    assert getattr(found, "class_names", NAMES) == NAMES


@pytest.mark.parametrize(
    "name", ["fit", "auto", "certify", "score", "evaluate", "control_risk"]
)
def test_labels_that_contradict_the_scores_are_told_of(name: str) -> None:
    wrong = (LABELS + 1) % 3
    with pytest.warns(
        FitDataWarning, match="contradict the scores: .* agree .* by chance"
    ):
        LOGITS[name](frame(SCORES), series(wrong), None, None)


def test_an_unusual_class_frequency_is_no_contradiction() -> None:
    """A classifier that always says 0, where most labels are 1."""
    logits = np.stack([np.ones(500), np.zeros(500)], axis=1) + 0.01 * rng.normal(
        size=(500, 2)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "`labels` (agree|show)|.* did not converge")
        make("temps").fit(logits, (np.arange(500) % 10 > 0).astype(int))


def test_names_of_the_last_fit_are_forgotten() -> None:
    cal = fitted()
    assert cal.class_names == NAMES
    logits = np.random.default_rng(1).normal(size=(200, 5))
    labels = np.argmax(
        logits + np.random.default_rng(2).gumbel(size=logits.shape), axis=1
    )
    cal.fit(logits, labels)
    assert cal.class_names == ()
    assert cal.schema_.columns == ()
    assert cal.predict_set(logits, coverage=0.9).labels(0)


def test_detection_names_the_class() -> None:
    cal = fitted().certify(frame(SCORES), LABELS[NEW])
    words = cal.detect(SCORES[NEW], 1).guarantee
    assert "class bee" in words
    assert words == cal.detect(SCORES[NEW], "bee").guarantee


def test_support_takes_groups() -> None:
    logits, labels, site = grouped_examples(3000, seed=0)
    cal = hokical.auto(logits, labels, groups=site)
    assert cal.predict_support(logits, groups=site).all()
    with pytest.raises(ValueError, match="`groups` must be given"):
        cal.predict_support(logits)


def several() -> Any:
    """Rows of two groups, of which the second is predicted far worse."""
    scores = np.random.default_rng(3).normal(-1.0, 2.0, size=(4000, 4))
    noise = np.random.default_rng(4).logistic(size=scores.shape)
    site = np.arange(4000) % 2
    return scores, noise < np.where(site[:, None], 0.3, 1.0) * scores, site


def test_several_labels_are_certified_by_group_and_with_weights() -> None:
    scores, truth, site = several()
    cal = MultilabelCalibrator().fit(scores[:1000], truth[:1000])
    known, new = slice(1000, 2500), slice(2500, 4000)
    cal.certify(scores[known], truth[known], groups={"site": site[known]})
    options: dict[str, Any] = {
        "coverage": 0.9,
        "by": "group",
        "groups": {"site": site[new]},
    }
    found = cal.predict_set(scores[new], **options)
    wrong = ((found.inside & ~truth[new]) | (found.outside & truth[new])).any(axis=1)
    for place in (0, 1):
        assert wrong[site[new] == place].mean() < 0.14
    assert "For each group" in found.guarantee
    # Only the worse group is likely in the future: then its thresholds are everyone's.
    weighted = MultilabelCalibrator().fit(scores[:1000], truth[:1000])
    weighted.certify(scores[known], truth[known], 1.0 * site[known])
    own = MultilabelCalibrator().fit(scores[:1000], truth[:1000])
    own.certify(scores[known][site[known] == 1], truth[known][site[known] == 1])
    for by in ("row", "label"):
        one, two = (
            each.predict_set(scores, coverage=0.9, by=by) for each in (weighted, own)
        )
        np.testing.assert_allclose(one.thresholds, two.thresholds, atol=1e-6)
    with pytest.raises(ValueError, match="`delta` needs examples that all count alike"):
        MultilabelCalibrator().fit(scores[:1000], truth[:1000]).certify(
            scores[known], truth[known], 1.0 + site[known]
        ).predict_set(scores, coverage=0.9, delta=0.1)


def test_certified_groups_of_several_labels_are_saved(tmp_path: Any) -> None:
    scores, truth, site = several()
    cal = MultilabelCalibrator().fit(scores[:1000], truth[:1000])
    cal.certify(scores[1000:], truth[1000:], 1.0 + site[1000:], groups=site[1000:])
    cal.save(tmp_path / "cal.json")
    twin = hokical.load(tmp_path / "cal.json")
    options: dict[str, Any] = {"coverage": 0.9, "by": "group", "groups": site[:50]}
    one, two = (each.predict_set(scores[:50], **options) for each in (cal, twin))
    np.testing.assert_array_equal(one.possible, two.possible)


def test_a_model_of_several_labels_uses_weights_and_groups() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multioutput import MultiOutputClassifier

    scores, truth, site = several()
    model = MultiOutputClassifier(LogisticRegression()).fit(
        scores[:800], truth[:800].astype(int)
    )
    cal = CalibratedClassifier(model, cv="prefit").fit(
        scores[800:1600], truth[800:1600].astype(int)
    )
    cal.certify(
        scores[1600:], truth[1600:].astype(int), 1.0 * site[1600:], groups=site[1600:]
    )
    noted = cal.calibrator_.held_out_
    assert noted.worst.size == 1200
    assert noted.names.names == ((1,),)


def table(**more: Any) -> Any:
    names = {f"logit_{name}": SCORES[:, k] for k, name in enumerate(NAMES)}
    return pd.DataFrame({"amount": 1000.0 * STATED, **names, "truth": LABELS, **more})


def test_other_columns_of_a_table_are_no_classes() -> None:
    given = table()
    with pytest.warns(
        FitDataWarning, match="not used: amount. Scores are in logit_ant"
    ):
        cal = hokical.auto(given, labels="truth")
    assert cal.class_names == NAMES
    assert cal.n_classes_ == 3
    plain = hokical.auto(SCORES, LABELS)
    np.testing.assert_array_equal(
        cal.predict_proba(SCORES), plain.predict_proba(SCORES)
    )
    turned = given[["logit_cow", "logit_ant", "logit_bee"]]
    np.testing.assert_array_equal(
        cal.predict_proba(turned), plain.predict_proba(SCORES)
    )


def test_columns_named_like_the_labels_are_classes() -> None:
    given = table(truth=np.array(NAMES)[LABELS]).rename(
        columns=lambda n: n.removeprefix("logit_")
    )
    with pytest.warns(FitDataWarning, match="not used: amount"):
        cal = hokical.auto(given, "truth")
    assert cal.class_names == NAMES
    stream = hokical.streams.fit(
        make("auto"), hokical.streams.open_source(given, label_column="truth")
    )
    np.testing.assert_allclose(
        stream.predict_proba(SCORES), cal.predict_proba(SCORES), atol=1e-9
    )


def test_columns_without_a_meaning_must_be_named() -> None:
    given = table().rename(
        columns=dict(zip([f"logit_{n}" for n in NAMES], "abc", strict=True))
    )
    with pytest.raises(
        ValueError, match="Name the scores: `score_columns` amount,a,b,c"
    ):
        hokical.auto(given, "truth")
    cal = hokical.auto(given, "truth", score_columns=["a", "b", "c"], classes=NAMES)
    assert cal.class_names == NAMES
    assert cal.schema_.columns == ("a", "b", "c")


def test_probabilities_of_a_table_become_logits() -> None:
    proba = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)
    names = {f"prob_{name}": proba[:, k] for k, name in enumerate(NAMES)}
    given = pd.DataFrame({**names, "truth": LABELS})
    cal = hokical.auto(given, "truth")
    plain = hokical.auto(hokical.from_probabilities(proba), LABELS)
    expected = plain.predict_proba(hokical.from_probabilities(proba))
    np.testing.assert_allclose(
        cal.predict_proba(hokical.from_probabilities(proba)), expected
    )
    np.testing.assert_allclose(cal.predict_proba(given[[*names]]), expected)
    with pytest.raises(ValueError, match="hold probabilities"):
        fitted().predict_proba(given[[*names]])


def test_rows_without_labels_have_groups_and_weights_in_their_order() -> None:
    cal, x = fitted(), frame(SCORES)
    for name, part in (
        ("groups", series(TEXTS)),
        ("sample_weight", series(np.ones(2 * N))),
    ):
        with pytest.raises(
            ValueError, match=f"`{name}` must have its rows in the order"
        ):
            cal.estimate_shift(x, **{name: shuffled(part)})


def signatures() -> Iterator[Any]:
    kinds = {type(make(name)) for name in ("auto", *hokical.calibrators.method_names())}
    kinds |= {
        hokical.Calibrator,
        ConfidenceCalibrator,
        MultilabelCalibrator,
        CalibratedClassifier,
    }
    names = ("fit", "partial_fit", "certify", "score", "control_risk")
    found = {getattr(kind, name, None) for kind in (*kinds, Dense) for name in names}
    found |= {hokical.auto, hokical.calibrate_confidence, hokical.evaluate}
    for each in sorted(found - {None}, key=repr):
        yield pytest.param(each, id=each.__qualname__)


@pytest.mark.parametrize("work", list(signatures()))
def test_arguments_are_in_one_order(work: Any) -> None:
    """Scores, labels and weights by place, and all else, groups first of all, by
    name.
    """
    given = inspect.signature(work).parameters.values()
    places = [each for each in given if each.kind is each.POSITIONAL_OR_KEYWORD]
    places = [each for each in places if each.name not in ("self", "cal")]
    assert [each.name for each in places][2:] == ["sample_weight"]
    assert places[2].default is None
    by_name = inspect.signature(work).parameters.get("groups")
    assert by_name is None or by_name.kind is by_name.KEYWORD_ONLY


def test_codes_of_groups_in_the_place_of_weights_are_told_of() -> None:
    """The groups were the third argument until 0.4."""
    for work in (ConfidenceCalibrator().fit, hokical.calibrate_confidence):
        for codes in (np.arange(N) % 3, np.arange(N) % 2 == 0):
            with pytest.warns(FitDataWarning, match="groups by name"):
                work(STATED[FIT], RIGHT[FIT], codes)
        with pytest.raises(TypeError, match="groups by name"):
            work(STATED[FIT], RIGHT[FIT], TEXTS[FIT])
    weights = 1.0 + np.arange(N) % 3
    one = ConfidenceCalibrator().fit(STATED[FIT], RIGHT[FIT], weights)
    assert (one.predict(STATED) != confidences().predict(STATED)).any()


#: Maps of 20 positions each, and entry points that take them: logits, labels and
#: weights.
MAP_SHAPE = (2 * N // 20, 4, 5)
MAPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "fit": lambda x, y, w: Dense("temps").fit(x, y, w),
    "fit batches": lambda x, y, w: Dense("temps").fit(in_batches(x, y, w)),
    "certify": lambda x, y, w: dense().certify(x, y, w),
    "certify batches": lambda x, y, w: dense().certify(in_batches(x, y, w)),
    "score": lambda x, y, w: dense().score(x, y, w),
    "evaluate": lambda x, y, w: hokical.evaluate(dense(), x, y, w),
    "control_risk": lambda x, y, w: dense().control_risk(
        x, y, w, loss=map_missed, risk=0.5
    ),
}


def in_batches(x: Any, y: Any, w: Any) -> Any:
    cuts = slice(0, 7), slice(7, None)
    return [tuple(each[cut] for each in (x, y, w) if each is not None) for cut in cuts]


def dense() -> Dense:
    return Dense(make("temps").fit(1.1 * SCORES[FIT], LABELS[FIT]))


def map_missed(proba: Any, labels: Any, threshold: float) -> Any:
    return ((proba[..., 1] < threshold) & (labels == 1)).mean(axis=(1, 2))


def map_mistakes() -> dict[str, tuple[Any, Any, Any]]:
    x, y = SCORES.reshape(*MAP_SHAPE, 3), LABELS.reshape(MAP_SHAPE)
    w = np.ones(len(x))
    bad = x.copy()
    bad[3, 1, 2, 0] = np.nan
    return {
        "too few labels": (x, y[:-1], None),
        "too many labels": (x[:-1], y, None),
        "labels of another shape": (x, y[:, :3], None),
        "labels that are no classes": (x, y + 0.5, None),
        "a label beyond the classes": (x, y + 1, None),
        "names": (x, np.array(NAMES)[y], None),
        "a score that is NaN": (bad, y, None),
        "a negative weight": (x, y, -w),
        "groups as weights": (x, y, np.array(["a", "b"])[np.arange(len(x)) % 2]),
        "too few weights": (x, y, w[:-1]),
    }


@pytest.mark.parametrize("mistake", map_mistakes())
@pytest.mark.parametrize("name", MAPS)
def test_mistakes_in_maps_are_refused(name: str, mistake: str) -> None:
    with pytest.raises((ValueError, TypeError), match="`"):
        MAPS[name](*map_mistakes()[mistake])


@pytest.mark.parametrize("name", MAPS)
def test_maps_are_taken_where_nothing_is_wrong(name: str) -> None:
    rows = (
        SCORES.reshape(*MAP_SHAPE, 3),
        LABELS.reshape(MAP_SHAPE),
        np.ones(MAP_SHAPE[0]),
    )
    assert MAPS[name](*rows) is not None

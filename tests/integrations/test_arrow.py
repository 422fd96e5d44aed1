"""Predictions in Arrow tables: the same bits, in every engine that has them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import hokical
from hokical import AutoCalibrator, make
from hokical.integrations.arrow import BatchPredictor
from hokical.streams import certify, fit
from tests.conftest import synthetic_logits

pa = pytest.importorskip("pyarrow")
LOGITS, LABELS = synthetic_logits(600, 3, seed=5)
NEW = synthetic_logits(200, 3, seed=6)[0]
Z = ["z0", "z1", "z2"]


@pytest.fixture(scope="module")
def cal() -> Any:
    return (
        make("temps")
        .fit(LOGITS[:300], LABELS[:300])
        .certify(LOGITS[300:], LABELS[300:])
    )


def table(logits: np.ndarray = NEW) -> Any:
    return pa.table(
        {"id": np.arange(len(logits))} | dict(zip(Z, logits.T, strict=True))
    )


def test_every_output_is_that_of_the_calibrator(cal: Any) -> None:
    names = ("label", "confidence", "proba", "set", "abstain", "interval")
    predict = BatchPredictor(cal, logits=Z, outputs=names, coverage=0.9, risk=0.2)
    found = predict(table())
    assert found.column_names == ["id", *Z, *names]
    columns = {name: found.column(name).to_pylist() for name in names}
    assert columns["label"] == cal.predict(NEW).tolist()
    assert columns["confidence"] == cal.predict_confidence(NEW).tolist()
    assert columns["proba"] == cal.predict_proba(NEW).tolist()
    sets = cal.predict_set(NEW, coverage=0.9)
    assert columns["set"] == [sets.labels(row) for row in range(len(NEW))]
    assert (
        columns["abstain"] == (~cal.predict_or_abstain(NEW, risk=0.2).accepted).tolist()
    )
    assert columns["interval"] == cal.predict_interval(NEW).tolist()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_batches_and_lists_give_the_same_bits(cal: Any, kind: Any) -> None:
    rows = NEW.astype(kind)
    lists = pa.table({"logits": list(rows)})
    predict = BatchPredictor(cal, logits="logits", outputs=("confidence",))
    batches = lists.to_batches(max_chunksize=33)
    found = pa.Table.from_batches(predict.batches([batches[0].slice(0, 0), *batches]))
    expected = cal.predict_confidence(rows)
    assert found.column("confidence").to_pylist() == expected.tolist()
    assert predict(batches[0]).schema == predict(lists).schema
    assert predict(lists.slice(0, 0)).schema == predict(lists).schema


def test_it_is_pickled_without_examples(cal: Any) -> None:
    before = len(pickle.dumps(cal))
    predict = BatchPredictor(cal, logits=Z)
    packed = pickle.dumps(predict)
    assert len(packed) < before / 10
    again = pickle.loads(packed)
    assert again(table()).equals(predict(table()))
    assert cal.predict_set(NEW, coverage=0.9).sizes.shape == (
        200,
    )  # the calibrator keeps its own


def test_names_and_groups() -> None:
    site = np.where(np.arange(600) % 2, "a", "b")
    scores = LOGITS * np.where(site == "a", 3.0, 1.0)[:, None]
    classes = ["cat", "dog", "bird"]
    cal = hokical.auto(scores, LABELS, groups={"site": site}, classes=classes)
    predict = BatchPredictor(
        cal, logits=Z, groups=["site"] if cal.groups_ else [], prefix="calibrated_"
    )
    found = predict(table(scores).append_column("site", pa.array(site)))
    groups = {"groups": {"site": site}} if cal.groups_ else {}
    names = np.array(classes)[cal.predict(scores, **groups)]
    assert found.column("calibrated_label").to_pylist() == names.tolist()


def test_bad_arguments_are_named(cal: Any) -> None:
    with pytest.raises(
        ValueError, match="`coverage` must be given for the output 'set'"
    ):
        BatchPredictor(cal, logits=Z, outputs=("set",))
    with pytest.raises(ValueError, match=r"`outputs` must be of .*; got 'probability'"):
        BatchPredictor(cal, logits=Z, outputs=("probability",))  # type: ignore[arg-type]
    named = table().append_column("label", pa.array(np.zeros(200, int)))
    with pytest.raises(ValueError, match=r"must not have a column `label`.*`prefix`"):
        BatchPredictor(cal, logits=Z)(named)
    for names in ({"logits": "nope"}, {"logits": Z, "groups": ["nope"]}):
        with pytest.raises(
            ValueError, match=r"must have the column `nope`; got \['.*Name the col"
        ):
            BatchPredictor(cal, **names)(table())


def test_frames_of_other_libraries(cal: Any) -> None:
    predict, expected = (
        BatchPredictor(cal, logits=Z),
        cal.predict_confidence(NEW).tolist(),
    )
    frame = pytest.importorskip("pandas").DataFrame(NEW, columns=Z)
    assert predict(frame).column("confidence").to_pylist() == expected
    labelled = frame.assign(label=np.arange(len(frame)) % 3)
    assert fit(AutoCalibrator(), labelled).n_classes_ == 3
    assert (
        certify(make("temps").fit(LOGITS, LABELS), labelled).predictor_.held_out
        is not None
    )


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_polars(cal: Any, engine: Any) -> None:
    polars = pytest.importorskip("polars")
    predict, expected = (
        BatchPredictor(cal, logits=Z),
        cal.predict_confidence(NEW).tolist(),
    )
    frame = polars.DataFrame(NEW, schema=Z)
    assert polars.from_arrow(predict(frame))["confidence"].to_list() == expected
    schema = {**frame.schema, **polars.from_arrow(predict.schema.empty_table()).schema}
    lazy = frame.lazy().map_batches(
        lambda part: polars.from_arrow(predict(part)), schema=schema, streamable=True
    )
    assert lazy.collect(engine=engine)["confidence"].to_list() == expected


def test_duckdb(cal: Any) -> None:
    duckdb = pytest.importorskip("duckdb")
    rows = table()
    found = BatchPredictor(cal, logits=Z)(
        duckdb.sql("select * from rows order by id").arrow()
    )
    assert (
        found.column("confidence").to_pylist() == cal.predict_confidence(NEW).tolist()
    )
    assert rows.num_rows == 200


def test_spark_schema(cal: Any) -> None:
    types = pytest.importorskip("pyspark.sql.types")
    schema = types.StructType([types.StructField("id", types.LongType())])
    found = BatchPredictor(cal, logits=Z).spark_schema(schema)
    assert found.fieldNames() == ["id", "label", "confidence"]


NAMES = ("cat", "dog", "owl")


def named_table() -> Any:
    return pa.table({"id": np.arange(len(NEW))} | dict(zip(NAMES, NEW.T, strict=True)))


def test_columns_are_matched_by_name_or_refused() -> None:
    cal = make("temps").fit(LOGITS, LABELS, classes=NAMES)
    turned = BatchPredictor(cal, logits=["owl", "cat", "dog"])
    expected = np.array(NAMES)[cal.predict(NEW)].tolist()
    assert turned(named_table()).column("label").to_pylist() == expected
    assert (
        BatchPredictor(cal, logits=Z)(table()).column("label").to_pylist() == expected
    )
    with pytest.raises(ValueError, match="missing: owl; not in the fit: pig"):
        BatchPredictor(cal, logits=["cat", "dog", "pig"])
    frame = pytest.importorskip("pandas").DataFrame(LOGITS, columns=list(NAMES))
    of_frame = make("temps").fit(frame, LABELS)
    found = BatchPredictor(of_frame, logits=["owl", "cat", "dog"])(named_table())
    assert found.column("label").to_pylist() == cal.predict(NEW).tolist()
    with pytest.raises(ValueError, match="the columns used in `fit`, cat, dog, owl"):
        BatchPredictor(of_frame, logits=Z)


def test_probabilities_of_the_fit_are_converted() -> None:
    def columns(logits: Any) -> dict[str, Any]:
        proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        return {f"prob_{name}": proba[:, k] for k, name in enumerate(NAMES)}

    cal = hokical.auto(pa.table(columns(LOGITS) | {"y": LABELS}), "y")
    new = columns(NEW)
    logits = hokical.from_probabilities(np.stack([*new.values()], axis=1))
    found = (
        BatchPredictor(cal, logits=[*new])(pa.table(new))
        .column("confidence")
        .to_numpy()
    )
    np.testing.assert_allclose(found, cal.predict_confidence(logits))


def test_confidences_and_several_labels() -> None:
    rng = np.random.default_rng(0)
    stated = rng.random(600)
    cal = hokical.ConfidenceCalibrator().fit(stated, rng.random(600) < stated**2)
    rows = pa.table({"stated": stated[:50]})
    found = BatchPredictor(cal, logits="stated")(rows)
    assert found.column_names == ["stated", "confidence"]
    assert found.column("confidence").to_pylist() == cal.predict(stated[:50]).tolist()
    with pytest.raises(
        ValueError, match=r"`outputs` must be of \['confidence', 'abstain'\]"
    ):
        BatchPredictor(cal, logits="stated", outputs=("proba",))
    tags = hokical.MultilabelCalibrator().fit(
        LOGITS, rng.logistic(size=LOGITS.shape) < LOGITS
    )
    tags.certify(NEW, rng.logistic(size=NEW.shape) < NEW)
    outputs: Any = ("label", "proba", "set")
    found = BatchPredictor(tags, logits=Z, outputs=outputs, coverage=0.8)(table())
    kept = [np.flatnonzero(row).tolist() for row in tags.predict(NEW)]
    assert found.column("label").to_pylist() == kept
    assert found.column("proba").to_pylist() == tags.predict_proba(NEW).tolist()
    sets = tags.predict_set(NEW, coverage=0.8).possible
    assert found.column("set").to_pylist() == [
        np.flatnonzero(row).tolist() for row in sets
    ]
    assert len(pickle.dumps(BatchPredictor(tags, logits=Z))) < 20_000


def test_a_classifier_of_scikit_learn() -> None:
    linear = pytest.importorskip("sklearn.linear_model").LogisticRegression
    pandas = pytest.importorskip("pandas")
    frame, words = pandas.DataFrame(LOGITS, columns=Z), np.array(NAMES)[LABELS]
    for X, turned in ((frame, Z[::-1]), (LOGITS, Z)):
        model = hokical.CalibratedClassifier(
            linear(), method="temps", ensemble=False
        ).fit(X, words)
        found = BatchPredictor(
            model, logits=turned, outputs=("label", "confidence", "proba")
        )(table())
        new = pandas.DataFrame(NEW, columns=Z) if X is frame else NEW
        assert found.column("label").to_pylist() == model.predict(new).tolist()
        assert (
            found.column("confidence").to_pylist()
            == model.predict_confidence(new).tolist()
        )
        assert found.column("proba").to_pylist() == model.predict_proba(new).tolist()
    with pytest.raises(TypeError, match="`calibrator` must be a fitted calibrator"):
        BatchPredictor(linear(), logits=Z)


@pytest.mark.parametrize("as_lists", [False, True])
def test_rows_without_a_score(cal: Any, as_lists: bool) -> None:
    holes = NEW.copy()
    holes[[3, 7], 1] = np.nan
    rows, names = table(holes), Z
    if as_lists:
        rows, names = (
            pa.table({"id": np.arange(len(NEW)), "logits": holes.tolist()}),
            ["logits"],
        )
    with pytest.raises(ValueError, match=r"got none in row 3 \(id 3\), and 1 others"):
        BatchPredictor(cal, logits=names)(rows)
    outputs: Any = ("label", "confidence", "proba")
    found = BatchPredictor(cal, logits=names, outputs=outputs, missing="null")(rows)
    there = np.setdiff1d(np.arange(len(NEW)), [3, 7])
    for name in outputs:
        column = found.column(name).to_pylist()
        assert [k for k, value in enumerate(column) if value is None] == [3, 7]
    confidence = np.array(found.column("confidence").to_pylist(), float)[there]
    np.testing.assert_array_equal(confidence, cal.predict_confidence(NEW[there]))
    nothing = BatchPredictor(cal, logits=names, missing="null")(rows.slice(3, 1))
    assert nothing.column("label").to_pylist() == [None]

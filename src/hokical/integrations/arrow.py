"""Predictions as new columns of Arrow tables (extra `parquet`): Spark, Ray, Polars, DuckDB."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy, deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from hokical._core.arrays import AnyArray
from hokical._core.checks import check_choice
from hokical._core.lazy import import_optional
from hokical._core.reading import first_true, order_names, to_column
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.confidence import ConfidenceCalibrator
from hokical.calibrators.multilabel import MultilabelCalibrator
from hokical.guarantees.calibration_data import CalibrationData
from hokical.io.examples import is_id
from hokical.io.tables import to_scores

__all__ = ["BatchPredictor"]

Column = Literal["label", "confidence", "proba", "set", "abstain", "interval"]
#: Outputs that rest on examples which the calibrator has to keep.
_GUARANTEED = ("set", "abstain", "interval")
#: What calibrators of one confidence per row, and of several labels, can add; the first by default.
_OF_CONFIDENCE, _OF_LABELS = ("confidence", "abstain"), ("label", "proba", "set")
_TABLE = Path("Arrow table")


class BatchPredictor:
    """Append predictions to Arrow tables and record batches, in any engine that has them.

    It can be pickled, and holds no calibration examples unless an output needs what they prove.
    Predictions are those of the calibrator's methods, to the bit.

    Parameters
    ----------
    calibrator : Calibrator, ConfidenceCalibrator, MultilabelCalibrator or CalibratedClassifier
        Fitted or loaded.
    logits : str or list of str
        The column that holds lists of logits, or the columns of the logits: in any order where the
        calibrator knows their names or those of the classes, else class 0 first. The confidence, or
        its signals; the scores of several labels; the features of a classifier.
    outputs : tuple of {"label", "confidence", "proba", "set", "abstain", "interval"}
        Columns to append: `label` by its name where the calibrator knows names; `proba`, a list
        over the classes; `set`, a list of labels; `abstain`, whether the label is not to be used;
        `interval`, a list of two numbers for the accuracy. By default label and confidence; of a
        confidence there are `confidence` and `abstain`; of several labels `label`, a list of those
        that are predicted, `proba`, and `set`, those that are not excluded.
    coverage, risk, delta : float, optional
        `coverage` of `predict_set`, `risk` of `predict_or_abstain`, and `delta` of both and of
        `predict_interval`.
    groups : list of str
        Columns with the groups of rows, for a calibrator that learned from them.
    prefix : str
        What the names of the new columns begin with.
    missing : {"error", "null"}
        Rows without a score are refused, by their id if the table has one, or get nulls.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from hokical import make
    >>> cal = make("uncalibrated").fit(np.eye(2), [0, 1])
    >>> predict = BatchPredictor(cal, logits=["z0", "z1"])
    >>> predict(pa.table({"z0": [0.0, 2.0], "z1": [1.0, 0.0]})).column("label").to_pylist()
    [1, 0]
    """

    def __init__(
        self,
        calibrator: Any,
        *,
        logits: str | Sequence[str],
        outputs: Sequence[Column] | None = None,
        coverage: float | None = None,
        risk: float | None = None,
        delta: float | None = None,
        groups: Sequence[str] = (),
        prefix: str = "",
        missing: Literal["error", "null"] = "error",
    ) -> None:
        self._of = _kind(calibrator)
        possible = {"confidence": _OF_CONFIDENCE, "labels": _OF_LABELS}.get(
            self._of, get_args(Column)
        )
        outputs = possible[: 1 if self._of == "confidence" else 2] if outputs is None else outputs
        for name in outputs:
            if name not in possible:
                raise ValueError(f"`outputs` must be of {list(possible)}; got {name!r}.")
        check_choice("missing", missing, Literal["error", "null"])
        for name, option, value in (("set", "coverage", coverage), ("abstain", "risk", risk)):
            if name in outputs and value is None:
                raise ValueError(f"`{option}` must be given for the output {name!r}; got None.")
        self.calibrator = deepcopy(calibrator)
        if not set(_GUARANTEED) & set(outputs):
            _forget_examples(self.calibrator)
        names = (logits,) if isinstance(logits, str) else tuple(logits)
        if len(names) > 1:
            columns = getattr(calibrator, "feature_names_in_", getattr(calibrator, "_columns", ()))
            known = getattr(calibrator, "class_names", ())
            names = tuple(names[k] for k in order_names(names, [*map(str, columns)], known))
        self.logits = names
        self.missing = missing
        self.outputs, self.groups, self.prefix = tuple(outputs), tuple(groups), prefix
        self.coverage: Any = coverage
        self.risk: Any = risk
        self.delta: dict[str, Any] = {} if delta is None else {"delta": delta}

    def __call__(self, table: Any) -> Any:
        """The table or record batch with the new columns; other Arrow data become a table."""
        arrow = import_optional("pyarrow", extra="parquet")
        batch = isinstance(table, arrow.RecordBatch)
        rows = arrow.Table.from_batches([table]) if batch else arrow.table(table)
        for field, column in zip(self.schema, self._predict(rows), strict=True):
            if field.name in rows.column_names:
                raise ValueError(
                    f"`table` must not have a column `{field.name}`; it has one. Rename it, or "
                    "give a `prefix` for the new columns."
                )
            rows = rows.append_column(field, column.cast(field.type))
        return rows.combine_chunks().to_batches()[0] if batch and rows.num_rows else rows

    def batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Record batches with the new columns, one by one: for `mapInArrow` of Spark."""
        for batch in batches:
            if batch.num_rows:
                yield self(batch)

    @property
    def schema(self) -> Any:
        """The fields of the new columns."""
        arrow = import_optional("pyarrow", extra="parquet")
        label, number = _label_names(arrow, self.calibrator).type, arrow.float64()
        label = arrow.list_(label) if self._of == "labels" else label
        one = label.value_type if self._of == "labels" else label
        types = {
            "label": label,
            "confidence": number,
            "proba": arrow.list_(number),
            "set": arrow.list_(one),
            "abstain": arrow.bool_(),
            "interval": arrow.list_(number),
        }
        return arrow.schema([(f"{self.prefix}{name}", types[name]) for name in self.outputs])

    def spark_schema(self, schema: Any) -> Any:
        """A Spark schema with the new columns: `df.mapInArrow(p.batches, p.spark_schema(...))`."""
        types = import_optional("pyspark.sql.pandas.types", extra="engines")
        added = types.from_arrow_schema(self.schema)
        return type(schema)([*schema.fields, *added.fields])

    def _predict(self, rows: Any) -> list[Any]:
        """The new columns, as Arrow arrays."""
        arrow = import_optional("pyarrow", extra="parquet")
        for name in (*self.logits, *self.groups):
            if name not in rows.column_names:
                raise ValueError(
                    f"`table` must have the column `{name}`; got {rows.column_names}. Name the "
                    "columns in `logits` and `groups`."
                )
        there = self._has_scores(rows)
        some = rows if there.all() else rows.filter(arrow.array(there))
        if not some.num_rows:
            return [arrow.nulls(rows.num_rows, field.type) for field in self.schema]
        scores = self._scores(some)
        groups = {name: to_column(some.column(name)) for name in self.groups}
        own = {"groups": groups} if groups else {}
        found = [self._column(arrow, name, scores, own) for name in self.outputs]
        if there.all():
            return found
        place = np.where(there, np.cumsum(there) - 1, -1)
        places = arrow.array(place, mask=~there)
        return [column.take(places) for column in found]

    def _has_scores(self, rows: Any) -> AnyArray:
        """Which rows (n,) have all scores; an error names the first without, or they get nulls.

        Whether features may be missing is known to the classifier.
        """
        there = np.ones(rows.num_rows, np.bool_)
        if hasattr(self.calibrator, "calibrator_") and self.missing == "error":
            return there
        for name in self.logits:
            column = rows.column(name).combine_chunks()
            empty = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
            if "list" in str(column.type):
                inner = rows.select([name]).filter(~column.is_null().to_numpy(zero_copy_only=False))
                empty[~empty] = np.isnan(to_scores(_TABLE, inner, [name])).any(axis=1)
            there &= ~empty
        place = first_true(~there)
        if place and self.missing == "error":
            ids = [name for name in rows.column_names if is_id(name)][:1]
            row = f"row {place[0]}" + "".join(
                f" ({n} {rows.column(n)[place[0]].as_py()!r})" for n in ids
            )
            raise ValueError(
                f"`table` must have a score in every row; got none in {row}, and "
                f'{(~there).sum() - 1} others. Drop such rows, or give `missing="null"`.'
            )
        return there

    def _scores(self, rows: Any) -> Any:
        """The scores of rows, as the calibrator takes them."""
        if hasattr(self.calibrator, "feature_names_in_"):
            return rows.select(list(self.logits)).to_pandas()
        if self._of == "logits" and len(self.logits) > 1:
            frame = self.calibrator._convert_frame(rows.select(list(self.logits)))
            if isinstance(frame, np.ndarray):
                return frame
        return to_scores(_TABLE, rows, self.logits)

    def _column(self, arrow: Any, name: Column, logits: Any, own: dict[str, Any]) -> Any:
        cal = self.calibrator
        if name == "confidence":
            given = cal.predict if self._of == "confidence" else cal.predict_confidence
            return arrow.array(given(logits, **own))
        if name == "abstain":
            selected = cal.predict_or_abstain(logits, risk=self.risk, **self.delta, **own)
            return arrow.array(~selected.accepted)
        if name in ("proba", "interval"):
            ends = name == "interval"
            work = partial(cal.predict_interval, **self.delta) if ends else cal.predict_proba
            values = work(logits, **own)
            return _lists(arrow, arrow.array(values.ravel()), np.full(len(values), values.shape[1]))
        names, several = _label_names(arrow, cal), self._of == "labels"
        if name == "label" and not several:
            found = cal.predict(logits, **own)
            by_name = self._of == "classifier"
            return arrow.array(found.tolist()) if by_name else names.take(arrow.array(found))
        members = cal.predict(logits) if name == "label" else self._members(logits, own)
        places = arrow.array(np.nonzero(members)[1])
        return _lists(arrow, names.take(places), np.count_nonzero(members, axis=1))

    def _members(self, logits: Any, own: dict[str, Any]) -> Any:
        sets = self.calibrator.predict_set(logits, coverage=self.coverage, **self.delta, **own)
        return sets.possible if self._of == "labels" else sets.members


def _kind(calibrator: Any) -> str:
    """What a calibrator takes: "logits", "confidence", scores of "labels", or features."""
    kinds = {Calibrator: "logits", ConfidenceCalibrator: "confidence"}
    for kind, name in (kinds | {MultilabelCalibrator: "labels"}).items():
        if isinstance(calibrator, kind):
            calibrator._check_fitted()
            return name
    inner = getattr(calibrator, "calibrator_", None)
    if inner is None or not hasattr(calibrator, "classes_"):
        raise TypeError(
            "`calibrator` must be a fitted calibrator of logits, confidences or several labels, or "
            f"a fitted `CalibratedClassifier`; got {type(calibrator).__name__}."
        )
    return "labels" if isinstance(inner, MultilabelCalibrator) else "classifier"


def _forget_examples(calibrator: Any) -> None:
    """Drop what only guarantees need."""
    inner = getattr(calibrator, "calibrator_", calibrator)
    if inner is not calibrator:
        calibrator.calibrator_ = inner = copy(inner)
    if hasattr(inner, "kept_"):
        inner.kept_ = CalibrationData()
    else:
        inner.held_out_ = None


def _label_names(arrow: Any, calibrator: Any) -> Any:
    """The names of classes or labels, or their numbers, as an Arrow array."""
    if hasattr(calibrator, "classes_") and hasattr(calibrator, "calibrator_"):
        return arrow.array(calibrator.classes_.tolist())
    if isinstance(calibrator, ConfidenceCalibrator):
        return arrow.array([0])
    if isinstance(calibrator, MultilabelCalibrator):
        return arrow.array(calibrator._columns or range(calibrator.n_labels_))
    return arrow.array(calibrator.class_names or range(calibrator.n_classes_))


def _lists(arrow: Any, values: Any, sizes: Any) -> Any:
    """A column of lists, from all values and the length of each list."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return arrow.ListArray.from_arrays(arrow.array(offsets), values)

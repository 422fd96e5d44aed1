"""Predictions as new columns of Arrow tables (extra `parquet`): Spark, Ray, Polars,
DuckDB.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

import numpy as np

from hokical._core.arrays import AnyArray
from hokical._core.checks import check_choice
from hokical._core.reading import order_names, to_column
from hokical._core.runtime import import_optional
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.confidence import OutcomeCalibrator
from hokical.io.examples import is_id
from hokical.io.tables import to_scores

__all__ = ["BatchPredictor"]

Column = Literal["label", "confidence", "proba", "set", "abstain", "interval"]
#: Outputs that rest on examples which the calibrator has to keep.
_GUARANTEED = {"set", "abstain", "interval"}
#: The possible outputs of kinds of calibrators, by the kind's name.
_POSSIBLE: dict[str, tuple[Column, ...]] = {
    "classes": get_args(Column),
    "confidence": ("confidence", "abstain"),
    "multilabel": ("label", "proba", "set"),
}
#: The outputs of those kinds where none are chosen.
_DEFAULT: dict[str, tuple[Column, ...]] = {
    "classes": ("label", "confidence"),
    "confidence": ("confidence",),
    "multilabel": ("label", "proba"),
}
#: The name of a table in messages.
_TABLE = Path("Arrow table")


class BatchPredictor:
    """Append predictions to Arrow tables and record batches, in any engine that has
    them.

    It can be pickled, and holds no calibration examples unless an output needs what
    they prove. Predictions are those of the calibrator's methods, to the bit.

    Parameters
    ----------
    calibrator : Calibrator, ConfidenceCalibrator, MultilabelCalibrator or CalibratedClassifier
        Fitted or loaded.
    logits : str or list of str
        The column that holds lists of logits, or the columns of the logits: in any
        order where the calibrator knows their names or those of the classes, else class
        0 first. The confidence, or its signals; the scores of several labels; the
        features of a classifier.
    outputs : tuple of {"label", "confidence", "proba", "set", "abstain", "interval"}
        Columns to append: `label` by its name where the calibrator knows names;
        `proba`, a list over the classes; `set`, a list of labels; `abstain`, whether
        the label is not to be used; `interval`, a list of two numbers for the accuracy.
        By default label and confidence; of a confidence there are `confidence` and
        `abstain`; of several labels `label`, a list of those that are predicted,
        `proba`, and `set`, those that are not excluded.
    coverage, risk, delta : float, optional
        `coverage` of `predict_set`, `risk` of `predict_or_abstain`, and `delta` of both
        and of `predict_interval`.
    groups : list of str
        Columns with the groups of rows, for a calibrator that learned from them.
    prefix : str
        What the names of the new columns begin with.
    missing : {"error", "null"}
        Rows without a score are refused, by their id if the table has one, or get
        nulls.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from hokical import make
    >>> cal = make("uncalibrated").fit(np.eye(2), [0, 1])
    >>> predict = BatchPredictor(cal, logits=["z0", "z1"])
    >>> predict(pa.table({"z0": [0.0, 2.0], "z1": [1.0, 0.0]})).column(
    ...     "label"
    ... ).to_pylist()
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
        #: Whether the calibrator is a classifier, which takes features, not scores.
        self._of_features = hasattr(calibrator, "classes_") and hasattr(
            calibrator, "calibrator_"
        )
        score_calibrator = _score_calibrator(calibrator, self._of_features)
        #: The kind of predictions: one label of several "classes", "multilabel" any
        #: number of labels, or "confidence".
        self._kind = "classes"
        if isinstance(score_calibrator, OutcomeCalibrator):
            self._kind = score_calibrator.name
        check_choice("missing", missing, Literal["error", "null"])
        self.outputs = self._check_outputs(outputs)
        for name, option, value in (
            ("set", "coverage", coverage),
            ("abstain", "risk", risk),
        ):
            if name in self.outputs and value is None:
                raise ValueError(
                    f"`{option}` must be given for the output {name!r}; got None."
                )
        self.calibrator, score_calibrator = deepcopy((calibrator, score_calibrator))
        if _GUARANTEED.isdisjoint(self.outputs):
            _drop_evidence(score_calibrator)
        self.logits = self._order_columns(
            (logits,) if isinstance(logits, str) else tuple(logits)
        )
        self.missing = missing
        self.prefix = prefix
        self.groups = tuple(groups)
        self.coverage = coverage
        self.risk = risk
        self.delta = {} if delta is None else {"delta": delta}

    def _check_outputs(self, outputs: Sequence[Column] | None) -> tuple[Column, ...]:
        """The chosen outputs, or the default ones."""
        if outputs is None:
            return _DEFAULT[self._kind]
        possible = _POSSIBLE[self._kind]
        for name in outputs:
            if name not in possible:
                raise ValueError(
                    f"`outputs` must be of {list(possible)}; got {name!r}."
                )
        return tuple(outputs)

    def _order_columns(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Columns of scores in the order that the calibrator was fitted on."""
        if len(names) == 1:
            return names
        columns: Sequence[object]
        classes: Sequence[str] = ()
        if self._of_features:
            columns = getattr(self.calibrator, "feature_names_in_", ())
        else:
            columns = self.calibrator.schema_.columns
            if isinstance(self.calibrator, Calibrator):
                classes = self.calibrator.class_names
        order = order_names(names, [*map(str, columns)], classes)
        return tuple(names[k] for k in order)

    def __call__(self, table: Any) -> Any:
        """The table or record batch with the new columns.

        Other Arrow data become a table.
        """
        arrow = import_optional("pyarrow", extra="parquet")
        is_batch = isinstance(table, arrow.RecordBatch)
        rows = arrow.Table.from_batches([table]) if is_batch else arrow.table(table)
        for name in (*self.logits, *self.groups):
            if name not in rows.column_names:
                raise ValueError(
                    f"`table` must have the column `{name}`; got {rows.column_names}. "
                    "Name the columns in `logits` and `groups`."
                )
        columns = self._predict_columns(arrow, rows)
        for field, column in zip(self.schema, columns, strict=True):
            if field.name in rows.column_names:
                raise ValueError(
                    f"`table` must not have a column `{field.name}`; it has one. Rename "
                    "it, or give a `prefix` for the new columns."
                )
            rows = rows.append_column(field, column.cast(field.type))
        if is_batch and rows.num_rows:
            return rows.combine_chunks().to_batches()[0]
        return rows

    def _predict_columns(self, arrow: ModuleType, rows: Any) -> list[Any]:
        """The new columns, with nulls for rows without scores."""
        has_scores = self._has_scores(rows)
        if not has_scores.any():
            return [arrow.nulls(rows.num_rows, field.type) for field in self.schema]
        scored = rows if has_scores.all() else rows.filter(arrow.array(has_scores))
        scores = self._scores(scored)
        options = {}
        if self.groups:
            options["groups"] = {
                name: to_column(scored.column(name)) for name in self.groups
            }
        columns = [self._column(arrow, name, scores, options) for name in self.outputs]
        if has_scores.all():
            return columns
        scored_rows = arrow.array(np.cumsum(has_scores) - 1, mask=~has_scores)
        return [column.take(scored_rows) for column in columns]

    def batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Record batches with the new columns, for `mapInArrow` of Spark."""
        for batch in batches:
            if batch.num_rows:
                yield self(batch)

    @property
    def schema(self) -> Any:
        """The fields of the new columns."""
        arrow = import_optional("pyarrow", extra="parquet")
        label = self._label_names(arrow).type
        number = arrow.float64()
        types = {
            "label": arrow.list_(label) if self._kind == "multilabel" else label,
            "confidence": number,
            "abstain": arrow.bool_(),
            "set": arrow.list_(label),
            "proba": arrow.list_(number),
            "interval": arrow.list_(number),
        }
        return arrow.schema(
            [(f"{self.prefix}{name}", types[name]) for name in self.outputs]
        )

    def spark_schema(self, schema: Any) -> Any:
        """A Spark schema with the new columns: `df.mapInArrow(p.batches,
        p.spark_schema(...))`.
        """
        types = import_optional("pyspark.sql.pandas.types", extra="engines")
        added = types.from_arrow_schema(self.schema)
        return type(schema)([*schema.fields, *added.fields])

    def _has_scores(self, rows: Any) -> AnyArray:
        """Whether rows (n,) have all scores.

        Without `missing="null"` an error names the first row that lacks one. Features
        may be missing: the classifier knows.
        """
        has_scores = np.ones(rows.num_rows, np.bool_)
        if self._of_features and self.missing == "error":
            return has_scores
        for name in self.logits:
            column = rows.column(name).combine_chunks()
            is_empty = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
            if "list" in str(column.type):
                has_list = ~column.is_null().to_numpy(zero_copy_only=False)
                lists = rows.select([name]).filter(has_list)
                scores = to_scores(_TABLE, lists, [name])
                is_empty[~is_empty] = np.isnan(scores).any(axis=1)
            has_scores &= ~is_empty
        if not has_scores.all() and self.missing == "error":
            raise _missing_score_error(rows, has_scores)
        return has_scores

    def _scores(self, rows: Any) -> Any:
        """The scores of rows, as the calibrator takes them."""
        if hasattr(self.calibrator, "feature_names_in_"):
            return rows.select(list(self.logits)).to_pandas()
        if isinstance(self.calibrator, Calibrator) and len(self.logits) > 1:
            schema = self.calibrator.schema_
            frame = schema.read_frame(rows.select(list(self.logits)))
            if isinstance(frame, np.ndarray):
                return frame
        return to_scores(_TABLE, rows, self.logits)

    def _column(
        self, arrow: ModuleType, name: Column, scores: Any, options: dict[str, Any]
    ) -> Any:
        """A new column for rows that all have scores."""
        cal = self.calibrator
        if name == "confidence":
            is_outcome = self._kind == "confidence"
            predict = cal.predict if is_outcome else cal.predict_confidence
            return arrow.array(predict(scores, **options))
        if name == "abstain":
            selected = cal.predict_or_abstain(
                scores, risk=self.risk, **self.delta, **options
            )
            return arrow.array(~selected.accepted)
        if name == "proba":
            return _table_column(arrow, cal.predict_proba(scores, **options))
        if name == "interval":
            intervals = cal.predict_interval(scores, **self.delta, **options)
            return _table_column(arrow, intervals)
        if name == "set":
            sets = cal.predict_set(
                scores, coverage=self.coverage, **self.delta, **options
            )
            members = sets.possible if self._kind == "multilabel" else sets.members
            return self._label_lists(arrow, members)
        labels = cal.predict(scores, **options)
        if labels.ndim == 2:
            return self._label_lists(arrow, labels)
        if self._of_features:
            return arrow.array(labels.tolist())
        return self._label_names(arrow).take(arrow.array(labels))

    def _label_lists(self, arrow: ModuleType, members: AnyArray) -> Any:
        """A column of lists of the labels that are members (n, labels)."""
        labels = self._label_names(arrow).take(arrow.array(np.nonzero(members)[1]))
        return _lists(arrow, labels, np.count_nonzero(members, axis=1))

    def _label_names(self, arrow: ModuleType) -> Any:
        """The names of classes or labels, or their numbers, as an Arrow array."""
        cal: Any = self.calibrator
        if self._of_features:
            return arrow.array(cal.classes_.tolist())
        if self._kind == "classes":
            return arrow.array(cal.class_names or range(cal.n_classes_))
        if self._kind == "multilabel":
            return arrow.array(cal.schema_.columns or range(cal.n_labels_))
        return arrow.array([0])


def _score_calibrator(calibrator: Any, of_features: bool) -> Any:
    """The fitted calibrator of scores, or that of a classifier."""
    score_calibrator = calibrator.calibrator_ if of_features else calibrator
    if not isinstance(score_calibrator, (Calibrator, OutcomeCalibrator)):
        raise TypeError(
            "`calibrator` must be a fitted calibrator of logits, confidences or several "
            "labels, or a fitted `CalibratedClassifier`; got "
            f"{type(calibrator).__name__}."
        )
    score_calibrator.check_fitted()
    return score_calibrator


def _drop_evidence(calibrator: Calibrator | OutcomeCalibrator) -> None:
    """Drop the examples that only guarantees need."""
    if isinstance(calibrator, Calibrator):
        calibrator.predictor_ = calibrator.predictor_.without_evidence()
    else:
        calibrator.held_out_ = None


def _missing_score_error(rows: Any, has_scores: AnyArray) -> ValueError:
    """An error that names the first row without a score."""
    row = int(np.argmin(has_scores))
    n_more = int((~has_scores).sum()) - 1
    ids = [name for name in rows.column_names if is_id(name)][:1]
    row_id = "".join(f" ({name} {rows.column(name)[row].as_py()!r})" for name in ids)
    return ValueError(
        f"`table` must have a score in every row; got none in row {row}{row_id}, and "
        f'{n_more} others. Drop such rows, or give `missing="null"`.'
    )


def _table_column(arrow: ModuleType, values: AnyArray) -> Any:
    """A column of lists, the rows of a table (n, k)."""
    n_rows, n_columns = values.shape
    return _lists(arrow, arrow.array(values.ravel()), np.full(n_rows, n_columns))


def _lists(arrow: ModuleType, values: Any, sizes: Any) -> Any:
    """A column of lists, from all values and the length of each list."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return arrow.ListArray.from_arrays(arrow.array(offsets), values)

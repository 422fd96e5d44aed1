"""Predictions as new columns of Arrow tables (extra `parquet`): Spark, Ray, Polars,
DuckDB.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
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
#: What calibrators of one confidence per row, and of several labels, can add.
_POSSIBLE = {
    "confidence": ("confidence", "abstain"),
    "multilabel": ("label", "proba", "set"),
}
_TABLE = Path("Arrow table")


class BatchPredictor:
    """Append predictions to Arrow tables and record batches, in any engine that has
    them.

    It can be pickled, and holds no calibration examples unless an output needs what
    they prove. Predictions are those of the calibrator's methods, to the bit.

    Parameters
    ----------
    calibrator : Calibrator, ConfidenceCalibrator, MultilabelCalibrator or
        CalibratedClassifier Fitted or loaded.
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
        #: Whether it is a classifier, which takes features instead of scores.
        self._of_features = hasattr(calibrator, "classes_") and hasattr(
            calibrator, "calibrator_"
        )
        own: Any = calibrator.calibrator_ if self._of_features else calibrator
        if not isinstance(own, (Calibrator, OutcomeCalibrator)):
            rule = (
                "`calibrator` must be a fitted calibrator of logits, confidences or "
                "several labels"
            )
            found = (
                f"or a fitted `CalibratedClassifier`; got {type(calibrator).__name__}"
            )
            raise TypeError(f"{rule}, {found}.")
        own.check_fitted()
        #: What it predicts: one label of several "classes", "multilabel" any number,
        #: "confidence".
        self._of = own.name if isinstance(own, OutcomeCalibrator) else "classes"
        possible = _POSSIBLE.get(self._of, get_args(Column))
        outputs = (
            possible[: 1 if self._of == "confidence" else 2]
            if outputs is None
            else outputs
        )
        for name in outputs:
            if name not in possible:
                raise ValueError(
                    f"`outputs` must be of {list(possible)}; got {name!r}."
                )
        check_choice("missing", missing, Literal["error", "null"])
        for name, option, value in (
            ("set", "coverage", coverage),
            ("abstain", "risk", risk),
        ):
            if name in outputs and value is None:
                raise ValueError(
                    f"`{option}` must be given for the output {name!r}; got None."
                )
        self.calibrator, own = deepcopy((calibrator, own))
        if _GUARANTEED.isdisjoint(outputs):  # drop what only guarantees need
            if self._of == "classes":
                own.predictor_ = own.predictor_.without_evidence()
            else:
                own.held_out_ = None
                own.held_out_for_new_groups_ = None
        names = (logits,) if isinstance(logits, str) else tuple(logits)
        if len(names) > 1:
            if self._of_features:
                columns = getattr(calibrator, "feature_names_in_", ())
                classes = ()
            else:
                columns = calibrator.schema_.columns
                classes = getattr(calibrator, "class_names", ())
            names = tuple(
                names[k] for k in order_names(names, [*map(str, columns)], classes)
            )
        self.logits = names
        self.missing = missing
        self.prefix = prefix
        self.outputs = tuple(outputs)
        self.groups = tuple(groups)
        self.coverage = coverage
        self.risk = risk
        self.delta = {} if delta is None else {"delta": delta}

    def __call__(self, table: Any) -> Any:
        """The table or record batch with the new columns; other Arrow data become a
        table.
        """
        arrow = import_optional("pyarrow", extra="parquet")
        batch = isinstance(table, arrow.RecordBatch)
        rows = arrow.Table.from_batches([table]) if batch else arrow.table(table)
        for name in (*self.logits, *self.groups):
            if name not in rows.column_names:
                rule = f"`table` must have the column `{name}`; got {rows.column_names}"
                raise ValueError(f"{rule}. Name the columns in `logits` and `groups`.")
        schema = self.schema
        there = self._has_scores(rows)
        some = rows if there.all() else rows.filter(arrow.array(there))
        if some.num_rows:
            scores = self._scores(some)
            places = arrow.array(np.cumsum(there) - 1, mask=~there)
            groups = {name: to_column(some.column(name)) for name in self.groups}
            own = {"groups": groups} if groups else {}
            found = [self._column(arrow, name, scores, own) for name in self.outputs]
            found = found if there.all() else [column.take(places) for column in found]
        else:
            found = [arrow.nulls(rows.num_rows, field.type) for field in schema]
        for field, column in zip(schema, found, strict=True):
            if field.name in rows.column_names:
                rule = f"`table` must not have a column `{field.name}`; it has one"
                raise ValueError(
                    f"{rule}. Rename it, or give a `prefix` for the new columns."
                )
            rows = rows.append_column(field, column.cast(field.type))
        return (
            rows.combine_chunks().to_batches()[0] if batch and rows.num_rows else rows
        )

    def batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Record batches with the new columns, one by one: for `mapInArrow` of
        Spark.
        """
        for batch in batches:
            if batch.num_rows:
                yield self(batch)

    @property
    def schema(self) -> Any:
        """The fields of the new columns."""
        arrow = import_optional("pyarrow", extra="parquet")
        one = self._label_names(arrow).type
        number = arrow.float64()
        types = {
            "label": arrow.list_(one) if self._of == "multilabel" else one,
            "confidence": number,
            "abstain": arrow.bool_(),
            "set": arrow.list_(one),
            **dict.fromkeys(("proba", "interval"), arrow.list_(number)),
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
        """Which rows (n,) have all scores; an error names the first without, or they
        get nulls.

        Whether features may be missing is known to the classifier.
        """
        there = np.ones(rows.num_rows, np.bool_)
        if self._of_features and self.missing == "error":
            return there
        for name in self.logits:
            column = rows.column(name).combine_chunks()
            empty = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
            if "list" in str(column.type):
                inner = rows.select([name]).filter(
                    ~column.is_null().to_numpy(zero_copy_only=False)
                )
                empty[~empty] = np.isnan(to_scores(_TABLE, inner, [name])).any(axis=1)
            there &= ~empty
        if not there.all() and self.missing == "error":
            row = int(np.argmin(there))
            ids = [name for name in rows.column_names if is_id(name)][:1]
            named = "".join(
                f" ({name} {rows.column(name)[row].as_py()!r})" for name in ids
            )
            found = f"none in row {row}{named}, and {(~there).sum() - 1} others"
            remedy = 'Drop such rows, or give `missing="null"`.'
            raise ValueError(
                f"`table` must have a score in every row; got {found}. {remedy}"
            )
        return there

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
        self, arrow: Any, name: Column, logits: Any, own: dict[str, Any]
    ) -> Any:
        cal = self.calibrator
        if name == "confidence":
            ask = cal.predict if self._of == "confidence" else cal.predict_confidence
            return arrow.array(ask(logits, **own))
        if name == "abstain":
            selected = cal.predict_or_abstain(
                logits, risk=self.risk, **self.delta, **own
            )
            return arrow.array(~selected.accepted)
        if name in ("proba", "interval"):
            work = cal.predict_proba if name == "proba" else cal.predict_interval
            values = work(logits, **own, **(self.delta if name == "interval" else {}))
            return _lists(
                arrow,
                arrow.array(values.ravel()),
                np.full(len(values), values.shape[1]),
            )
        if name == "set":
            sets = cal.predict_set(logits, coverage=self.coverage, **self.delta, **own)
            found = sets.possible if self._of == "multilabel" else sets.members
        else:
            found = cal.predict(logits, **own)
        names = self._label_names(arrow)
        if found.ndim == 2:
            places = arrow.array(np.nonzero(found)[1])
            return _lists(arrow, names.take(places), np.count_nonzero(found, axis=1))
        return (
            arrow.array(found.tolist())
            if self._of_features
            else names.take(arrow.array(found))
        )

    def _label_names(self, arrow: Any) -> Any:
        """The names of classes or labels, or their numbers, as an Arrow array."""
        cal: Any = self.calibrator
        if self._of_features:
            return arrow.array(cal.classes_.tolist())
        if self._of == "classes":
            return arrow.array(cal.class_names or range(cal.n_classes_))
        if self._of == "multilabel":
            return arrow.array(cal.schema_.columns or range(cal.n_labels_))
        return arrow.array([0])


def _lists(arrow: Any, values: Any, sizes: Any) -> Any:
    """A column of lists, from all values and the length of each list."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return arrow.ListArray.from_arrays(arrow.array(offsets), values)

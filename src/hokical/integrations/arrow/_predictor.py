"""New columns for Arrow tables and record batches."""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from hokical._core.optional import import_optional
from hokical._core.reading import to_column
from hokical.calibrators._calibrator import Calibrator
from hokical.guarantees._calibration_data import CalibrationData
from hokical.io._arrow import to_scores

Column = Literal["label", "confidence", "proba", "set", "abstain", "interval"]
#: Outputs that rest on examples which the calibrator has to keep.
_GUARANTEED = ("set", "abstain", "interval")
_TABLE = Path("Arrow table")


class BatchPredictor:
    """Append predictions to Arrow tables and record batches, in any engine that has them.

    It can be pickled, and holds no calibration examples unless an output needs what they prove.
    Predictions are those of the calibrator's methods, to the bit.

    Parameters
    ----------
    calibrator : Calibrator
        Fitted or loaded.
    logits : str or list of str
        The column that holds lists of logits, or the columns of the logits, class 0 first.
    outputs : tuple of {"label", "confidence", "proba", "set", "abstain", "interval"}
        Columns to append: `label` by its name where the calibrator knows names; `proba`, a list
        over the classes; `set`, a list of labels; `abstain`, whether the label is not to be used;
        `interval`, a list of two numbers for the accuracy.
    coverage, risk, delta : float, optional
        `coverage` of `predict_set`, `risk` of `predict_or_abstain`, and `delta` of both and of
        `predict_interval`.
    groups : list of str
        Columns with the groups of rows, for a calibrator that learned from them.
    prefix : str
        What the names of the new columns begin with.

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
        calibrator: Calibrator,
        *,
        logits: str | Sequence[str],
        outputs: Sequence[Column] = ("label", "confidence"),
        coverage: float | None = None,
        risk: float | None = None,
        delta: float | None = None,
        groups: Sequence[str] = (),
        prefix: str = "",
    ) -> None:
        for name in outputs:
            if name not in get_args(Column):
                raise ValueError(f"`outputs` must be of {list(get_args(Column))}; got {name!r}.")
        for name, option, value in (("set", "coverage", coverage), ("abstain", "risk", risk)):
            if name in outputs and value is None:
                raise ValueError(f"`{option}` must be given for the output {name!r}; got None.")
        self.calibrator = deepcopy(calibrator)
        if not set(_GUARANTEED) & set(outputs):
            self.calibrator.kept_ = CalibrationData()
        self.logits = (logits,) if isinstance(logits, str) else tuple(logits)
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
        label = arrow.string() if self.calibrator.class_names else arrow.int64()
        number = arrow.float64()
        types = {
            "label": label,
            "confidence": number,
            "proba": arrow.list_(number),
            "set": arrow.list_(label),
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
        if not rows.num_rows:
            return [arrow.array([], field.type) for field in self.schema]
        logits = to_scores(_TABLE, rows, self.logits)
        groups = {name: to_column(rows.column(name)) for name in self.groups}
        own = {"groups": groups} if groups else {}
        return [self._column(arrow, name, logits, own) for name in self.outputs]

    def _column(self, arrow: Any, name: Column, logits: Any, own: dict[str, Any]) -> Any:
        cal = self.calibrator
        names = arrow.array(cal.class_names or range(cal.n_classes_))
        if name == "label":
            return names.take(arrow.array(np.asarray(cal.predict(logits, **own))))
        if name == "confidence":
            return arrow.array(cal.predict_confidence(logits, **own))
        if name == "set":
            sets = cal.predict_set(logits, coverage=self.coverage, **self.delta, **own)
            members = names.take(arrow.array(np.nonzero(sets.members)[1]))
            return _lists(arrow, members, sets.sizes)
        if name == "abstain":
            selected = cal.predict_or_abstain(logits, risk=self.risk, **self.delta, **own)
            return arrow.array(~selected.accepted)
        if name == "proba":
            values = cal.predict_proba(logits, **own)
        else:
            values = cal.predict_interval(logits, **self.delta, **own)
        return _lists(arrow, arrow.array(values.ravel()), np.full(len(values), values.shape[1]))


def _lists(arrow: Any, values: Any, sizes: Any) -> Any:
    """A column of lists, from all values and the length of each list."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return arrow.ListArray.from_arrays(arrow.array(offsets), values)

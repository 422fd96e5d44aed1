"""Tables of any Arrow engine, whose columns are named in place of arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hokical._core.optional import import_optional
from hokical._core.types import AnyArray


def read_table(
    table: Any, labels: Any, sample_weight: Any, groups: Any, known: Sequence[str] = ()
) -> tuple[Any, Any, Any, Any]:
    """Logits, labels, weights and groups; of a table if `labels` is the name of a column.

    A table is anything with `__arrow_c_stream__`, or a lazy frame of Polars. Weights and groups may
    be names of columns too. Logits are a column `logits` of lists; or the columns `known` from a
    fit; or all other numeric ones.
    """
    if not isinstance(labels, str) or isinstance(table, str):
        return table, labels, sample_weight, groups
    arrow = import_optional("pyarrow", extra="parquet")
    rows = arrow.table(table.collect() if hasattr(table, "collect") else table)
    names = list(rows.column_names)

    def column(name: Any) -> Any:
        if name not in names:
            raise ValueError(
                f"`labels`, `sample_weight` and `groups` must name columns of the table, {names}; "
                f"got {name!r}. Correct the name, or pass an array."
            )
        return to_column(rows.column(name))

    taken = {labels}
    if isinstance(sample_weight, str):
        taken, sample_weight = taken | {sample_weight}, column(sample_weight)
    named = [groups] if isinstance(groups, str) else groups
    if isinstance(named, (list, tuple)) and {*map(str, named)} <= {*names}:
        taken, groups = taken | {*named}, {name: column(name) for name in named}
    if "logits" in names:  # lists of all logits
        return np.stack(rows.column("logits").to_pylist()), column(labels), sample_weight, groups
    if not known or not {*known} <= {*names}:
        is_number = [f.name for f in rows.schema if _is_number(arrow, f.type)]
        known = [name for name in is_number if name not in taken]
    return rows.select(list(known)), column(labels), sample_weight, groups


def to_column(column: Any) -> AnyArray:
    """A column of Arrow (n,); with nulls it holds objects, so that whole numbers stay whole."""
    if column.null_count:
        return np.array(column.to_pylist(), object)
    return np.asarray(column.to_numpy())


def _is_number(arrow: Any, kind: Any) -> bool:
    return bool(arrow.types.is_floating(kind) or arrow.types.is_integer(kind))

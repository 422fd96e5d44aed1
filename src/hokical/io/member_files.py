"""An ensemble of which each member is in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from hokical._core.arrays import AnyArray
from hokical._core.groups import look_up
from hokical._core.reading import Rows
from hokical.io import ensembles, examples, tables
from hokical.io.examples import Columns, Layout, Location, ReadOptions
from hokical.io.tables import FileSplit, Table

if TYPE_CHECKING:
    from hokical.calibrators.calibrator import Calibrator


def read_ensemble(
    paths: Sequence[Location] | Mapping[str, Location],
    *,
    split: FileSplit = "val",
    labels: Location | None = None,
    exchangeable: bool = False,
    fitted_by: Calibrator | None = None,
    **options: Unpack[ReadOptions],
) -> Rows:
    """Read an ensemble from files with one member each, of any format.

    Rows are joined by the column of ids (`id` or `*_id`), which must be the same in
    all files; without one, the rows of all files are in the same order. Empty scores
    (NaN) say that a member was not evaluated.

    Parameters
    ----------
    paths : sequence of paths, or mapping of names to paths
        Of files of the same rows. By default members are named like their files,
        without the words that all of them share; of a calibrator that was fitted on an
        ensemble, by the names of the fit that are among the words.
    split, labels, fitted_by, options
        As of `read_examples`. Labels, weights, groups and columns to keep are those of
        the first file.
    exchangeable : bool
        As of `hokical.Ensemble`; that of the fit, with `fitted_by`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = [Path(folder, name) for name in ("val_vit.csv", "val_cnn.csv")]
    ...     _ = files[0].write_text("id,logit_0,logit_1,label\\na,2,0,0\\nb,1,3,1\\n")
    ...     _ = files[1].write_text("id,logit_0,logit_1\\nb,0,1\\na,1,0\\n")
    ...     rows = read_ensemble(files)
    >>> rows.scores, rows.scores.members[1].tolist()
    (Ensemble(2 members, 2 rows, 2 classes: vit, cnn), [[1.0, 0.0], [0.0, 1.0]])
    """
    if isinstance(paths, Mapping):
        files = [Path(path) for path in paths.values()]
        names = [*paths]
    else:
        files = [Path(path) for path in paths]
        names = ensembles.name_members(files, _names_of_fit(fitted_by))
    if not files:
        raise ValueError("`paths` must name a file for each member; got none.")
    wanted = examples.columns_of(labels, fitted_by, **options)
    wanted = replace(wanted, of_member=True)
    table = tables.open_table(files[0], split)
    _refuse_single_row_fit(table, len(files), fitted_by)
    layout = _layout(table, wanted)
    first = examples.read_layout(layout, labels, options.get("label_column"))
    rows = {names[0]: first}
    beside = _of_others(wanted, layout, with_labels=labels is None)
    for name, file in zip(names[1:], files[1:], strict=True):
        rows[name] = _read_beside(tables.open_table(file, split), table, first, beside)
    return ensembles.combine_members(
        rows,
        table,
        wanted,
        exchangeable=exchangeable or ensembles.is_exchangeable(fitted_by),
    )


def _names_of_fit(fitted: Calibrator | None) -> tuple[str, ...]:
    members = None if fitted is None else fitted.schema_.members
    return () if members is None else members.names


def _refuse_single_row_fit(
    table: Table, n_files: int, fitted: Calibrator | None
) -> None:
    if fitted is not None and fitted.schema_.members is None:
        raise table.error(
            "expected one row of scores for each example, as in the fit; found an "
            f"ensemble of {n_files} files.",
            "Fit a calibrator on an ensemble, or pass one of the files without "
            "--ensemble.",
        )


def _layout(table: Table, wanted: Columns) -> Layout:
    """The layout of a file with one member."""
    has_members = ensembles.named_members(table) or ensembles.stacked_members(table)
    layout = Layout(table, wanted)
    if has_members and (len(layout.scores) == 1 and table.shape(layout.scores[0])[2:]):
        raise table.error(
            "expected one member in each file of an ensemble; found several.",
            "Pass this file alone, or a file for each member.",
        )
    if layout.kind == "confidence":
        raise table.error(
            "expected logits or probabilities of each member; found confidences.",
            "Combine several confidences with --confidence a,b.",
        )
    return layout


def _of_others(wanted: Columns, first: Layout, *, with_labels: bool) -> Columns:
    """What is read of the files after the first: scores, and labels to compare."""
    compared = with_labels and first.labels is not None
    return replace(
        wanted,
        groups=(),
        keep=(),
        classes=first.classes,
        labelled="some" if compared else "none",
        drop_missing=False,
    )


def _read_beside(table: Table, base: Table, first: Rows, wanted: Columns) -> Rows:
    """The rows of a further file, in the order of those of the first."""
    rows = _layout(table, wanted).read(table)
    order = _order_rows(table, base, len(rows.used), len(first.used))
    scores = rows.scores if order is None else rows.scores[order]
    if rows.labels is not None and first.labels is not None:
        labels = rows.labels if order is None else rows.labels[order]
        ensembles.check_same_labels(table.path, labels[first.used], first.labels)
    if rows.n_classes != first.n_classes:
        raise table.error(
            f"expected {first.n_classes} classes, as in {base.path.name}; found "
            f"{rows.n_classes}.",
            "Evaluate every member on the same classes.",
        )
    return replace(rows, scores=scores)


def _order_rows(table: Table, base: Table, n: int, n_first: int) -> AnyArray | None:
    """The place of each row of the first file; None where no file has ids."""
    id_columns = examples.find_ids(base)
    shared = [name for name in id_columns if table.first(name) is not None]
    if shared:
        return _match_ids(table, base, min(shared, key=len))
    id_columns = id_columns or examples.find_ids(table)
    if id_columns:
        raise table.error(
            f"expected the column `{id_columns[0]}` in all files of an ensemble, as in "
            f"one of them; found {table.listed()} here and {base.listed()} in "
            f"{base.path.name}.",
            "Add it, or drop it everywhere if the rows are in the same order.",
        )
    if n != n_first:
        raise table.error(
            f"expected the {n_first:,} rows of {base.path.name}; found {n:,}.",
            "Add a column `id`, or the rows that are missing, with empty scores.",
        )
    return None


def _match_ids(table: Table, base: Table, column: str) -> AnyArray:
    """The row of a table with each id of the first file, if they have the same ids."""
    ids = examples.read_ids(table, table.require(column, "id"))
    base_ids = examples.read_ids(base, column)
    rows = np.array(look_up(base_ids, ids))
    missing = np.flatnonzero(rows == len(ids))
    if missing.size:
        raise table.error(
            f"expected each `{column}` of {base.path.name}; found none for "
            f"{base_ids[missing[0]]!r}, and {missing.size - 1:,} others.",
            "Add these rows, with empty scores where the member was not evaluated.",
        )
    expected = {*base_ids}
    unexpected = [value for value in ids if value not in expected]
    if unexpected:
        raise table.error(
            f"expected each `{column}` of {base.path.name} alone; found "
            f"{unexpected[0]!r}, and {len(unexpected) - 1:,} others.",
            "Drop these rows, or add them to all files.",
        )
    return rows

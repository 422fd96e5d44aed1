"""The rows of a fit: checked examples, and one row of logits for each of an ensemble.

What users pass to `fit` is read here, once, for the method that learns from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hokical._core import reading, runtime
from hokical._core.arrays import NUMPY, AnyArray, backend_of
from hokical._core.conversion import as_two_columns
from hokical._core.ensembles import Ensemble
from hokical._core.logits import Logits, as_logits
from hokical._core.reading import Rows
from hokical._core.schema import InputSchema
from hokical._core.votes import read_votes
from hokical._fitting.examples import (
    Examples,
    Partition,
    probability_scale,
    warn_of_copies,
)
from hokical._fitting.pooling import fit_pool
from hokical.calibrators.predictor import check_kind
from hokical.calibrators.stored import MethodInfo
from hokical.guarantees.fingerprints import RowSketch, row_hashes
from hokical.rules.members import PooledMembers, as_members, with_first_labels
from hokical.rules.pooled import MemberLogits

#: Minimum rows before a column is reported as a row index.
_MIN_ROWS_OF_INDEX = 10


@dataclass(frozen=True, eq=False)
class PooledRows:
    """Rows whose logits are those of an ensemble, pooled.

    Attributes
    ----------
    rows : the rows with pooled logits
    members : how the members were pooled
    sketch : a fingerprint of the rows as they are pooled in use, None if nothing was
        learned
    """

    rows: Rows
    members: PooledMembers
    sketch: RowSketch | None = None


@dataclass(frozen=True)
class FitReader:
    """Reads the rows that a method learns from.

    `owner` is the estimator, as errors call it.
    """

    method: MethodInfo
    owner: str

    def read(
        self, rows: Rows, names: tuple[str, ...], schema: InputSchema | None = None
    ) -> tuple[Partition, tuple[str, ...]]:
        """Rows as examples, and the names of the classes.

        Further examples of a fit are read by its `schema`.
        """
        lazy = (backend_of(rows.scores) or NUMPY).lazy
        if lazy is not None:
            partition: Partition = lazy.partition(
                rows.scores, rows.labels, rows.weights
            )
            partition.groups = rows.groups
            return partition, names
        # Logits first: their errors point to `hokical.streams`.
        logits = self._read_logits(rows.scores, schema)
        if schema is not None and schema.columns:
            rows = replace(rows, columns=schema.columns)
        warn_of_row_index(logits)
        return self._label(logits, rows, names)

    def _read_logits(self, scores: object, schema: InputSchema | None) -> Logits:
        """Checked logits of a kind that the method takes."""
        method = self.method
        if schema is not None:
            logits = schema.read(scores)
        elif method.binary_only:
            logits = as_logits(as_two_columns(scores, fitting=True))
        else:
            logits = as_logits(scores)
        logits = logits.without_gradient()
        check_kind(method.name, method.logits_kind, method.accepts_top_k, logits)
        return logits

    def _label(
        self, logits: Logits, rows: Rows, names: tuple[str, ...]
    ) -> tuple[Examples, tuple[str, ...]]:
        """Logits with the labels and weights of their rows, and class names."""
        if rows.labels is None:
            raise ValueError(
                f"{self.owner} requires y to be passed, but the target y is None: give "
                "`labels`, the true class of each row."
            )
        labels = reading.to_numpy(rows.labels, "labels")
        label_names = names or rows.columns
        if _are_texts(labels) and label_names:
            label_names = _names_of_labels(labels, label_names)
            names = label_names
        examples = _from_votes(logits, rows, names)
        if examples is None:
            labels = reading.as_labels(
                labels, logits.n_rows, logits.n_classes, classes=label_names
            )
            weights = reading.as_weights(rows.weights, logits.n_rows)
            examples = Examples(logits, labels, weights, groups=rows.groups)
        return examples, names

    def pool(
        self,
        rows: Rows,
        names: tuple[str, ...],
        *,
        max_members: int | None,
        keep_labels: bool,
    ) -> PooledRows:
        """Rows of an ensemble as one row of logits each, by weights that they teach.

        They are pooled as if they were new, for what learns from them next. With
        `keep_labels`, labels are those of the first member.
        """
        ensemble: Ensemble = rows.scores
        _check_axes(ensemble, rows.labels)
        logits = as_members(ensemble)
        warn_of_probability_members(logits, ensemble)
        rows = replace(rows, columns=rows.columns or ensemble.columns)
        examples, _ = self._label(logits, rows, names)
        if self.method.name == "uncalibrated":
            plain = _pool_plainly(rows, max_members)
            _sketch_in_use(examples, plain.rows.scores)
            return plain
        fit = fit_pool(
            examples,
            exchangeable=ensemble.exchangeable,
            most_members=max_members,
            names=ensemble.names,
        )
        if not fit.converged:
            runtime.warn_user(
                f"the weights of the members did not converge: {fit.message}",
                runtime.ConvergenceWarning,
            )
        pooled = fit.cross_fit(examples)
        if examples.votes_of is not None:
            pooled = pooled.take(np.unique(examples.votes_of, return_index=True)[1])
        members = PooledMembers.of(ensemble, fit)
        if keep_labels:
            pooled = with_first_labels(pooled, logits)
            members = replace(members, keep_first=True)
        sketch = _sketch_in_use(examples, members.pool_all(logits))
        return PooledRows(replace(rows, scores=pooled), members, sketch)


def _are_texts(labels: AnyArray) -> bool:
    return labels.ndim == 1 and labels.size > 0 and isinstance(labels[0], str)


def _names_of_labels(labels: AnyArray, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns by the names that labels have for them."""
    if {*labels.tolist()} <= {*columns}:
        return columns
    return tuple(map(reading.class_of_column, columns))


def _from_votes(
    logits: Logits, rows: Rows, classes: tuple[str, ...]
) -> Examples | None:
    """Examples of soft labels, a row for each class with votes; None of labels (n,)."""
    names = (classes, rows.columns)
    votes = read_votes(rows.labels, logits.n_rows, logits.n_classes, names=names)
    if votes is None:
        return None
    return Examples(
        logits if votes.are_hard else logits.take(votes.rows),
        votes.labels,
        votes.weigh(rows.weights, logits.n_rows),
        groups=votes.repeat_groups(rows.groups, logits.n_rows),
        votes_of=None if votes.are_hard else votes.rows,
    )


def _check_axes(ensemble: Ensemble, labels: AnyArray) -> None:
    """Refuse rows that were passed as members."""
    shape = np.shape(labels)
    n_members = ensemble.n_members
    if shape == (n_members,) != (ensemble.n_rows,):
        raise ValueError(
            f"`members` must be (members, n, classes); got {n_members} members of "
            f"{ensemble.n_rows} rows for {n_members} labels. Swap the first two axes of "
            "an array (n, members, classes)."
        )


def _sketch_in_use(examples: Examples, pooled: Logits) -> RowSketch:
    """A fingerprint of rows as they are pooled in use; warns if many are copies.

    Rows that are pooled as if held out tell their labels: equal votes with equal labels
    would look like copies.
    """
    counting = np.flatnonzero(examples.counting)
    if examples.votes_of is not None:
        counting = np.unique(examples.votes_of[counting])
    sketch = RowSketch.from_hashes(row_hashes(pooled)[counting])
    warn_of_copies(replace(examples, logits=pooled), sketch)
    return sketch


def _pool_plainly(rows: Rows, max_members: int | None) -> PooledRows:
    """Rows pooled by the mean probability of the members, without learning."""
    if max_members is not None:
        raise ValueError(
            "`most_members` must be None for `Uncalibrated`, which learns "
            f"nothing of its members; got {max_members!r}. Choose some of them: "
            "`ensemble.select(names)`."
        )
    members = PooledMembers.plain(rows.scores)
    return PooledRows(replace(rows, scores=members.read(rows.scores)), members)


def warn_of_row_index(logits: Logits) -> None:
    """Warn if a column counts the rows, as an id does."""
    top_k = logits.tail is not None
    if not logits.is_numpy or top_k or logits.n_rows < _MIN_ROWS_OF_INDEX:
        return
    values = logits.values
    first_steps = (values[1:4] == values[:3] + 1.0) & np.isfinite(values[:3])
    for column in np.flatnonzero(first_steps.all(axis=0)):
        if (values[1:, column] == values[:-1, column] + 1.0).all():
            runtime.warn_user(
                f"`logits` have a column, {column}, that counts the rows from "
                f"{values[0, column]:g}, as an id does. Drop it: each column is a "
                "class.",
                runtime.FitDataWarning,
                cause="a column that counts the rows",
            )


def warn_of_probability_members(members: MemberLogits, ensemble: Ensemble) -> None:
    """Warn if members have probabilities for their logits."""
    names: list[str] = []
    for index in range(members.n_members):
        logits, is_evaluated = members.member(index)
        rows = np.flatnonzero(members.to_host(is_evaluated))
        evaluated = logits.take(rows) if rows.size < logits.n_rows else logits
        top = evaluated.to_host(evaluated.top)
        if rows.size and probability_scale(evaluated, top) == 1.0:
            names.append(ensemble.label(index))
    if names:
        several = f"{len(names)} members" if len(names) > 1 else f"`{names[0]}`"
        runtime.warn_user(
            f"{several} look like probabilities: all rows lie in [0, 1] and sum to 1. "
            "Convert them with `hokical.from_probabilities(Ensemble(...))`, or pass the "
            "logits.",
            runtime.FitDataWarning,
        )

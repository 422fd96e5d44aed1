"""Models that are calibrated one by one, and whose probabilities are averaged.

The folds of a `CalibratedClassifier` are such models: each has a calibrator of its own.
A schema with `CalibratedMembers` reads the scores of all models, an `Ensemble`, as the
logarithm of their mean calibrated probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from hokical._core.arrays import Array, IntArray
from hokical._core.checks import ArrayOf, Checked
from hokical._core.ensembles import Ensemble
from hokical._core.logits import Logits, as_float_matrix
from hokical._core.schema import InputSchema
from hokical._core.storage import storable
from hokical.calibrators.predictor import check_accepted
from hokical.guarantees.fingerprints import row_draws
from hokical.rules.base import Rule, predict_blocks


@storable("calibrated-member")
@dataclass(frozen=True, eq=False)
class CalibratedMember(Checked):
    """A model's calibrator: how its scores are read, its rule, and the columns of its
    classes.
    """

    schema: InputSchema
    rule: Rule
    columns: Annotated[IntArray, ArrayOf((None,), 0, 1 << 31, np.int64)]

    def __post_init__(self) -> None:
        super().__post_init__()
        distinct = np.unique(self.columns).size == self.columns.size
        if not distinct or self.columns.size != self.schema.n_classes:
            raise ValueError("`columns` must be one of each class of the member.")

    def proba(
        self, scores: Array, n_classes: int, groups: object = None
    ) -> tuple[Array, Logits]:
        """Calibrated probabilities (n, classes) of its scores, which may have columns
        for classes that it does not know; they get 0. And the checked scores.
        """
        lacks = n_classes != self.columns.size
        values, backend = as_float_matrix(scores, "members")
        xp = backend.namespace(values)
        if lacks:
            columns = backend.from_host(self.columns, values)
            values = xp.take(values, columns, axis=1)
        logits = self.schema.read(values, groups)
        check_accepted(self.rule, logits)
        proba = predict_blocks(self.rule, "proba", logits)
        if lacks:
            zero = xp.zeros_like(proba[:, :1])
            # Classes that the model lacks have the column of zeros.
            sources = np.full(n_classes, self.columns.size)
            sources[self.columns] = np.arange(self.columns.size)
            proba = xp.take(
                xp.concat([proba, zero], axis=1),
                backend.from_host(sources, proba),
                axis=1,
            )
        return proba, logits


@storable("calibrated-members")
@dataclass(frozen=True, eq=False)
class CalibratedMembers(Checked):
    """The members of an ensemble, each with a calibrator of its own.

    `members` are in the order of those of the `Ensemble`.
    """

    members: tuple[CalibratedMember, ...]
    n_classes: int

    def __post_init__(self) -> None:
        super().__post_init__()
        members = self.members
        sound = isinstance(members, tuple) and len(members) > 0
        if not sound or not all(isinstance(m, CalibratedMember) for m in members):
            raise ValueError("`members` must be a tuple of calibrated members.")
        n_classes = self.n_classes
        if type(n_classes) is not int or any(
            member.columns.max() >= n_classes for member in members
        ):
            raise ValueError("`n_classes` must be the number of all classes.")

    @property
    def names(self) -> tuple[str, ...]:
        """The numbers of the members."""
        return tuple(map(str, range(len(self.members))))

    @property
    def exchangeable(self) -> bool:
        """False: each member has a calibrator of its own."""
        return False

    def read(self, ensemble: Ensemble, groups: object = None) -> Logits:
        """The logarithm (n, classes) of the mean calibrated probability."""
        proba, logits = self._proba(ensemble, groups)
        return log_probabilities_of(logits.xp.mean(proba, axis=0), logits)

    def read_single(
        self, ensemble: Ensemble, chosen: IntArray, groups: object = None
    ) -> Logits:
        """The logarithm (n, classes) of the calibrated probability of the `chosen`
        member (n,) of each row.
        """
        proba, logits = self._proba(ensemble, groups)
        index = logits.backend.from_host(chosen[None, :, None], proba)
        single = logits.xp.take_along_axis(proba, index, axis=0)[0, ...]
        return log_probabilities_of(single, logits)

    def _proba(self, ensemble: Ensemble, groups: object) -> tuple[Array, Logits]:
        """Calibrated probabilities (members, n, classes), and the last member's
        checked logits.
        """
        if ensemble.n_members != len(self.members):
            raise ValueError(
                f"`members` must be the scores of all {len(self.members)} models, in "
                f"their order; got {ensemble.n_members}."
            )
        member_proba = []
        for member, scores in zip(self.members, ensemble.members, strict=True):
            proba, logits = member.proba(scores, self.n_classes, groups)
            member_proba.append(proba)
        return logits.xp.stack(member_proba), logits

    def describe(self) -> str:
        """The members in a few words."""
        return f"the mean of {len(self.members)} calibrated members"


@dataclass(frozen=True, eq=False)
class SingleMembers:
    """Reads each row of an ensemble by one of its members, drawn by the row's place.

    The examples of a fit were scored by single models, so that rows to compare with
    them are as well.
    """

    members: CalibratedMembers

    @property
    def names(self) -> tuple[str, ...]:
        return self.members.names

    @property
    def exchangeable(self) -> bool:
        return self.members.exchangeable

    def read(self, ensemble: Ensemble, groups: object = None) -> Logits:
        """The logarithm (n, classes) of single members' calibrated probabilities."""
        draws = row_draws(0, ensemble.n_rows)
        chosen = (draws * len(self.members.members)).astype(np.int64)
        return self.members.read_single(ensemble, chosen, groups)

    def describe(self) -> str:
        """The members in a few words."""
        return f"one of {len(self.names)} calibrated members"


def log_probabilities_of(proba: Array, logits: Logits) -> Logits:
    """Log-probabilities (n, classes), -inf of 0, in the library of the logits."""
    xp = logits.xp
    is_zero = proba <= 0.0
    logs = xp.log(xp.where(is_zero, 1.0, proba))
    values = xp.where(is_zero, -np.inf, logs)
    return Logits(values, xp.max(values, axis=1), logits.backend)

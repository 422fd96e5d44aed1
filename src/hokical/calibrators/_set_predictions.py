"""Prediction sets and decisions of a fitted calibrator."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import NUMPY, Array, backend_of, float64_scope, to_input_library
from hokical._core.labels import as_labels
from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical.calibrators._certified_predictions import CertifiedPredictions
from hokical.guarantees._binomial import check_chance
from hokical.guarantees._conformity import row_draws, shift_draw
from hokical.guarantees._decisions import Decisions, Detections, decide
from hokical.guarantees._selective import Evidence
from hokical.guarantees._sets import CertifiedSets, PredictionSets, SetOptions
from hokical.rules._base import Rule


class SetPredictions(CertifiedPredictions):
    """What a `Calibrator` says with sets."""

    def predict_set(self, logits: Any, *, groups: Any = None, **options: Any) -> PredictionSets:
        """The classes that each row may have, with the `coverage` you ask for.

        After `certify` sets are by the calibrated probabilities, after `fit` alone by the
        classifier's own softmax, which has seen no labels. `docs/sets.md` says what is promised.

        Parameters
        ----------
        logits : array of shape (n, classes), or TopK
        coverage : float
            Share of new examples whose true class is to be in the set, on average over the
            examples that it was certified on.
        delta : float, optional
            With probability 1 - delta over those examples the coverage is reached.
        by : {"all", "class", "group"}
            Whom it is promised to: all together, each true class, or each of the `groups` (n,)
            that `certify` knows; with `delta`, to each with that certainty, not to all at once.
            Those with too few examples share a threshold.
        kind : {"smallest", "adaptive", "ordered"}
            Every class above a probability, the smallest sets on average; or the likeliest classes
            until their probabilities sum to a threshold (APS), larger where rows are difficult; or,
            of classes whose columns are in order (grades, stages), a run of neighbours; the last
            is `ordered=True`, too.
            There, `penalty` for every rank beyond `free_ranks` keeps sets small (RAPS), and
            `random_state` makes coverage exact by a draw for each row, with `allow_empty`.
        max_size : int, optional
            At most so many classes; `guarantee` says what coverage they reach. Not with `by`.
        allow_empty : bool
            Without it the likeliest class is in every set, which only adds coverage.

        Examples
        --------
        >>> from hokical import make
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (logits, labels) = demo_logits()
        >>> cal = make("temps").fit(val_logits, val_labels).certify(logits[:5000], labels[:5000])
        >>> found = cal.predict_set(logits[5000:], coverage=0.98)
        >>> found.labels(0), float(found.sizes.mean().round(2))
        ([5], 1.39)
        """
        asked = self._certified_sets(SetOptions(**options))
        by_group = asked.options.by == "group"
        if (groups is None and by_group) or not (
            groups is None or by_group or hasattr(self, "groups_")  # in the fit, used or not
        ):
            raise ValueError(
                '`groups` must be given with `by="group"`, or to a calibrator that learned from '
                "them, and with nothing else."
            )
        logits, groups = self.with_groups(logits, groups), groups if by_group else None
        given = logits.given if isinstance(logits, Logits) else logits
        if groups is not None or asked.options.random_state is not None:
            members = to_input_library(self._members_by_row(asked, logits, groups), given)
        else:
            members = self._with_rule(asked.rule(self.rule_)).output("members", logits)
        with float64_scope(given):
            sizes = _count(members)
        top = logits if isinstance(logits, TopK) and logits.hidden.any() else None
        other = None if top is None else (members & ~top.mark_seen()).any(axis=1)
        about = (asked.options, asked.certified_on, asked.guarantee(), asked.least_and_most())
        names = self.class_names or None
        seen = None if top is None else top.indices
        return PredictionSets(members, sizes, *about, other, names, seen)

    def describe_sets(self, promise: str, **options: Any) -> str:
        """What sets rest on, in words, after a promise about items of many rows."""
        return self._certified_sets(SetOptions(**options)).guarantee(promise, "items")

    def with_sets(self, **options: Any) -> Self:
        """A copy that also answers with sets, for what takes a calibrator.

        `options` are those of `predict_set`, without groups and draws. `answer("members", logits)`
        gives them; so do `hokical.streams.predict(cal, source, what="members")`, the torch module
        (`members`) and an exported ONNX graph (output `members`).
        """
        asked = SetOptions(**options)
        if asked.by == "group" or asked.random_state is not None:
            raise ValueError('`by="group"` and `random_state` are for `predict_set` alone.')
        return self._with_rule(self._certified_sets(asked).rule(self.rule_))

    def predict_action(self, logits: Any, costs: Any, *, groups: Any = None) -> Decisions:
        """The action of least expected cost for each row, with what it is expected to cost.

        `costs` (classes, actions) has the cost of each action for each true class. With a column
        per class, actions are labels.

        >>> from hokical import make
        >>> cal = make("uncalibrated").fit([[2.0, 0.0], [0.0, 1.0]], [0, 1])
        >>> found = cal.predict_action([[2.0, 0.0]], [[0.0, 1.0], [50.0, 0.0]])
        >>> found.actions, found.costs.round(2)
        (array([1]), array([0.88]))
        """
        return decide(self.predict_proba(logits, groups=groups), costs, self.n_classes_)

    def detect(
        self,
        logits: Any,
        label: Any,
        *,
        recall: float = 0.95,
        delta: float | None = None,
        groups: Any = None,
    ) -> Detections:
        """Which rows to report as perhaps of one class, so that few of it are missed.

        Of new examples whose true class is `label`, at least a share `recall` is found; with
        `delta`, with probability 1 - delta over the examples of `certify` or `fit`. A new balance
        (`with_balance`) changes nothing of that: rows of one class look as before.

        >>> from hokical import make
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (logits, labels) = demo_logits()
        >>> cal = make("temps").fit(val_logits, val_labels).certify(logits[:5000], labels[:5000])
        >>> found = cal.detect(logits[5000:], 3, recall=0.99)
        >>> bool(found.flagged[labels[5000:] == 3].mean() > 0.98)
        True
        """
        index = as_labels([label], 1, self.n_classes_, name="label", classes=self.class_names)[0]
        options = SetOptions(check_chance("recall", recall), delta, allow_empty=True)
        asked = self._certified_sets(options, only=int(index))
        logits = self.with_groups(logits, groups)
        members = self._with_rule(asked.rule(self.rule_)).output("members", logits)
        words = f"Of new examples of class {label}, at least {recall:.4g} are found"
        held = {"full": "Every row is flagged", "held": "{:.1%} are found"}
        sentence = asked.guarantee(words, **held)
        return Detections(members[..., int(index)], asked.least_and_most(), sentence)

    def _certified_sets(self, asked: SetOptions, only: int | None = None) -> CertifiedSets:
        """Thresholds by the best examples there are, or by those of one class."""
        self.check_fitted()
        source: Evidence = "fit" if self.held_out_conformity_ is None else "held-out"
        known = self.held_out_conformity_ or self.fit_conformity_
        if known is None:
            raise ValueError(
                "prediction sets have no examples to go by: those of the fit were not kept, or are "
                "no test of it (weights, pixels or tokens of the same items, folds of a "
                "cross-validation). Call `certify(logits, labels)` first, with examples that "
                "nothing was fitted on."
            )
        if only is not None:
            known = known.take(known.labels == only)
            if source == "fit":  # one class counts alike: a new balance weighs classes
                known = replace(known, weights=None, unit=1.0)
        return CertifiedSets(asked, known, source, self.n_classes_)

    def _with_rule(self, rule: Rule) -> Self:
        twin = copy(self)
        twin.rule_ = rule
        return twin

    def _members_by_row(self, asked: CertifiedSets, logits: Any, groups: Any) -> NDArray[Any]:
        """Members on the host, with a threshold or a draw for each row."""
        data, seed = self._check_logits(logits), asked.options.random_state
        cells = asked.cells_of(groups, data.n_rows)
        members = np.zeros((data.n_rows, data.n_classes), np.bool_)
        for cell in np.unique(cells):
            rows = np.flatnonzero(cells == cell)
            part = data.take(rows)
            rule = asked.rule(self.rule_, int(cell)).on_device_of(part)
            draw = None if seed is None else part.from_host(shift_draw(row_draws(part), seed))
            with data.backend.in_float64():
                members[rows] = data.to_host(rule.members(part, draw))
        return members


def _count(members: Array) -> Array:
    """The number of members of each row, (n,)."""
    if isinstance(members, np.ndarray):
        return np.count_nonzero(members, axis=1)
    xp = (backend_of(members) or NUMPY).namespace(members)
    return members.sum(axis=1) if xp is np else xp.sum(xp.astype(members, xp.int64), axis=1)

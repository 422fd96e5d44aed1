"""The one class of calibrators, fitted or loaded: a rule, and what it keeps for
guarantees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal, Self, get_type_hints

import numpy as np

from hokical._core import arrays, reading, runtime
from hokical._core.arrays import NUMPY, Array, FloatArray, backend_of, float64_scope
from hokical._core.checks import check_choice
from hokical._core.conversion import SUM_SLACK, as_two_columns, from_probabilities
from hokical._core.groups import count_rows, read_columns, take_rows, with_groups
from hokical._core.logits import Logits, TopK, as_logits, check_rows
from hokical._core.reading import Rows
from hokical._core.storage import CalibratorFileError, fingerprint
from hokical._fitting.examples import (
    Examples,
    Partition,
    read_sample,
    warn_about_examples,
)
from hokical._fitting.searches import choose_floor, with_floor
from hokical.calibrators import stored
from hokical.calibrators.stored import (
    Decisions,
    Fit,
    StoredEstimator,
    check_stored,
    decide,
)
from hokical.guarantees import calibration_data, scores, sets, shift
from hokical.guarantees.bounds import check_chance
from hokical.guarantees.calibration_data import CalibrationData, HeldOutPart, Reused
from hokical.guarantees.control import (
    RiskControl,
    can_be_counts,
    control_risk,
    percent,
    remembered,
)
from hokical.guarantees.scores import Evidence, ScoredLabels, SelectivePrediction
from hokical.rules import base
from hokical.rules.base import BalancedRule, FlooredRule, Rule, SetRule

#: Rows from which on a column that counts them is no coincidence.
_FEWEST_ROWS = 10
#: Beyond so many classes, `certify` does not count examples by the probability of each.
_MOST_DENSE_CLASSES = 1024
#: More classes than this mean a damaged file.
_MOST_COLUMNS = 1 << 31
#: Why the examples of a fit can prove nothing.
_NO_TEST = (
    "are no test of it (unequal weights, pixels or tokens of the same items, folds of "
    "a cross-validation, or a file before 0.4 of a method that may change labels)"
)
#: What every error about missing examples ends with.
_CERTIFY = (
    "Call `certify(logits, labels)` first, with examples that nothing was fitted on."
)


class Calibrator(StoredEstimator):
    """Labels, confidence and probabilities for logits, and guarantees about them.

    The base of all methods. A subclass has a `method` (`MethodInfo`) and a `_fit`,
    which gets `Examples` and returns a `Fit`; see CONTRIBUTING.md. `hokical.load` gives
    an object of the class that was saved.
    """

    rule_: Rule
    n_classes_: int
    n_features_in_: int
    classes_: Any
    #: What is kept of the calibration examples for guarantees that are asked for later.
    kept_: CalibrationData
    #: Names of the classes in the order of the columns, where known.
    class_names: tuple[str, ...] = ()

    def fit(
        self,
        logits: Any,
        labels: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        classes: Sequence[str] = (),
        score_columns: Sequence[str] = (),
    ) -> Self:
        """Learn from validation logits (n, classes) and labels (n,), which are column
        indices.

        `logits` are the classifier's scores on examples it was not trained on, an array
        of any library, which stays on its device, or a `TopK`; -inf marks a masked
        class. For files, chunks and iterators use `hokical.streams.fit`.
        `sample_weight` (n,) are the weights of the examples.

        Of more than 4 million logits, a uniform sample of rows is used (`Hoki` uses all
        rows): at most 4 million logits and 200,000 rows, chosen by their row numbers,
        so that the result is the same in every run and for every container. All rows
        are checked, and counted for guarantees.

        A table of any Arrow engine (pyarrow, Polars, DuckDB, pandas) is taken with the
        name of its column of labels, `fit(table, "label")`; `sample_weight` and
        `groups` are names of columns then. Scores are found as in files: a column
        `logits` of lists, `logit_*`, `prob_*`, columns named like the values of the
        label, or those named in `score_columns`. A warning names other numeric columns.
        `classes` are the names of the classes in the order of the columns; labels may
        be such names.

        `groups`, from which only the default learns, are properties of the rows that
        the classifier may not know, such as a site: text or numbers (n,), or several
        columns (a mapping, a DataFrame, a structured array or (n, columns)). Columns
        that clearly help on held-out examples are used, and `predict` and its like then
        need them; `reason_` names them. Numeric columns with more than 20 distinct
        values are binned at their deciles, or into 30 quantile bins from 50,000
        examples on.
        """
        names: dict[str, Any] = {"classes": classes, "score_columns": score_columns}
        given = self._pair(logits, labels, sample_weight, groups, **names)
        vars(self).pop("rule_", None)  # an interrupted fit leaves no half-fitted state
        self._columns = given.columns
        vars(self).pop(
            "class_names", None
        )  # of an earlier fit; scikit-learn allows no empty one
        if known := tuple(map(str, classes)) or given.classes:
            self.class_names = known
        with float64_scope(given.scores):
            examples = self._partition(given)
            if classes and not len(classes) == len({*classes}) == examples.n_classes:
                rule = (
                    f"`classes` must name each of the {examples.n_classes} columns of "
                    "`logits`"
                )
                raise ValueError(
                    f"{rule} once; got {list(classes)}. Give each its own name."
                )
            self._fit_partition(examples)
        self.metadata_ = dict(given.about)
        return self

    def predict(self, logits: Any, *, groups: Any = None) -> Array:
        """Labels (n,): the most likely class, or the classifier's own where the method
        keeps it.

        By default the label is the first maximum of `predict_proba`. Methods whose rule
        has `preserves_labels`, and the default with `keep_labels=True`, give the
        classifier's own.

        `logits` (n, classes) is an array of any library (NumPy, torch, JAX, CuPy,
        Dask), or a `TopK`; the output has the same library and device. Files, chunks
        and iterators go through `hokical.streams`. `groups` are those of the rows, as
        in the fit: a calibrator that learned from groups needs them, and others ignore
        them. Rows whose group is missing or was not in the fit get the prediction for
        all groups, and a warning counts them.
        """
        return self._output("labels", logits, groups)

    def predict_confidence(self, logits: Any, *, groups: Any = None) -> Array:
        """The probability (n,) that each predicted label is right."""
        return self._output("confidence", logits, groups)

    def predict_proba(
        self, logits: Any, *, groups: Any = None, dtype: Any = None
    ) -> Array:
        """Probabilities (n, classes); rows sum to 1 and masked classes (-inf) get 0.

        The only possible class of a row gets 1, whatever the confidence. The classes
        that a `TopK` leaves out share the remaining probability evenly. Where a method
        keeps the classifier's label, and its confidence is low, another class can be
        more likely; `predict` is still the label. `dtype="float32"` gives NumPy arrays
        of half the size, computed in float64 all the same; other libraries return the
        type of the logits.
        """
        narrow = False
        if dtype is not None and backend_of(logits) in (None, NUMPY):
            narrow = np.dtype(dtype) == np.float32
            if not narrow and np.dtype(dtype) != np.float64:
                raise ValueError(
                    f"`dtype` must be 'float32' or 'float64'; got {dtype!r}."
                )
        return self._output("proba", logits, groups, narrow=narrow)

    def predict_support(self, logits: Any, *, groups: Any = None) -> Array:
        """Which rows (n,) lie in the range of the calibration examples.

        A row is outside if the softmax log-odds of its label, or its top logit, lie
        outside the range of the calibration examples. Confidence is an extrapolation
        there. Of n calibration examples and one more from the same distribution, the
        last is outside with probability at most 4 / (n + 1); many such rows mean that
        the distribution has changed.

        >>> from hokical import Hoki
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (test_logits, _) = demo_logits()
        >>> cal = Hoki().fit(val_logits, val_labels)
        >>> bool(cal.predict_support(test_logits).mean() > 0.99)
        True
        >>> bool(cal.predict_support(20 * test_logits).mean() < 0.5)
        True
        """
        return self._output("support", logits, groups)

    def score(
        self, logits: Any, labels: Any, sample_weight: Any = None, *, groups: Any = None
    ) -> float:
        """The negative Brier score of the confidence: larger is better, 0 is
        perfect.
        """
        self._check_fitted()
        rows = self._read(logits, labels, sample_weight, groups)
        found, confidence = base.labels_and_confidence(self.rule_, rows.scores)
        return -float(
            np.average((confidence - (found == rows.labels)) ** 2, weights=rows.weights)
        )

    def certify(
        self,
        logits: Any,
        labels: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        cluster: Any = None,
        counts: bool = False,
        reused: Reused = "refuse",
    ) -> Self:
        """Count how often predictions are right on examples that were used for nothing
        else.

        `logits` (n, classes) and `labels` (n,) are of examples that neither the
        classifier nor this calibrator was fitted on. `predict_or_abstain`,
        `predict_interval` and `predict_set` then use these examples, until the next
        fit. `sample_weight` (n,) are importance weights, on any scale: how much more
        likely each example is in the future; only guarantees on average can use them.
        With `counts=True` they are whole numbers: how often each example was seen.
        `groups`, one column or several, are for `by="group"` and `by="new group"`, and
        for calibrators that learned from groups. Rows of the fit are refused;
        `reused="ignore"` accepts them where they only have the same values. A table is
        taken as by `fit`: `certify(table, "label")`.

        Guarantees assume independent examples. Where they belong together (images of a
        patient, answers to a question), `cluster` (n,) says which: one of each, chosen
        at random once, counts. What is guaranteed is then about a row of a new cluster,
        and counts clusters.
        """
        part = (logits, labels, sample_weight, groups)
        return self._certify_parts([part], reused, counts, cluster)

    def predict_or_abstain(
        self,
        logits: Any,
        *,
        risk: float = 0.05,
        delta: float = 0.1,
        by: Literal["all", "group", "new group"] = "all",
        groups: Any = None,
    ) -> SelectivePrediction:
        """Labels, and which of them to accept so that at most a fraction `risk` is
        wrong.

        With probability 1 - delta over the examples it was tested on, the error rate
        among accepted examples of the same distribution is at most `risk`. After
        `certify` the threshold is on the calibrated confidence, after `fit` alone on
        the classifier's own softmax score. The examples of the fit test the
        classifier's labels and no others: a label that calibration has changed is then
        not accepted, and the error rate counts among all rows that reach the threshold.
        If nothing can be accepted, `accepted` is False everywhere and `guarantee`
        states why, which risk can be proven, and how many examples the requested risk
        needs. With `by="group"` it is guaranteed for each of the `groups` that
        `certify` knows, with a threshold for each; rows of other groups are not
        accepted. With `by="new group"` it is guaranteed for a group that was never
        seen, drawn like those of `certify`, with probability 1 - delta over groups.

        >>> from hokical import Hoki
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
        >>> found = (
        ...     Hoki()
        ...     .fit(val_logits, val_labels)
        ...     .predict_or_abstain(test_logits, risk=0.02)
        ... )
        >>> wrong = found.labels[found.accepted] != test_labels[found.accepted]
        >>> bool(found.accepted.mean() > 0.5), bool(wrong.mean() < 0.02)
        (True, True)
        """
        asked: dict[str, Any] = {
            "risk": risk,
            "delta": delta,
            "by": by,
            "groups": groups,
        }
        lazy = arrays.lazy_arrays(logits)
        if by == "all" and groups is None and lazy is not None:
            accepted = lazy.predict(self, "accepted", logits, **asked)
            guarantee = self.predict_or_abstain(np.zeros((1, self.n_classes_)), **asked)
            own = {"labels": self.predict(logits), "accepted": accepted}
            return replace(guarantee, confidence=self.predict_confidence(logits), **own)
        judge = self._for_new_groups() if by == "new group" else self
        data = judge._check_logits(logits, groups)
        return judge._scored_labels(data, "predict_or_abstain").accept(logits, **asked)

    def predict_interval(
        self, logits: Any, *, delta: float = 0.05, label: Any = None, groups: Any = None
    ) -> Array:
        """A confidence interval (n, 2) for the accuracy of labels with a similar score.

        The calibration examples, or those of `certify`, are divided into groups of
        neighbouring scores; the interval misses the true accuracy of the example's
        group with probability at most `delta` (Clopper-Pearson). Rows of exactly this
        score can differ from their group, more so with few examples. The confidence is
        finer than a group: where it is outside, the interval is extended to it. After
        `fit` alone the accuracy is that of the classifier's labels: for a label that
        calibration has changed, the interval is from 0 to 1. Venn-Abers prediction has
        an interval of its own for the label's probability, without a `delta`, which is
        given until `certify` is called; with `label`, its p0 and p1 for that class.
        With `label` after `certify`: the interval is for the share of that class among
        rows with a similar probability of it, such as a risk of disease.

        >>> from hokical import Hoki
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
        >>> Hoki().fit(val_logits, val_labels).predict_interval(test_logits).shape
        (10000, 2)
        """
        delta = check_chance("delta", delta)
        lazy = arrays.lazy_arrays(logits)
        if groups is None and lazy is not None:
            return lazy.predict(self, "interval", logits, delta=delta, label=label)
        data = self._check_logits(logits, groups)
        index = None if label is None else self._class_index(label)
        known = (
            self.kept_.held_out_scores if label is None else self.kept_.held_out_classes
        )
        own = (
            self.rule_.on_device_of(data).interval(data, index)
            if known is None
            else None
        )
        if own is not None:
            found = np.stack([data.to_host(end) for end in own], axis=1)
        elif index is None:
            rows = self._scored_labels(data, "predict_interval")
            # Examples were counted one level away where that is conservative.
            found = rows.table.whole.intervals(rows.level, rows.confidence, delta)
            if rows.untested is not None:
                found[rows.untested] = 0.0, 1.0
        elif known is None:
            rule = (
                "`predict_interval` with a `label` has no examples to go by: they must "
                "count"
            )
            rule += (
                f" alike, and have all logits, of at most {_MOST_DENSE_CLASSES:,} "
                "classes"
            )
            raise ValueError(f"{rule}. {_CERTIFY}")
        else:
            proba = base.predict_on_host(self.rule_, "proba", data)[:, index].astype(
                np.float64
            )
            found = known.rows[index].intervals(
                scores.class_levels(proba), proba, delta
            )
        return arrays.to_input_library(found, logits)

    def predict_set(
        self, logits: Any, *, coverage: float = 0.9, groups: Any = None, **options: Any
    ) -> sets.PredictionSets:
        """The classes that each row may have, with the `coverage` you ask for.

        After `certify` sets are based on the calibrated probabilities, after `fit`
        alone on the uncalibrated softmax, which has seen no labels; see
        `docs/guarantees.md`.

        Parameters
        ----------
        logits : array of shape (n, classes), or TopK
        coverage : float
            Share of new examples whose true class is to be in the set, on average over
            the examples that it was certified on.
        delta : float, optional
            With probability 1 - delta over those examples the coverage is reached.
        by : {"all", "class", "group", "new group"}
            Whom it is guaranteed for: all together, each true class, or each of the
            `groups` (n,) that `certify` knows; with `delta`, for each with that
            probability, not for all at once. Those with too few examples share a
            threshold. "new group": for a group that was never seen, drawn like those of
            `certify`, on average or with probability 1 - delta over groups.
        pooled : bool
            With `by="class"`, for many classes with few examples of each: thresholds in
            proportion to the class frequencies among the certified examples, so that
            rare classes are covered like others; the coverage is then guaranteed on
            average over all.
        kind : {"smallest", "adaptive", "ordered"}
            Every class above a probability, the smallest sets on average; or the
            likeliest classes until their probabilities sum to a threshold (APS), larger
            where rows are difficult; or, of classes whose columns are in order (grades,
            stages), a run of neighbours. `penalty` for every rank beyond `free_ranks`
            keeps adaptive sets small (RAPS).
        allow_empty : bool
            Without it the likeliest class is in every set, which only adds coverage.

        Examples
        --------
        >>> from hokical import make
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (logits, labels) = demo_logits()
        >>> cal = (
        ...     make("temps")
        ...     .fit(val_logits, val_labels)
        ...     .certify(logits[:5000], labels[:5000])
        ... )
        >>> found = cal.predict_set(logits[5000:], coverage=0.98)
        >>> found.labels(0), float(found.sizes.mean().round(2))
        ([5], 1.39)
        """
        asked = self._certified_sets(
            sets.SetOptions.read({"coverage": coverage, **options})
        )
        judge = self._for_new_groups() if asked.options.by == "new group" else self
        by_group = asked.options.by == "group"
        certified = asked.examples.group_names
        known = (
            getattr(self, "groups_", None) is not None or certified is not None
        )  # used or not
        if (groups is None and by_group) or not (groups is None or by_group or known):
            raise ValueError(
                '`groups` must be given with `by="group"`, or to a calibrator that learned from '
                "them or was certified with them, and with nothing else."
            )
        if (
            groups is not None
            and certified is not None
            and asked.options.by in ("all", "class")
        ):
            fate = "may be covered less than the guarantee says"
            certified.match(groups, count_rows(groups), fate)
        given = getattr(logits, "given", logits)
        n_unknown = 0
        if by_group:
            data = self._check_logits(logits, groups)
            assert certified is not None  # or there are no thresholds by group
            cells, n_unknown = certified.match(groups, data.n_rows, "get every class")
            found = np.zeros((data.n_rows, data.n_classes), np.bool_)
            for cell in np.unique(cells):
                own = np.flatnonzero(cells == cell)
                rule = asked.rule(self.rule_, int(cell))
                found[own] = base.predict_on_host(rule, "members", data.take(own))
            members = arrays.to_input_library(found, given)
        else:
            members = judge._with_rule(asked.rule(judge.rule_))._output(
                "members", logits, groups
            )
        with float64_scope(given):
            xp = (backend_of(members) or NUMPY).namespace(members)
            sizes = xp.sum(
                members if xp is np else xp.astype(members, xp.int64), axis=1
            )
        names = self.class_names or None
        other = None
        seen = None
        if isinstance(logits, TopK) and logits.hidden.any():
            other = (members & ~logits.mark_seen()).any(axis=1)
            seen = logits.indices
        about = (
            asked.options,
            asked.certified_on,
            asked.guarantee(),
            asked.least_and_most(),
        )
        hidden: Any = {"other": other, "classes": names, "seen": seen}
        return sets.PredictionSets(
            members, sizes, *about, **hidden, n_unknown=n_unknown
        )

    def predict_action(
        self, logits: Any, costs: Any, *, groups: Any = None
    ) -> Decisions:
        """The action of least expected cost for each row, with what it is expected to
        cost.

        `costs` (classes, actions) has the cost of each action for each true class. With
        a column per class, actions are labels. For two classes, `(false_positive,
        false_negative)` or `{"fp": 1, "fn": 10}` is enough. A mapping of names of
        actions to costs (classes,), or to one number, names them.

        >>> from hokical import make
        >>> cal = make("uncalibrated").fit([[2.0, 0.0], [0.0, 1.0]], [0, 1])
        >>> found = cal.predict_action([[2.0, 0.0]], costs=(1.0, 50.0))
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
        by: Literal["all", "new group"] = "all",
        groups: Any = None,
    ) -> sets.Detections:
        """Flag rows that may be of one class, so that few of its examples are missed.

        Of new examples whose true class is `label`, at least a share `recall` is found;
        with `delta`, with probability 1 - delta over the examples of `certify` or
        `fit`. This does not depend on class frequencies (`reweight_classes`). With
        `by="new group"` this holds in a group that was never seen, drawn like those of
        `certify` that have examples of the class: on average over groups or, with
        `delta`, with probability 1 - delta.

        >>> from hokical import make
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (logits, labels) = demo_logits()
        >>> cal = (
        ...     make("temps")
        ...     .fit(val_logits, val_labels)
        ...     .certify(logits[:5000], labels[:5000])
        ... )
        >>> found = cal.detect(logits[5000:], 3, recall=0.99)
        >>> bool(found.flagged[labels[5000:] == 3].mean() > 0.98)
        True
        """
        self._check_fitted()
        index = self._class_index(label)
        check_choice(
            "by", by, Literal["all", "new group"], "`predict_set` takes the others."
        )
        judge = self._for_new_groups() if by == "new group" else self
        options = sets.SetOptions(
            check_chance("recall", recall), delta, by, allow_empty=True
        )
        asked = self._certified_sets(options, only=index)
        members = judge._with_rule(asked.rule(judge.rule_))._output(
            "members", logits, groups
        )
        name = self.class_names[index] if self.class_names else index
        words = f"Recall of class {name} at least {percent(recall)}"
        words = asked.guarantee(words, true=f"true class is {name} and")
        return sets.Detections(members[..., index], asked.least_and_most(), words)

    def reweight_classes(self, frequencies: Any) -> Self:
        """A copy for other class frequencies, which are known: (classes,), with a sum
        of 1.

        They are in the order of the columns, or a mapping of all classes (names, where
        the calibrator knows them, or column numbers) to frequencies. For screening, for
        over- and under-sampled data, for class weights in training. Probabilities
        become p(k | x) times new frequency / frequency in the fit; labels are the
        likeliest classes. It is a calibrator like any other. What `certify` counted is
        dropped; sets use the calibration examples, each weighted by how much more
        frequent its class has become.

        >>> import numpy as np
        >>> from hokical import make
        >>> cal = make("uncalibrated").fit([[2.0, 0.0], [0.0, 2.0]], [0, 1])
        >>> cal.reweight_classes([0.9, 0.1]).predict_proba([[0.0, 0.0]]).round(2)
        array([[0.9, 0.1]])
        """
        known = self._kept("class_scores")
        return self._reweight(
            shift.class_weights(self.rule_, known, frequencies, self.class_names)
        )

    def estimate_shift(
        self,
        logits: Any,
        *,
        sample_weight: Any = None,
        delta: float = 0.05,
        groups: Any = None,
    ) -> shift.ShiftEstimate:
        """The class frequencies and the accuracy on new rows, which need no labels.

        It assumes *label shift*: class frequencies have changed, and the rows of each
        class have the same distribution as in the fit. `holds` and `verdict` say
        whether that explains the rows; where it does not, intervals are from 0 to 1.
        See `docs/shift.md`.

        Without `groups`, a calibrator that learned from groups is used without them, so
        that the groups of these rows need not be known. That of `adapt()` has them, and
        asks for them.

        Parameters
        ----------
        logits : array of shape (n, classes)
            Of any library, rows drawn independently. Of more than 2^24 / classes rows,
            that many are used.
        sample_weight : array of shape (n,), optional
        delta : float
            Probability that an interval misses.
        groups : array-like of shape (n,), or several columns, optional
            For `by_group`: an estimate for the rows of each group, whose pseudo-counts
            are in proportion to the class frequencies of all rows. Verdicts allow for
            the number of groups. A calibrator that learned from groups takes them as in
            its fit: rows of a group are compared with the examples of that group, if at
            least 100 were in the fit, and its `old_class_frequencies` are those of the
            group.

        Examples
        --------
        >>> import numpy as np
        >>> from hokical import make
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (logits, labels) = demo_logits()
        >>> cal = make("temps").fit(val_logits, val_labels)
        >>> rows = np.flatnonzero((labels != 3) | (np.arange(len(labels)) % 10 == 0))
        >>> found = cal.estimate_shift(logits[rows])
        >>> (
        ...     found.verdict,
        ...     bool(found.class_frequencies[3] < 0.5 * found.old_class_frequencies[3]),
        ... )
        ('consistent with label shift', True)
        >>> cal.estimate_shift(0.5 * logits).verdict
        'not label shift: estimates withheld'
        """
        known = self._kept("class_scores")
        delta = check_chance("delta", delta)
        if not known.cells.size:
            rule = (
                "needs the logits of all classes, up to 4096 of them, in the fit and "
                "now"
            )
            raise ValueError(
                f"`estimate_shift` {rule}: the best ones of each row are not enough."
            )
        reading.pair_rows(logits, None, sample_weight, groups)
        learned = groups is not None and self.rule_.needed_groups is not None
        if learned and self.kept_.group_scores is None:
            raise ValueError(
                "`groups` cannot be given: what the fit saw of each group was not "
                "stored with this calibrator, as in files before 0.5. Fit it again, or "
                "leave them out."
            )
        judge = self if learned else self._without_groups()
        most = shift.MOST_NUMBERS // self.n_classes_
        given, weights, chosen = shift.sample_rows(logits, sample_weight, most)
        if groups is not None and chosen is not None:
            groups = take_rows(read_columns(groups, count_rows(groups)), chosen)
        with float64_scope(given):
            data = judge._check_logits(given, groups)
            data = data.with_every_class("estimate_shift", "Give it all logits")
            counts = reading.as_weights(weights, data.n_rows)
            counts = np.ones(data.n_rows) if counts is None else counts
            return shift.estimate_shift(self, judge.rule_, data, counts, delta, groups)

    def control_risk(
        self,
        logits: Any,
        labels: Any,
        sample_weight: Any = None,
        *,
        loss: Any,
        risk: Any,
        delta: float | None = None,
        thresholds: Any = None,
        by: Literal["all", "class", "group", "new group"] = "all",
        groups: Any = None,
        reused: Reused = "refuse",
    ) -> RiskControl:
        """The last threshold at which the mean of a loss of your own is proven to be
        small.

        Parameters
        ----------
        logits, labels
            Examples that nothing was fitted on, as for `certify`.
        loss : callable, array of shape (n, thresholds), or a mapping of names to such
            `loss(proba, labels, threshold)` gives a number in [0, 1] for each example
            (n,), NaN for those that do not count: the mean is over the others, such as
            the wrong among those found. Several losses are bounded at once.
        risk : float, or a mapping of names to floats
            What the mean loss of new examples must not exceed.
        delta : float, optional
            With probability 1 - delta over these examples it does not. Without it, on
            average over them, which needs losses that count every example and never
            fall along the thresholds.
        thresholds : array of shape (m,)
            In the order in which they are tested, the safest first; 0, 0.01, ..., 1 by
            default.
        by : {"all", "class", "group", "new group"}
            For whom: all together, or also each true class, or each of the `groups`;
            or, in their place, a new group that is drawn like the `groups`.

        Examples
        --------
        >>> import numpy as np
        >>> from hokical import make
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (logits, labels) = demo_logits()
        >>> cal = make("temps").fit(val_logits, val_labels)
        >>> def missed(proba, labels, threshold):  # class 3 is not found
        ...     return np.where(labels == 3, proba[:, 3] < threshold, np.nan)
        >>> found = cal.control_risk(logits, labels, loss=missed, risk=0.2, delta=0.1)
        >>> bool(0.3 < found.threshold < 0.5)
        True
        """
        judge = self._for_new_groups() if by == "new group" else self
        rows = judge._read_held_out(reused, logits, labels, sample_weight, groups)
        data, truth, weights, groups, *_ = rows
        if groups is not None and (known := self.rule_.needed_groups) is not None:
            # Columns in the order of the fit, then those that it did not use.
            given = read_columns(groups, count_rows(groups))
            groups = {
                name: given[name] for name in (*known.columns, *given) if name in given
            }
        if by == "class":  # each is a group
            names = self.class_names or range(self.n_classes_)
            by = "group"
            groups = [names[k] for k in truth.tolist()]
        proba = base.predict_on_host(judge.rule_, "proba", data)
        options: dict[str, Any] = {
            "delta": delta,
            "thresholds": thresholds,
            "weights": weights,
        }
        groups = None if by == "all" else groups  # predictions alone may need them
        options |= {"by": by, "groups": groups, "kinds": '"all", "class"'}
        return control_risk(proba, truth, loss=loss, risk=risk, **options)

    def forget_examples(self) -> None:
        """Discard what was counted of the calibration examples, where these are not
        independent.
        """
        self._check_fitted()
        self.kept_ = self.kept_.without_fit()

    def _are_of_fit(self, rows: Rows) -> bool:
        # Where another method chose to learn nothing, it did so by these rows.
        learned = self.name != "uncalibrated" or bool(self.rule_.numbers())
        known = self.kept_.fit_rows
        hashes = calibration_data.row_hashes
        return (
            learned and known is not None and known.holds_too_many(hashes(rows.scores))
        )

    def _class_index(self, label: Any) -> int:
        """The column of a class, by its name or its number."""
        known = self.class_names if isinstance(label, str) else range(self.n_classes_)
        if label not in known:
            names = (
                f", or a name: {', '.join(self.class_names[:6])}"
                if self.class_names
                else ""
            )
            rule = (
                "`label` must be a class, its column from 0 to "
                f"{self.n_classes_ - 1}{names}"
            )
            raise ValueError(f"{rule}; got {label!r}. Choose one of them.")
        return known.index(label)

    def _certify_parts(
        self,
        parts: Iterable[Any],
        reused: Reused = "refuse",
        counts: bool = False,
        cluster: Any = None,
    ) -> Self:
        """`certify` with examples in parts: (logits, labels), with weights, and with
        groups.
        """
        noted = []
        unseen = []
        alone = self._for_new_groups()
        for part in parts:
            rows = self._read_held_out(reused, *part, cluster=cluster)
            noted.append(_note(self.rule_, rows, counts))
            if alone is not self and rows.groups is not None:
                data = Logits(rows.scores.values, rows.scores.top, rows.scores.backend)
                unseen.append(_note(alone.rule_, rows._replace(scores=data), counts))
        if not noted:
            raise ValueError("there must be at least one part with examples; got none.")
        self.kept_ = self.kept_.with_held_out(noted, unseen, cluster is not None)
        return self

    def _certified_sets(
        self, asked: sets.SetOptions, only: int | None = None
    ) -> sets.CertifiedSets:
        """Thresholds by the best examples there are, or by those of one class."""
        self._check_fitted()
        source: Evidence = (
            "fit" if self.kept_.held_out_conformity is None else "held-out"
        )
        known = self.kept_.held_out_conformity or self.kept_.fit_conformity
        if known is None:
            reason = f"those of the fit were not kept, or {_NO_TEST}"
            raise ValueError(
                f"prediction sets have no examples to go by: {reason}. {_CERTIFY}"
            )
        if asked.by == "new group":
            known = known.unseen or known
        if only is not None:
            known = _of_class(known, only, source)
        return sets.prove_sets(known, asked, source, self.n_classes_)

    def _scored_labels(self, data: Logits, asked: str) -> ScoredLabels:
        """Labels with held-out examples that test them, or those of the fit; or an
        error.

        It names what was `asked` for, and says how to get examples.
        """
        rule = self.rule_
        kept = self.kept_
        labels, confidence = base.labels_and_confidence(rule, data)
        if kept.held_out_scores is not None:
            level = scores.score_levels(scores.confidence_log_odds(confidence))
            return ScoredLabels(
                labels, confidence, level, kept.held_out_scores, "held-out"
            )
        if kept.held_out_conformity is not None:
            raise ValueError(
                f"`{asked}` needs held-out examples of equal weight; those of "
                "`certify` have unequal ones, with which only guarantees on average "
                "hold: use `predict_set`. If the weights are numbers of examples, "
                "call `certify(..., counts=True)`."
            )
        if kept.fit_scores is None:
            old = "and of an earlier `certify` have the old class frequencies"
            reason = f"of its fit {old if isinstance(rule, BalancedRule) else _NO_TEST}"
            raise ValueError(
                f"`{asked}` has no examples to go by: those {reason}. {_CERTIFY}"
            )
        level = scores.score_levels(data.to_host(scores.label_log_odds(data)))
        # Examples of a fit test the classifier's own labels, which do not depend on
        # them.
        other = None if rule.preserves_labels else labels != data.to_host(data.labels)
        return ScoredLabels(labels, confidence, level, kept.fit_scores, "fit", other)

    def _with_rule(self, rule: Rule, kept: CalibrationData | None = None) -> Self:
        """A copy with another rule, and other calibration data if given."""
        twin = copy(self)
        twin.rule_ = rule
        twin.kept_ = kept or self.kept_
        return twin

    def _reweight(self, weights: FloatArray) -> Self:
        """A copy for rows among which each class is `weights` (classes,) times as
        frequent.
        """
        return self._with_rule(*shift.reweight(self.rule_, self.kept_, weights))

    def _for_new_groups(self) -> Self:
        """A copy that predicts for all groups alike, with what `certify` noted of
        such rows.
        """
        self._check_fitted()
        unchanged = self.rule_.needed_groups is None
        return self if unchanged else self._with_rule(shift.drop_groups(self.rule_))

    def _without_groups(self) -> Self:
        """A copy that predicts for all groups alike; itself, if it did not learn from
        groups.

        Sets go by the classifier's own scores of the fit, which do not depend on
        groups; for abstention and intervals it has no examples: those of the fit were
        of other predictions.
        """
        twin = self._for_new_groups()
        if twin is not self:
            kept = self.kept_.without_fit().without_held_out()
            twin.kept_ = replace(kept, fit_conformity=self.kept_.fit_conformity)
        return twin

    def _check_parameters(self) -> None:
        """Raise ValueError for an invalid parameter."""

    def _fit(self, examples: Examples) -> Fit:
        """Learn the rule from rows in memory."""
        raise TypeError(f"{type(self).__name__} does not implement `_fit`.")

    def _partition(self, given: Rows, fitted_by: Any = None) -> Partition:
        """Rows as `_pair` gives them as examples of a fit; `fitted_by` an earlier
        fit, if any.
        """
        logits = given.scores
        labels = given.labels
        lazy = (backend_of(logits) or NUMPY).lazy
        if lazy is not None:
            examples: Partition = lazy.partition(*given[:3])
            examples.groups = given.groups
            return examples
        two = (
            as_two_columns(logits, fitting=True) if self.method.binary_only else logits
        )
        # Logits first: their errors point to `hokical.streams`.
        checked = as_logits(two, fitted_by=fitted_by).without_gradient()
        data = stored.acceptable(self.method, checked)
        if labels is None:
            rule = (
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None"
            )
            raise ValueError(f"{rule}: give `labels`, the true class of each row.")
        if data.is_numpy and data.tail is None and data.n_rows >= _FEWEST_ROWS:
            own = data.values
            first = (own[1:4] == own[:3] + 1.0) & np.isfinite(own[:3])
            for column in np.flatnonzero(first.all(axis=0)):
                if (own[1:, column] == own[:-1, column] + 1.0).all():
                    runtime.warn_user(
                        f"`logits` have a column, {column}, that counts the rows from "
                        f"{own[0, column]:g}, as an id does. Drop it: each column is a "
                        "class.",
                        runtime.FitDataWarning,
                    )
        values = reading.to_numpy(labels, "labels")
        names = self.class_names or self._columns
        if values.ndim == 1 and values.size and isinstance(values[0], str) and names:
            if not {*values.tolist()} <= {*names}:
                names = tuple(map(reading.class_of_column, names))
            self.class_names = names
        truth = reading.as_labels(values, data.n_rows, data.n_classes, classes=names)
        weights = reading.as_weights(given.weights, data.n_rows)
        return Examples(data, truth, weights, groups=given.groups)

    def _read(
        self,
        x: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        *,
        plain: bool = False,
    ) -> Rows:
        """Labelled rows for this calibrator: logits with the groups that it needs, or
        `plain` ones.

        Before a fit, the columns of a frame are put in the order of `_columns`.
        """
        known = self if hasattr(self, "rule_") else None
        given = self._pair(x, y, sample_weight, groups, fitted_by=known)
        if known is None or plain:
            columns = self._columns if known is None else ()
            scores = reading.order_columns(given.scores, "logits", columns)
            data = as_logits(scores, fitted_by=known)
        else:
            data = self._check_logits(given.scores, given.groups)
        names = self.class_names or given.classes
        truth = reading.as_labels(
            given.labels, data.n_rows, data.n_classes, classes=names
        )
        rows = self._checked(given, data, truth, data.n_rows)
        reading.warn_of_contradiction(data.to_host(data.labels), truth, rows.weights)
        return rows

    def _fit_partition(self, examples: Partition) -> Self:
        """Learn from examples that need not be in memory; `hokical.streams.fit` makes
        them.

        All are read once; the fit is on a sample of them, zeros raised to a floor.
        """
        self._begin_fit(examples)
        sample, stats = read_sample(examples, rows_per_class=self.method.rows_per_class)
        own = sample.logits
        reading.warn_of_contradiction(
            own.to_host(own.labels), sample.labels, sample.weights
        )
        needed = self.method.fits_floor and stats.has_zeros
        floor = choose_floor(sample.learnable) if needed else 0.0
        found = self._fit(with_floor(sample, floor) if needed else sample)
        if floor > 0.0:
            found = replace(found, rule=FlooredRule(floor, found.rule))
        self._keep(
            found,
            examples.n_classes,
            stored.count_examples(stats.kept, found.rule, sample),
        )
        why = found.report.get("message", found.report.get("reason"))
        if why and not found.report.get("converged", True):
            told = f"{type(self).__name__} did not converge: {why}"
            runtime.warn_user(told, runtime.ConvergenceWarning)
        warn_about_examples(self.name, stats, found.rule)
        return self

    def _begin_fit(self, examples: Partition) -> None:
        """Check parameters, classes and groups; an interrupted fit leaves no
        half-fitted state.
        """
        self._check_parameters()
        if self.method.binary_only and examples.n_classes != 2:
            rule = f"`{self.name}` takes two classes; got {examples.n_classes}"
            raise ValueError(f"{rule}. For more use `structured` or `auto`.")
        if examples.groups is not None and not self.method.learns_groups:
            rule = (
                f"`groups` must be None for `{self.name}`; got some. Only the default "
                "learns"
            )
            raise ValueError(f"{rule} from groups: use `auto`, or leave them out.")
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _keep(self, found: Fit, n_classes: int, kept: CalibrationData) -> None:
        """Store the result of a fit; what `certify` counted for an earlier fit is
        dropped.
        """
        self.rule_ = found.rule
        self._report = found.report
        self.kept_ = kept
        vars(self).setdefault("metadata_", {})  # `partial_fit` keeps it
        self.n_classes_ = self.n_features_in_ = n_classes
        shown = {
            "classes": np.arange(n_classes),
            **found.rule.own_fields(),
            **found.report,
        }
        vars(self).update({f"{name}_": value for name, value in shown.items()})

    def _output(
        self, what: Any, logits: Any, groups: Any = None, *, narrow: bool = False
    ) -> Array:
        """The output of a `predict` method: "labels", "confidence", "proba", "support",
        "members".

        "members" (n, classes), bool, are those of a calibrator `with_sets`.
        Probabilities of other libraries than NumPy are float32 if the logits are floats
        but not float64; those of NumPy if `narrow`.
        """
        self._check_fitted()
        if what == "members" and not isinstance(self.rule_, SetRule):
            remedy = (
                "pass `hokical.calibrators.with_sets(cal, coverage=0.9)` for the "
                "calibrator"
            )
            raise ValueError(f"sets need a coverage: use `predict_set`, or {remedy}.")
        given = getattr(logits, "given", logits)
        backend = backend_of(given)
        if backend is not None and backend.lazy is not None:
            return backend.lazy.predict(self, what, self._attach_groups(logits, groups))
        with float64_scope(given):
            data = self._check_logits(logits, groups, late=True)
            if backend not in (None, NUMPY):
                wide = given.dtype == backend.namespace(given).float64
                narrow = data.is_numpy and not wide and backend.kind(given) == "float"
            if what == "support":
                found = scores.is_within(data, self._kept("support").edges)
            else:
                found = base.predict_blocks(self.rule_, what, data, narrow=narrow)
            if not data.is_numpy and data.backend.queues_work(data.values):
                check_rows(data)
            return (
                found
                if type(given) is np.ndarray
                else arrays.to_input_library(found, given)
            )

    def _kept(self, name: Literal["support", "class_scores"]) -> Any:
        """What was kept of the calibration examples, or an error where it was not
        stored.
        """
        self._check_fitted()
        found = getattr(self.kept_, name)
        if found is None:
            why = "was not stored with this calibrator, as in files before 0.3"
            raise ValueError(
                f"the `{name}` of the calibration examples {why}. Fit it again."
            )
        return found

    def _attach_groups(self, logits: Any, groups: Any) -> Any:
        """Checked logits with the codes of their groups, if the calibrator needs
        them.
        """
        self._check_fitted()
        if groups is None or self.rule_.needed_groups is None:
            return logits
        reading.check_row_order(logits, groups, "groups")
        return with_groups(logits, groups, self.rule_.needed_groups, fitted_by=self)

    def _convert_frame(self, frame: Any) -> Any:
        """The logits of a frame of probabilities, if the fit was on such a table.

        Else columns that are named as probabilities are refused.
        """
        names = reading.column_names(frame)
        if names and self.metadata_.get("scores") == "probabilities":
            values = reading.to_numpy(frame, "logits")
            is_proba = values.min() >= 0.0 and np.allclose(
                values.sum(axis=1), 1.0, atol=SUM_SLACK
            )
            zeros = self.metadata_.get("zeros", "unlikely")
            return from_probabilities(values, zeros=zeros) if is_proba else frame
        if names and all(
            name.lower().startswith("prob") and reading.class_of_column(name) != name
            for name in names
        ):
            rule = (
                f"must be logits, as in the fit; columns such as `{names[0]}` hold "
                "probabilities"
            )
            raise ValueError(
                f"`logits` {rule}. Convert them: `hokical.from_probabilities`."
            )
        return frame

    def _check_logits(
        self, logits: Any, groups: Any = None, *, late: bool = False
    ) -> Logits:
        """Checked logits for the rule, with the codes of their groups if it needs
        them.
        """
        self._check_fitted()
        if groups is not None:
            logits = self._attach_groups(logits, groups)
        given = as_two_columns(logits) if self.rule_.binary_only else logits
        data = as_logits(given, fitted_by=self, late=late)
        stored.warn_of_probabilities(data, self.kept_.support)
        return stored.acceptable(self.rule_, data)

    def _stamp(self) -> str:
        """A hash of the rule: equal stamps, equal predictions. `certify` does not
        change it.
        """
        self._check_fitted()
        return fingerprint({"n_classes": self.n_classes_, "rule": self.rule_})

    def _stored_data(self) -> dict[str, Any]:
        return {
            "n_classes": self.n_classes_,
            "class_names": list(self.class_names),
            **vars(self.kept_),
        }

    def _restore(self, document: dict[str, Any]) -> None:
        rule: Rule = check_stored(document, "rule", Rule)
        n_classes: int = check_stored(document, "n_classes", int)
        kinds = get_type_hints(CalibrationData).items()
        kept = CalibrationData(
            **{name: check_stored(document, name, kind) for name, kind in kinds}
        )
        if not 2 <= n_classes < _MOST_COLUMNS or rule.n_classes not in (
            None,
            n_classes,
        ):
            needed = f"at least 2 classes, those of its rule ({rule.n_classes})"
            raise CalibratorFileError(
                f"the file must be for {needed}; got {n_classes}."
            )
        for name in kept.unsuitable(n_classes):
            raise CalibratorFileError(
                f"the file has no usable `{name}` for {n_classes} classes."
            )
        self._keep(Fit(rule, document["report"]), n_classes, kept)
        # Files up to 0.3 have the names in their metadata, where `hokical fit` wrote
        # them.
        names = document.get("class_names") or document["beside"].get("classes")
        if isinstance(names, list) and len(names) == n_classes:
            self.class_names = tuple(map(str, names))

    def __repr__(self) -> str:
        """The parameters, as in scikit-learn, and once fitted what was learned."""
        text = super().__repr__()
        if not hasattr(self, "rule_"):
            return text
        counts = self.kept_.fit_scores
        numbers = self.rule_.own_fields().items()
        words = [f"{self.n_classes_} classes"]
        words += [] if counts is None else [f"{counts.total:,} examples"]
        words += [
            f"{name} {value:.4g}" for name, value in numbers if isinstance(value, float)
        ]
        return f"{text}: {', '.join(words)}"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def with_sets(calibrator: Calibrator, **options: Any) -> Calibrator:
    """A copy that also predicts sets, for what takes a calibrator.

    `options` are those of `Calibrator.predict_set`, without groups. The members of the
    sets are given by `hokical.streams.predict(cal, source, what="members")`, the torch
    module (`members`) and an exported ONNX graph (output `members`).

    >>> import hokical
    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (logits, labels) = demo_logits()
    >>> cal = hokical.make("temps").fit(val_logits, val_labels)
    >>> cal = cal.certify(logits[:5000], labels[:5000])
    >>> chunks = with_sets(cal, coverage=0.95), [logits[5000:7000], logits[7000:]]
    >>> members = list(hokical.streams.predict(*chunks, what="members"))
    >>> [part.shape for part in members]
    [(2000, 10), (3000, 10)]
    """
    if not isinstance(calibrator, Calibrator):
        rule = f"`calibrator` must be one of logits; got {type(calibrator).__name__}"
        raise TypeError(
            f"{rule}. Sets of several labels are those of its own `predict_set`."
        )
    asked = sets.SetOptions.read(options)
    if asked.by == "group":
        rule = f'`by` must not be "group" in `with_sets`; got {asked.by!r}'
        raise ValueError(f'{rule}. Use `predict_set(..., by="group", groups=groups)`.')
    if asked.by == "new group":
        calibrator = calibrator._for_new_groups()
    return calibrator._with_rule(
        calibrator._certified_sets(asked).rule(calibrator.rule_)
    )


def _note(rule: Rule, rows: Rows, counts: bool) -> HeldOutPart:
    """What the rule predicts of held-out examples: of their true classes, and of
    each class.
    """
    if counts and not can_be_counts(rows.weights):
        words = "`sample_weight` must be whole numbers with `counts=True`"
        got = max(rows.weights.tolist(), key=lambda weight: weight % 1.0)
        raise ValueError(
            f"{words}; got {got}. Leave `counts` out for importance weights."
        )
    columns = None if rows.groups is None else read_columns(rows.groups, rows.n_rows)
    unit = 1.0
    if rows.weights is not None:
        seen = np.flatnonzero(rows.weights)
        unit = 1.0 if counts else float(rows.weights.max())
        columns = None if columns is None else take_rows(columns, seen)
        rows = rows.take(seen)
    data = rows.scores
    labels = rows.labels
    weights = rows.weights
    forms = [data]
    values = data.values
    wide = type(data) is Logits and data.is_numpy and values.dtype == np.float64
    if wide and np.max(np.abs(values), where=np.isfinite(values), initial=0.0) <= 3e38:
        # As float32 too, in which they may be served: confidence may have steps.
        narrow = as_logits(values.astype(np.float32))
        forms.append(replace(data, values=narrow.values, top=narrow.top))
    predictions = [base.labels_and_confidence(rule, form) for form in forms]
    odds = [scores.confidence_log_odds(confidence) for _, confidence in predictions]
    wrong = np.any([predicted != labels for predicted, _ in predictions], axis=0)
    level = scores.conservative_levels(odds, wrong, data.to_host(data.top))
    found = replace(
        sets.Conformity.from_rows(rule, forms, labels), weights=weights, unit=unit
    )
    classes = None
    if not isinstance(data, TopK) and data.n_classes <= _MOST_DENSE_CLASSES:
        proba = base.predict_on_host(rule, "proba", data).astype(np.float64)
        classes = scores.ScoreTable.by_class(proba, labels, weights if counts else None)
    return found, level, wrong, classes, columns


@remembered
def _of_class(known: sets.Conformity, label: int, source: Evidence) -> sets.Conformity:
    """The examples of one class, which count alike: class frequencies weight
    classes.
    """
    found = known.take(known.labels == label)
    return replace(found, weights=None, unit=1.0) if source == "fit" else found

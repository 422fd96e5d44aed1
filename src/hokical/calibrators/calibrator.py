"""The estimator around a predictor: fitted on examples, or loaded from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self, SupportsIndex, cast

import numpy as np
from numpy.typing import DTypeLike

from hokical._core import reading, runtime
from hokical._core.arrays import NUMPY, Array, FloatArray, backend_of, float64_scope
from hokical._core.checks import check_choice, check_names, show
from hokical._core.ensembles import Ensemble
from hokical._core.groups import count_rows, read_columns, take_rows
from hokical._core.reading import Rows
from hokical._core.runtime import WarningLog
from hokical._core.schema import InputSchema
from hokical._fitting.examples import (
    Examples,
    Partition,
    read_sample,
    warn_about_examples,
    warn_of_copies,
)
from hokical._fitting.records import complete_record
from hokical._fitting.searches import choose_floor, with_floor
from hokical.calibrators.averaged import CalibratedMembers, SingleMembers
from hokical.calibrators.decisions import Decisions, decide
from hokical.calibrators.fit_rows import FitReader, PooledRows
from hokical.calibrators.fitted import FittedCalibrator
from hokical.calibrators.predictor import input_of
from hokical.calibrators.stored import Fit
from hokical.guarantees import shift
from hokical.guarantees.bounds import check_chance
from hokical.guarantees.control import Loss, RiskControl, RiskOptions, control_risk
from hokical.guarantees.fingerprints import Reused
from hokical.guarantees.repeats import (
    ONE_ROW,
    RowMarks,
    refuse_copies,
    warn_of_repeats,
)
from hokical.guarantees.scores import AbstentionOptions, SelectivePrediction
from hokical.guarantees.sets import BySet, Detections, PredictionSets, SetOptions
from hokical.rules import base
from hokical.rules.base import FlooredRule
from hokical.rules.members import MemberLabelsRule
from hokical.rules.sets import SetKind


class Calibrator(FittedCalibrator):
    """Labels, confidence and probabilities for logits, and guarantees about them.

    The base of all methods. A subclass has a `method` (`MethodInfo`) and a `_fit`,
    which gets `Examples` and returns a `Fit`; see CONTRIBUTING.md. `hokical.load` gives
    an object of the class that was saved.

    Once fitted, `predictor_` is the schema, the rule and the evidence.
    """

    def fit(
        self,
        logits: object,
        labels: object = None,
        sample_weight: object = None,
        *,
        groups: object = None,
        classes: Sequence[str] = (),
        score_columns: Sequence[str] = (),
        most_members: int | None = None,
    ) -> Self:
        """Learn from validation logits (n, classes) and labels (n,), which are column
        indices.

        For files, chunks and iterators use `hokical.streams.fit`. Of more than 4 million
        logits, a uniform sample of rows is used (`Hoki` uses all rows): at most 4
        million logits and 200,000 rows, chosen by their row numbers, so that the result
        is the same in every run and for every container. All rows are checked, and
        counted for guarantees.

        Parameters
        ----------
        logits : array of shape (n, classes), TopK, Ensemble or table
            The classifier's scores on examples it was not trained on, an array of any
            library, which stays on its device; -inf marks a masked class. A table of
            any Arrow engine (pyarrow, Polars, DuckDB, pandas) is taken with the name of
            its column of labels, `fit(table, "label")`; `sample_weight` and `groups`
            are names of columns then. Scores are found as in files: a column `logits`
            of lists, `logit_*`, `prob_*`, columns named like the values of the label,
            or those named in `score_columns`. A warning names other numeric columns.
            Of a `hokical.Ensemble`, several evaluations of each example, the fit learns
            how to pool the members into one row of logits. `members_` says what each is
            worth, and `predict` and its like take ensembles of the same members. The
            weights are fitted on these examples, so guarantees need others: `certify`.
        labels : array-like of shape (n,), or (n, classes)
            Column indices or names of the `classes`; or soft labels: votes of several
            annotators or a distribution. A row is then as several weighted rows, one
            for each class with votes; guarantees need one label per row.
        sample_weight : array-like of shape (n,), optional
            The weights of the examples.
        groups : array-like of shape (n,), or several columns, optional
            Properties of the rows that the classifier may not know, such as a site:
            text or numbers, as a mapping, a DataFrame, a structured array or (n,
            columns). Only the default learns from them. Columns that clearly help on
            held-out examples are used, and `predict` and its like then need them;
            `reason_` names them. Numeric columns with more than 20 distinct values, or
            with fractions, are tried as numbers first, with a linear correction. Those
            with more than 20 are also binned at their deciles, or into 30 quantile bins
            from 50,000 examples on.
        classes : sequence of str
            The names of the classes in the order of the columns.
        score_columns : sequence of str
            The columns of a table that hold the scores, class 0 first.
        most_members : int, optional
            How many members of an ensemble get a weight at most, chosen greedily; the
            others need not be evaluated any more (`needed_members_`).

        Returns
        -------
        self : Calibrator
            The same calibrator, fitted.
        """
        names = check_names("classes", classes)
        columns = check_names("score_columns", score_columns)
        with WarningLog().once():
            rows = self.read_pair(
                logits,
                labels,
                sample_weight,
                groups,
                classes=names,
                score_columns=columns,
            )
            self.forget_fit()  # an interrupted fit leaves no half-fitted state
            with float64_scope(input_of(rows.scores)):
                return self._fit_rows(rows, names, most_members)

    def _fit_rows(
        self, rows: Rows, classes: tuple[str, ...], most_members: int | None
    ) -> Self:
        """Learn from rows that may be those of an ensemble."""
        names = classes or rows.classes
        pooled: PooledRows | None = None
        if isinstance(rows.scores, Ensemble):
            pooled = self._reader.pool(
                rows,
                names,
                max_members=most_members,
                keep_labels=self._keeps_member_labels,
            )
            rows = pooled.rows
        elif most_members is not None:
            raise ValueError(
                "`most_members` must be None where `logits` are no "
                f"`hokical.Ensemble`; got {most_members!r}."
            )
        examples, names = self._reader.read(rows, names)
        n_classes = examples.n_classes
        if classes and not len(classes) == len({*classes}) == n_classes:
            raise ValueError(
                f"`classes` must name each of the {n_classes} columns of `logits` "
                f"once; got {list(classes)}. Give each its own name."
            )
        return self.fit_partition(
            examples,
            columns=rows.columns,
            class_names=names,
            origin=rows.about,
            pooled=pooled,
        )

    def predict(self, logits: object, *, groups: object = None) -> Array:
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
        return self.fitted.predict("labels", logits, groups)

    def predict_confidence(self, logits: object, *, groups: object = None) -> Array:
        """The probability (n,) that each predicted label is right."""
        return self.fitted.predict("confidence", logits, groups)

    def predict_proba(
        self, logits: object, *, groups: object = None, dtype: DTypeLike | None = None
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
            narrow = _is_narrow(dtype)
        return self.fitted.predict("proba", logits, groups, narrow=narrow)

    def predict_support(self, logits: object, *, groups: object = None) -> Array:
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
        return self.fitted.predict("support", logits, groups)

    def score(
        self,
        logits: object,
        labels: object,
        sample_weight: object = None,
        *,
        groups: object = None,
    ) -> float:
        """The negative Brier score of the confidence: larger is better, 0 is
        perfect.
        """
        self.check_fitted()
        rows = self.read_labelled(logits, labels, sample_weight, groups)
        predicted, confidence = base.labels_and_confidence(self.rule_, rows.scores)
        squares = (confidence - (predicted == rows.labels)) ** 2
        return -float(np.average(squares, weights=rows.weights))

    def certify(
        self,
        logits: object,
        labels: object,
        sample_weight: object = None,
        *,
        groups: object = None,
        cluster: object = None,
        counts: bool = False,
        reused: Reused = "refuse",
    ) -> Self:
        """Count how often predictions are right on examples that were used for nothing
        else.

        `predict_or_abstain`, `predict_interval`, `predict_set` and `detect` then use
        these examples, until the next fit.

        Parameters
        ----------
        logits : array of shape (n, classes), TopK, Ensemble or table
            Of examples that neither the classifier nor this calibrator was fitted on.
            A table is taken as by `fit`: `certify(table, "label")`.
        labels : array-like of shape (n,)
            The true labels, given as to `fit`.
        sample_weight : array-like of shape (n,), optional
            Importance weights, on any scale: how much more likely each example is in
            the future. Only guarantees on average can use them.
        groups : array-like of shape (n,), or several columns, optional
            For `by="group"` and `by="new group"`, and for calibrators that learned from
            groups.
        cluster : array-like of shape (n,), optional
            Guarantees assume independent examples. Where they belong together (images
            of a patient, answers to a question), it says which: one of each, chosen at
            random once, counts. What is guaranteed is then about a row of a new
            cluster.
        counts : bool
            `sample_weight` are whole numbers: how often each example was seen.
        reused : {"refuse", "ignore"}
            Rows of the fit are refused, and rows of which a fifth or more are exact
            copies with equal labels; "ignore" accepts them where they only have the
            same values.

        Returns
        -------
        self : Calibrator
            The same calibrator, with these examples.

        Examples
        --------
        >>> from hokical import make
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (logits, labels) = demo_logits()
        >>> cal = make("temps").fit(val_logits, val_labels)
        >>> _ = cal.certify(logits[:5000], labels[:5000])
        >>> cal.predict_or_abstain(logits[5000:], risk=0.02).certified_on
        'held-out'
        """
        block = (logits, labels, sample_weight, groups)
        return self.certify_parts(
            [block], reused=reused, counts=counts, cluster=cluster
        )

    def predict_or_abstain(
        self,
        logits: object,
        *,
        risk: float = 0.05,
        delta: float = 0.1,
        by: Literal["all", "group", "new group"] = "all",
        groups: object = None,
    ) -> SelectivePrediction:
        """Labels, and which of them to accept so that at most a fraction `risk` is
        wrong.

        After `certify` the threshold is on the calibrated confidence, after `fit` alone
        on the classifier's own softmax score. The examples of the fit test the
        classifier's labels and no others: a label that calibration has changed is then
        not accepted, and the error rate counts among all rows that reach the threshold.

        Parameters
        ----------
        logits : array of shape (n, classes), TopK or Ensemble
            Of new examples.
        risk : float
            The error rate among accepted examples of the same distribution, at most.
        delta : float
            It holds with probability 1 - delta over the examples it was tested on.
        by : {"all", "group", "new group"}
            For whom: all together; each of the `groups` that `certify` knows, with a
            threshold for each, and rows of other groups not accepted; or a group that
            was never seen, drawn like those of `certify`, with probability 1 - delta
            over groups.
        groups : array-like of shape (n,), or several columns, optional
            Those of the rows, for `by="group"` and for calibrators that learned from
            groups.

        Returns
        -------
        found : SelectivePrediction
            `labels`, `confidence` and `accepted`, each (n,), and the `guarantee` in
            words. If nothing can be accepted, `accepted` is False everywhere, and
            `guarantee` says why, which risk can be proven, and how many examples the
            requested risk needs.

        Examples
        --------
        >>> from hokical import Hoki
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
        >>> prediction = (
        ...     Hoki()
        ...     .fit(val_logits, val_labels)
        ...     .predict_or_abstain(test_logits, risk=0.02)
        ... )
        >>> accepted = prediction.accepted
        >>> wrong = prediction.labels[accepted] != test_labels[accepted]
        >>> bool(accepted.mean() > 0.5), bool(wrong.mean() < 0.02)
        (True, True)
        """
        options = AbstentionOptions(risk, delta, by)
        return self.fitted.predict_or_abstain(logits, options, groups)

    def predict_interval(
        self,
        logits: object,
        *,
        delta: float = 0.05,
        label: SupportsIndex | str | None = None,
        groups: object = None,
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
        predictor = self.fitted
        column = None if label is None else predictor.schema.class_index(label)
        return predictor.predict_interval(logits, delta, column, groups)

    def predict_set(
        self,
        logits: object,
        *,
        coverage: float = 0.9,
        delta: float | None = None,
        by: BySet = "all",
        kind: SetKind = "smallest",
        pooled: bool = False,
        penalty: float = 0.0,
        free_ranks: int = 0,
        allow_empty: bool = False,
        groups: object = None,
    ) -> PredictionSets:
        """The classes that each row may have, with the `coverage` you ask for.

        After `certify` sets are based on the calibrated probabilities, after `fit`
        alone on the uncalibrated softmax, which has seen no labels; see
        `docs/guarantees.md`.

        Parameters
        ----------
        logits : array of shape (n, classes), TopK or Ensemble
            Of new examples.
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

        Returns
        -------
        sets : PredictionSets
            `members` (n, classes) is True for the classes in each set, `sizes` (n,)
            counts them, and `guarantee` says in words what holds.

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
        >>> sets = cal.predict_set(logits[5000:], coverage=0.98)
        >>> sets.labels(0), float(sets.sizes.mean().round(2))
        ([5], 1.39)
        """
        options = SetOptions(
            coverage=coverage,
            delta=delta,
            by=by,
            kind=kind,
            pooled=pooled,
            penalty=penalty,
            free_ranks=free_ranks,
            allow_empty=allow_empty,
        )
        return self.fitted.predict_set(logits, options, groups)

    def predict_action(
        self,
        logits: object,
        costs: object,
        *,
        positive: str | int | None = None,
        groups: object = None,
    ) -> Decisions:
        """The action of least expected cost for each row, with what it is expected to
        cost.

        `costs` (classes, actions) has the cost of each action for each true class. With
        a column per class, actions are labels. For two classes, `(false_positive,
        false_negative)` or `{"fp": 1, "fn": 10}` is enough; `positive` is their class,
        by name or number, by default the second. A mapping of names of actions to costs
        (classes,), to mappings of classes to costs, or to one number, names them.

        >>> from hokical import make
        >>> cal = make("uncalibrated").fit([[2.0, 0.0], [0.0, 1.0]], [0, 1])
        >>> decisions = cal.predict_action([[2.0, 0.0]], costs=(1.0, 50.0))
        >>> decisions.actions, decisions.costs.round(2)
        (array([1]), array([0.88]))
        """
        proba = self.predict_proba(logits, groups=groups)
        event = None
        if positive is not None:
            event = reading.event_index(positive, self.class_names, self.n_classes_)
        return decide(proba, costs, self.n_classes_, event, self.class_names)

    def detect(
        self,
        logits: object,
        label: SupportsIndex | str,
        *,
        recall: float = 0.95,
        delta: float | None = None,
        by: Literal["all", "new group"] = "all",
        groups: object = None,
    ) -> Detections:
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
        >>> detections = cal.detect(logits[5000:], 3, recall=0.99)
        >>> bool(detections.flagged[labels[5000:] == 3].mean() > 0.98)
        True
        """
        column = self.fitted.schema.class_index(label)
        check_choice(
            "by", by, Literal["all", "new group"], "`predict_set` takes the others."
        )
        recall = check_chance("recall", recall)
        options = SetOptions(coverage=recall, delta=delta, by=by, allow_empty=True)
        predictor = self.fitted
        if by == "new group":
            predictor = predictor.for_new_groups()
        return predictor.detect(logits, column, options, groups)

    def reweight_classes(self, frequencies: object) -> Self:
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
        predictor = self.fitted
        return self.reweighted(
            shift.class_weights(
                predictor.rule,
                predictor.class_statistics(),
                frequencies,
                self.class_names,
            )
        )

    def reweighted(self, ratio: FloatArray) -> Self:
        """A copy for rows among which each class is `ratio` (classes,) times as
        frequent.
        """
        return self.with_predictor(self.fitted.reweighted(ratio))

    def estimate_shift(
        self,
        logits: object,
        *,
        sample_weight: object = None,
        delta: float = 0.05,
        groups: object = None,
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
            How much each row counts.
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
        >>> shift = cal.estimate_shift(logits[rows])
        >>> (
        ...     shift.verdict,
        ...     bool(shift.class_frequencies[3] < 0.5 * shift.old_class_frequencies[3]),
        ... )
        ('consistent with label shift', True)
        >>> cal.estimate_shift(0.5 * logits).verdict
        'not label shift: estimates withheld'
        """
        predictor = self.fitted
        delta = check_chance("delta", delta)
        if not predictor.class_statistics().cells.size:
            raise ValueError(
                "`estimate_shift` needs the logits of all classes, up to 4096 of them, "
                "in the fit and now: the best ones of each row are not enough."
            )
        reading.pair_rows(logits, None, sample_weight, groups)
        if groups is None or predictor.schema.groups is None:
            predictor = predictor.without_groups()
        members = predictor.schema.members
        if isinstance(members, CalibratedMembers):
            schema = replace(predictor.schema, members=SingleMembers(members))
            predictor = replace(predictor, schema=schema)
        record = self.predictor_.fit_record
        model = shift.ShiftModel(
            self, self.name, predictor.rule, record, self.class_names
        )
        max_rows = shift.MOST_NUMBERS // self.n_classes_
        sampled, weights, rows = shift.sample_rows(logits, sample_weight, max_rows)
        if groups is not None and rows is not None:
            groups = take_rows(read_columns(groups, count_rows(groups)), rows)
        with float64_scope(sampled):
            data = predictor.read(sampled, groups)
            data = data.with_every_class("estimate_shift", "Give it all logits")
            counts = reading.as_weights(weights, data.n_rows)
            counts = np.ones(data.n_rows) if counts is None else counts
            estimate = shift.estimate_shift(model, data, counts, delta, groups)
        is_mean = isinstance(members, CalibratedMembers)
        return estimate.of_single_models() if is_mean else estimate

    def control_risk(
        self,
        logits: object,
        labels: object,
        sample_weight: object = None,
        *,
        loss: Loss | Mapping[str, Loss],
        risk: float | Mapping[str, float],
        delta: float | None = None,
        thresholds: object = None,
        by: Literal["all", "class", "group", "new group"] = "all",
        groups: object = None,
        reused: Reused = "refuse",
    ) -> RiskControl:
        """The last threshold at which the mean of a loss of your own is proven to be
        small.

        Parameters
        ----------
        logits, labels : array of shape (n, classes), array-like of shape (n,)
            Examples that nothing was fitted on, as for `certify`.
        sample_weight : array-like of shape (n,), optional
            Importance weights, as for `certify`; only without `delta`.
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
        groups : array-like of shape (n,), or several columns, optional
            Those of the examples, for `by` and for calibrators that learned from
            groups.
        reused : {"refuse", "ignore"}
            What to do about rows of the fit, as for `certify`.

        Returns
        -------
        found : RiskControl
            The `threshold`, NaN if none is proven; the mean `losses` at all
            `thresholds`; the `guarantee` in words; `by_group` for each group or class.

        Examples
        --------
        >>> import numpy as np
        >>> from hokical import make
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (logits, labels) = demo_logits()
        >>> cal = make("temps").fit(val_logits, val_labels)
        >>> def missed(proba, labels, threshold):  # class 3 is not found
        ...     return np.where(labels == 3, proba[:, 3] < threshold, np.nan)
        >>> control = cal.control_risk(logits, labels, loss=missed, risk=0.2, delta=0.1)
        >>> bool(0.3 < control.threshold < 0.5)
        True
        """
        predictor = self.fitted
        check_choice("by", by, BySet)
        if by == "new group":
            predictor = predictor.for_new_groups()
        reader = self.with_predictor(predictor)
        rows = reader.read_held_out(reused, logits, labels, sample_weight, groups)
        warn_of_repeats(rows, reused, remedy=ONE_ROW)
        marks = RowMarks.of(rows.scores, rows.labels, rows.weights)
        refuse_copies(marks.copies(), reused, remedy=ONE_ROW)
        return control_risk(
            base.predict_on_host(predictor.rule, "proba", rows.scores),
            rows.labels,
            RiskOptions(loss, risk, delta, thresholds),
            weights=rows.weights,
            by="group" if by == "class" else by,
            groups=self._controlled_groups(rows, by),
            kinds='"all", "class"',
        )

    def _controlled_groups(self, rows: Rows, by: str) -> object:
        """The groups for which a risk is controlled, None for all rows together.

        A class is a group of its examples. Columns of groups are in the order of the
        fit, then those that it did not use.
        """
        if by == "class":
            names = self.class_names or range(self.n_classes_)
            return [names[label] for label in rows.labels.tolist()]
        if by == "all" or rows.groups is None:  # predictions alone may need them
            return None
        coding = self.schema_.groups
        if coding is None:
            return rows.groups
        columns = read_columns(rows.groups, count_rows(rows.groups))
        ordered = dict.fromkeys((*coding.columns, *columns))
        return {name: columns[name] for name in ordered if name in columns}

    # Fitting

    @property
    def _reader(self) -> FitReader:
        """What reads the rows of a fit."""
        return FitReader(self.method, type(self).__name__)

    def _check_parameters(self) -> None:
        """Raise ValueError for an invalid parameter."""

    def _fit(self, examples: Examples) -> Fit:
        """Learn the rule from rows in memory."""
        raise TypeError(f"{type(self).__name__} does not implement `_fit`.")

    @property
    def _keeps_member_labels(self) -> bool:
        """Whether labels are those of the first member of an ensemble."""
        return False

    def fit_partition(
        self,
        examples: Partition,
        *,
        columns: tuple[str, ...] = (),
        class_names: tuple[str, ...] = (),
        origin: Mapping[str, Any] | None = None,
        pooled: PooledRows | None = None,
    ) -> Self:
        """Learn from examples that need not be in memory.

        `origin` is what later files and tables need to be read in the same way.
        `pooled` says how the members of an ensemble became the logits of the examples;
        as the weights come from the same examples, these prove nothing.
        """
        self._begin_fit(examples)
        metadata = dict(origin or {})
        schema = InputSchema(
            columns=columns,
            n_classes=examples.n_classes,
            class_names=class_names,
            scores=metadata.get("scores", "logits"),
            zeros=metadata.get("zeros", "unlikely"),
            saw_groups=examples.groups is not None,
            members=None if pooled is None else pooled.members,
            binary=self.method.binary_only,
            owner=type(self).__name__,
        )
        with WarningLog.current().once():  # where `fit` has not begun one
            self._learn(examples, schema)
        self.metadata_ = metadata
        if pooled is not None:
            self._recognize_pooled(pooled)
        return self

    def _recognize_pooled(self, pooled: PooledRows) -> None:
        """Recognize the rows of the fit as they are pooled from now on."""
        if pooled.members.learned:
            self.forget_examples()
        if pooled.sketch is not None:
            record = replace(self.predictor_.fit_record, sketch=pooled.sketch)
            self.predictor_ = replace(self.predictor_, fit_record=record)

    def _learn(self, examples: Partition, schema: InputSchema) -> None:
        """Fit on a sample of the examples, with zeros raised to a floor.

        All examples are read once.
        """
        sample, stats = read_sample(examples, rows_per_class=self.method.rows_per_class)
        predicted = sample.logits.to_host(sample.logits.labels)
        reading.warn_of_contradiction(predicted, sample.labels, sample.weights)
        reading.warn_of_features(predicted, sample.labels, sample.n_classes)
        has_floor = self.method.fits_floor and stats.has_zeros
        floor = choose_floor(sample.learnable) if has_floor else 0.0
        fit = self._fit(with_floor(sample, floor) if has_floor else sample)
        if floor > 0.0:
            fit = replace(fit, rule=FlooredRule(floor, fit.rule))
        if self._keeps_member_labels and schema.members is not None:
            fit = replace(fit, rule=MemberLabelsRule(fit.rule))
        record = complete_record(stats.record, fit.rule, sample)
        schema = schema.with_examples(
            log_probabilities=stats.log_probabilities,
            like_probabilities=stats.like_probabilities,
        )
        self._store_fit(fit, schema, record)
        self._warn_unless_converged(fit)
        warn_about_examples(self.name, self.method.examples_needed, stats, fit.rule)
        if schema.members is None:  # `FitReader.pool` looks at those of an ensemble
            warn_of_copies(sample, stats.record.sketch)

    def _warn_unless_converged(self, fit: Fit) -> None:
        """Warn if a search ended before it converged."""
        reason = fit.report.get("message", fit.report.get("reason"))
        if reason and not fit.report.get("converged", True):
            problem = f"{type(self).__name__} did not converge"
            runtime.warn_user(
                f"{problem}: {reason}", runtime.ConvergenceWarning, cause=problem
            )

    def _begin_fit(self, examples: Partition) -> None:
        """Check parameters, classes and groups; an interrupted fit leaves no half-fitted
        state.
        """
        self._check_parameters()
        if self.method.binary_only and examples.n_classes != 2:
            raise ValueError(
                f"`{self.name}` takes two classes; got {examples.n_classes}. For more "
                "use `structured` or `auto`."
            )
        if examples.groups is not None and not self.method.learns_groups:
            raise ValueError(
                f"`groups` must be None for `{self.name}`; got some. Only the default "
                "learns from groups: use `auto`, or leave them out."
            )
        self.forget_fit()


def with_sets(
    calibrator: Calibrator,
    *,
    coverage: float,
    delta: float | None = None,
    by: BySet = "all",
    kind: SetKind = "smallest",
    pooled: bool = False,
    penalty: float = 0.0,
    free_ranks: int = 0,
    allow_empty: bool = False,
) -> Calibrator:
    """A copy that also predicts sets, for what takes a calibrator.

    The options are those of `Calibrator.predict_set`, without groups. The members of the
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
        raise TypeError(
            "`calibrator` must be one of logits; got "
            f"{type(calibrator).__name__}. Sets of several labels are those of its own "
            "`predict_set`."
        )
    check_choice("by", by, BySet)
    if by == "group":
        raise ValueError(
            f'`by` must not be "group" in `with_sets`; got {by!r}. Use '
            '`predict_set(..., by="group", groups=groups)`.'
        )
    options = SetOptions(
        coverage=coverage,
        delta=delta,
        by=by,
        kind=kind,
        pooled=pooled,
        penalty=penalty,
        free_ranks=free_ranks,
        allow_empty=allow_empty,
    )
    return calibrator.with_predictor(calibrator.fitted.with_sets(options))


def _is_narrow(dtype: object) -> bool:
    """Whether probabilities are float32; float64 is the other type there is."""
    try:
        asked = np.dtype(cast(DTypeLike, dtype))
    except (TypeError, ValueError):
        asked = None
    if asked not in (np.float32, np.float64):
        raise ValueError(f"`dtype` must be 'float32' or 'float64'; got {show(dtype)}.")
    return asked == np.float32

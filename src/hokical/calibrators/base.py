"""Fits, predictions and files of a calibrator: input is checked and goes to the rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, Self, get_type_hints

import numpy as np

from hokical._core.arrays import (
    NUMPY,
    Array,
    backend_of,
    float64_scope,
    lazy_arrays,
    to_input_library,
)
from hokical._core.conversion import as_two_columns, from_probabilities, probability_scale
from hokical._core.groups import count_rows, read_columns, with_groups
from hokical._core.logits import Logits, as_logits, check_rows
from hokical._core.messages import warn_user
from hokical._core.reading import (
    Rows,
    as_labels,
    as_weights,
    check_row_order,
    class_of_column,
    column_names,
    order_columns,
    to_numpy,
    warn_of_contradiction,
)
from hokical._core.storage import CalibratorFileError, fingerprint
from hokical._core.topk import TopK
from hokical._fitting.examples import (
    Examples,
    ExampleStats,
    InMemory,
    Partition,
    effective_size,
    read_sample,
    warn_about_examples,
)
from hokical._fitting.temperature import choose_floor, with_floor
from hokical.calibrators.stored import (
    Fit,
    StoredEstimator,
    acceptable,
    check_stored,
    warn_of_row_numbers,
)
from hokical.guarantees.calibration_data import CalibrationData, row_draws
from hokical.guarantees.class_scores import class_means
from hokical.guarantees.scores import ScoreTable, confidence_log_odds, score_levels
from hokical.rules.base import Output, Rule, labels_and_confidence, predict_blocks, to_float32
from hokical.rules.wrapped import FlooredRule, SetRule

#: Rows from which on they are checked for looking like probabilities: fewer can sum to 1 by
#: coincidence.
_FEWEST_ROWS = 4
#: Calibration examples whose calibrated confidence is counted.
_MOST_COUNTED = 5000
#: Probabilities that a mean over calibration examples is taken of, at most.
_MOST_PROBABILITIES = 1 << 20
#: More classes than this mean a damaged file.
_MOST_COLUMNS = 1 << 31


class FittedPredictions(StoredEstimator):
    """Labels, confidence and probabilities of a rule that `fit` learns, or that a file holds."""

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
        """Learn from validation logits (n, classes) and labels (n,), which are column indices.

        `logits` are the classifier's scores on examples it was not trained on, an array of any
        library, which stays on its device, or a `TopK`; -inf marks a masked class. For files,
        chunks and iterators use `hokical.streams.fit`. `sample_weight` (n,) are the weights of the
        examples.

        Of more than 4 million logits, a uniform sample of rows is used (`Hoki` uses all rows): at
        most 4 million logits and 200,000 rows, chosen by their row numbers, so that the result is
        the same in every run and for every container. All rows are checked, and counted for
        guarantees.

        A table of any Arrow engine (pyarrow, Polars, DuckDB, pandas) is taken with the name of its
        column of labels, `fit(table, "label")`; `sample_weight` and `groups` are names of columns
        then. Scores are found as in files: a column `logits` of lists, `logit_*`, `prob_*`, columns
        named like the values of the label, or those named in `score_columns`. A warning names other
        numeric columns. `classes` are the names of the classes in the order of the columns; labels
        may be such names.

        `groups`, from which only the default learns, are properties of the rows that the classifier
        may not know, such as a site: text or numbers (n,), or several columns (a mapping, a
        DataFrame, a structured array or (n, columns)). Columns that clearly help on held-out
        examples are used, and `predict` and its like then need them; `reason_` names them. Numeric
        columns with more than 20 distinct values are binned at their deciles, or into 30 quantile
        bins from 50,000 examples on.
        """
        names: dict[str, Any] = {"classes": classes, "score_columns": score_columns}
        given = (logits, labels, sample_weight, groups)
        return self._learn_from(self._fit_partition, given, **names)

    def predict(self, logits: Any, *, groups: Any = None) -> Array:
        """Labels (n,): the most likely class, or the classifier's own where the method keeps it.

        By default the label is the first maximum of `predict_proba`. Methods whose rule has
        `preserves_labels`, and the default with `keep_labels=True`, give the classifier's own.

        `logits` (n, classes) is an array of any library (NumPy, torch, JAX, CuPy, Dask), or a
        `TopK`; the output has the same library and device. Files, chunks and iterators go through
        `hokical.streams`. `groups` are those of the rows, as in the fit: a calibrator that learned
        from groups needs them, and others ignore them. Rows whose group is missing or was not in
        the fit get the prediction for all groups, and a warning counts them.
        """
        return self._output("labels", logits, groups)

    def predict_confidence(self, logits: Any, *, groups: Any = None) -> Array:
        """The probability (n,) that each predicted label is right."""
        return self._output("confidence", logits, groups)

    def predict_proba(self, logits: Any, *, groups: Any = None, dtype: Any = None) -> Array:
        """Probabilities (n, classes); rows sum to 1 and masked classes (-inf) get 0.

        The only possible class of a row gets 1, whatever the confidence. The classes that a `TopK`
        leaves out share the remaining probability evenly. Where a method keeps the classifier's
        label, and its confidence is low, another class can be more likely; `predict` is still the
        label. `dtype="float32"` gives NumPy arrays of half the size, computed in float64 all the
        same; other libraries return the type of the logits.
        """
        if dtype is None or backend_of(logits) not in (None, NUMPY):
            return self._output("proba", logits, groups)
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise ValueError(f"`dtype` must be 'float32' or 'float64'; got {dtype!r}.")
        data = self._check_logits(self._attach_groups(logits, groups))
        return predict_blocks(self.rule_, "proba", data, narrow=np.dtype(dtype) == np.float32)

    def predict_support(self, logits: Any, *, groups: Any = None) -> Array:
        """Which rows (n,) lie in the range of the calibration examples.

        A row is outside if the softmax log-odds of its label, or its top logit, lie outside the
        range of the calibration examples. Confidence is an extrapolation there. Of n
        calibration examples and one more from the same distribution, the last is outside with
        probability at most 4 / (n + 1); many such rows mean that the distribution has changed.

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
        """The negative Brier score of the confidence: larger is better, 0 is perfect."""
        self._check_fitted()
        rows = self._read(logits, labels, sample_weight, groups)
        found, confidence = labels_and_confidence(self.rule_, rows.scores)
        return -float(np.average((confidence - (found == rows.labels)) ** 2, weights=rows.weights))

    def _check_parameters(self) -> None:
        """Raise ValueError for an invalid parameter."""

    def _fit(self, examples: Examples) -> Fit:
        """Learn the rule from rows in memory."""
        raise TypeError(f"{type(self).__name__} does not implement `_fit`.")

    def _learn_from(
        self,
        learn: Callable[[Partition], Self],
        rows: tuple[Any, Any, Any, Any],
        fitted_by: Any = None,
        **names: Any,
    ) -> Self:
        """Call `learn` with rows as `_pair` takes them as a partition; names of an earlier fit go.

        With `fitted_by` it goes on from that fit, and its names stay.
        """
        given = self._pair(*rows, fitted_by=fitted_by, **names)
        if names.get("classes"):
            given = _with_classes(given, tuple(map(str, names["classes"])))
        lazy = lazy_arrays(given.scores)
        with float64_scope(given.scores):
            if fitted_by is None:
                self._columns = given.columns
                self._name_classes(given.classes)
            examples: Partition
            if lazy is not None:
                examples = lazy.partition(*given[:3])
            else:
                examples = InMemory(self._check_block(given, fitted_by))
            examples.groups = given.groups
            learn(examples)
        if fitted_by is None:
            self.metadata_ = dict(given.about)
        return self

    def _name_classes(self, names: tuple[str, ...]) -> None:
        """Know the classes by these names, and no longer by those of an earlier fit."""
        vars(self).pop("class_names", None)
        if names:
            self.class_names = names

    def _check_block(self, given: Rows, fitted_by: Any) -> Examples:
        logits, labels = given.scores, given.labels
        two = as_two_columns(logits, fitting=True) if self.method.binary_only else logits
        # Logits first: their errors point to `hokical.streams`.
        data = acceptable(self.method, as_logits(two, fitted_by=fitted_by).without_gradient())
        if labels is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give "
                "`labels`, the true class of each row."
            )
        warn_of_row_numbers(data)
        values = to_numpy(labels, "labels")
        names = self.class_names or self._columns
        if values.ndim == 1 and values.size and isinstance(values[0], str) and names:
            if not {*values.tolist()} <= {*names}:
                names = tuple(map(class_of_column, names))
            self._name_classes(names)
        truth = as_labels(values, data.n_rows, data.n_classes, classes=names)
        return Examples(data, truth, as_weights(given.weights, data.n_rows))

    def _read(
        self,
        logits: Any,
        labels: Any,
        sample_weight: Any = None,
        groups: Any = None,
        *,
        plain: bool = False,
        columns: tuple[str, ...] = (),
    ) -> Rows:
        """Labelled rows for this calibrator: logits with the groups that it needs, or `plain` ones.

        Before a fit, the columns of a frame are put in the order of these `columns`.
        """
        known = self if hasattr(self, "rule_") else None
        given = self._pair(logits, labels, sample_weight, groups, fitted_by=known)
        if known is None or plain:
            scores = order_columns(given.scores, "logits", columns)
            data = as_logits(scores, fitted_by=known)
        else:
            data = self._check_logits(self._attach_groups(given.scores, given.groups))
        names = self.class_names or given.classes
        truth = as_labels(given.labels, data.n_rows, data.n_classes, classes=names)
        rows = self._checked(given, data, truth, data.n_rows)
        warn_of_contradiction(data.to_host(data.labels), truth, rows.weights)
        return rows

    def _fit_partition(self, examples: Partition) -> Self:
        """Learn from examples that need not be in memory; `hokical.streams.fit` makes them."""
        self._check_parameters()
        if self.method.binary_only and examples.n_classes != 2:
            raise ValueError(
                f"`{self.name}` takes two classes; got {examples.n_classes}. For more use "
                "`structured` or `auto`."
            )
        if examples.groups is not None and not self.method.learns_groups:
            raise ValueError(
                f"`groups` must be None for `{self.name}`; got some. Only the default learns from "
                "groups: use `auto`, or leave them out."
            )
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # an interrupted fit leaves no half-fitted state
        found, stats = self._fit_all(examples)
        self._keep(found, examples.n_classes, stats.kept)
        warn_about_examples(self.name, stats, found.rule)
        return self

    def _fit_all(self, examples: Partition) -> tuple[Fit, ExampleStats]:
        """Read all examples once, and fit on a sample of them, zeros raised to a floor."""
        sample, stats = read_sample(examples, rows_per_class=self.method.rows_per_class)
        own = sample.logits
        warn_of_contradiction(own.to_host(own.labels), sample.labels, sample.weights)
        needed = self.method.fits_floor and stats.has_zeros
        floor = choose_floor(sample.learnable) if needed else 0.0
        found = self._fit(with_floor(sample, floor))
        if floor > 0.0:
            found = replace(found, rule=FlooredRule(floor, found.rule))
        return found, replace(stats, kept=_add_counts(stats.kept, found.rule, sample))

    def _keep(self, found: Fit, n_classes: int, kept: CalibrationData) -> None:
        """Store the result of a fit; what `certify` counted for an earlier fit is dropped."""
        self._keep_rule(found.rule, found.report, **found.rule.own_fields())
        self.kept_ = kept
        self.n_classes_ = self.n_features_in_ = n_classes
        self.classes_ = np.arange(n_classes)

    def _output(self, what: Output | Literal["support"], logits: Any, groups: Any = None) -> Array:
        """The output of a `predict` method: "labels", "confidence", "proba", "support", "members".

        "members" (n, classes), bool, are those of a calibrator `with_sets`.
        """
        self._check_fitted()
        if what == "members" and not isinstance(self.rule_, SetRule):
            raise ValueError(
                "sets need a coverage: use `predict_set(logits, coverage=0.9)`, or pass "
                "`hokical.calibrators.with_sets(cal, coverage=0.9)` in place of the calibrator."
            )
        rows = self._attach_groups(logits, groups)
        if (lazy := lazy_arrays(rows)) is not None:
            return lazy.predict(self, what, rows)
        given = getattr(logits, "given", logits)
        with float64_scope(given):
            data = self._check_logits(rows, late=True)
            if what == "support":
                found = self._kept("support").holds(data)
            else:
                found = predict_blocks(self.rule_, what, data)
            if not isinstance(rows, Logits) and data.backend.queues_work(data.values):
                check_rows(data)
            return to_input_library(_narrow(found, given) if what == "proba" else found, given)

    def _kept(self, name: Literal["support", "class_scores"]) -> Any:
        """What was kept of the calibration examples, or an error where it was not stored."""
        self._check_fitted()
        found = getattr(self.kept_, name)
        if found is None:
            raise ValueError(
                f"the `{name}` of the calibration examples was not stored with this calibrator, as "
                "in files before 0.3. Fit it again."
            )
        return found

    def _attach_groups(self, logits: Any, groups: Any) -> Any:
        """Checked logits with the codes of their groups, if the calibrator needs them."""
        self._check_fitted()
        if groups is None or self.rule_.needed_groups is None:
            return logits
        check_row_order(logits, groups, "groups")
        return with_groups(logits, groups, self.rule_.needed_groups, fitted_by=self)

    def _order_groups(self, groups: Any) -> Any:
        """Columns of groups in the order of the fit, then those that it did not use."""
        known = self.rule_.needed_groups
        if groups is None or known is None:
            return groups
        given = read_columns(groups, count_rows(groups))
        return {name: given[name] for name in (*known.columns, *given) if name in given}

    def _check_logits(self, logits: Any, *, late: bool = False) -> Logits:
        self._check_fitted()
        given = as_two_columns(logits) if self.rule_.binary_only else logits
        data = as_logits(given, fitted_by=self, late=late)
        self._warn_of_probabilities(data)
        return acceptable(self.rule_, data)

    def _convert_frame(self, frame: Any) -> Any:
        """The logits of a frame of probabilities, if the fit was on a table of such.

        Without that, columns that are named as probabilities are refused.
        """
        names = column_names(frame)
        if not names:
            return frame
        if self.metadata_.get("scores") == "probabilities":
            values = to_numpy(frame, "logits")
            is_proba = values.min() >= 0.0 and np.allclose(values.sum(axis=1), 1.0, atol=0.05)
            zeros = self.metadata_.get("zeros", "unlikely")
            return from_probabilities(values, zeros=zeros) if is_proba else frame
        if all(name.lower().startswith("prob") and class_of_column(name) != name for name in names):
            raise ValueError(
                f"`logits` must be logits, as in the fit; columns such as `{names[0]}` hold "
                "probabilities. Convert them: `hokical.from_probabilities`."
            )
        return frame

    def _warn_of_probabilities(self, data: Logits) -> None:
        """Warn if rows look like probabilities, and those of the fit did not."""
        support = self.kept_.support
        if support is None or type(data) is not Logits or not data.is_numpy:
            return
        highest = data.top.max() if data.n_rows >= _FEWEST_ROWS else np.inf
        if highest > 100.0 or data.top.min() <= 0.0:
            return
        scale = probability_scale(data, data.top)
        before = support.top[1]  # of logarithms of probabilities at most 0
        if (scale == 1.0 and not 0.0 < before <= 1.0) or (scale == 100.0 and before < highest):
            kind = "probabilities" if scale == 1.0 else "percentages"
            warn_user(
                f"`logits` look like {kind}: all rows sum to {scale:g}, and those of the fit did "
                "not. Pass logits, as in the fit.",
                UserWarning,
            )

    def _stamp(self) -> str:
        """A hash of the rule: equal stamps, equal predictions. `certify` does not change it."""
        self._check_fitted()
        return fingerprint({"n_classes": self.n_classes_, "rule": self.rule_})

    def _stored_data(self) -> dict[str, Any]:
        return {
            "n_classes": self.n_classes_,
            "class_names": list(self.class_names),
            **vars(self.kept_),
        }

    def _restore(self, document: dict[str, Any]) -> None:
        rule, n_classes, kept = _check_document(document)
        self._keep(Fit(rule, document["report"]), n_classes, kept)
        # Files up to 0.3 have the names in their metadata, where `hokical fit` wrote them.
        names = document.get("class_names") or document["beside"].get("classes")
        if isinstance(names, list) and len(names) == n_classes:
            self.class_names = tuple(map(str, names))

    def __repr__(self) -> str:
        """The parameters, as in scikit-learn, and once fitted what was learned."""
        text = super().__repr__()
        if not hasattr(self, "rule_"):
            return text
        counts, numbers = self.kept_.fit_scores, self.rule_.own_fields().items()
        words = [f"{self.n_classes_} classes"]
        words += [] if counts is None else [f"{counts.total:,} examples"]
        words += [f"{name} {value:.4g}" for name, value in numbers if isinstance(value, float)]
        return f"{text}: {', '.join(words)}"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _with_classes(given: Rows, names: tuple[str, ...]) -> Rows:
    """Rows whose classes have these names, which their labels may be."""
    columns = as_logits(given.scores).n_classes
    if not len(names) == len(set(names)) == columns:
        raise ValueError(
            f"`classes` must name each of the {columns} columns of `logits`; got {len(names)}."
        )
    labels = as_labels(given.labels, len(given.labels), columns, classes=names)
    return given._replace(labels=labels, classes=names)


def _add_counts(kept: CalibrationData, rule: Rule, block: Examples) -> CalibrationData:
    """With counts of calibration examples by confidence, and the frequencies that it implies."""
    n = block.n_rows
    rows = np.flatnonzero(row_draws(0, n) * n < _MOST_COUNTED)
    data = block.logits.take(rows) if rows.size < n else block.logits
    if kept.fit_scores is not None:
        labels, confidence = labels_and_confidence(rule, data)
        level = score_levels(confidence_log_odds(confidence.astype(np.float64)))
        counted = block.counting[rows].astype(np.float64)
        table = ScoreTable.from_examples(level, labels != block.labels[rows], counted)
        kept = replace(kept, fit_confidences=table)
    most = max(_MOST_PROBABILITIES // data.n_classes, 1)
    weights = block.counts[rows][:most]
    if isinstance(data, TopK) or kept.class_scores is None or not weights.any():
        return kept
    some = data.take(slice(0, min(most, data.n_rows)))
    with some.backend.in_float64():  # and on the device of the logits
        proba = predict_blocks(rule, "proba", some)
        means = class_means(proba, block.labels[rows][:most], weights, some)
    known = kept.class_scores.with_implied(*means, effective_size(weights / weights.sum()))
    return replace(kept, class_scores=known)


def _check_document(document: dict[str, Any]) -> tuple[Rule, int, CalibrationData]:
    """Rule, number of classes and kept data of a file's contents, if they belong together."""
    rule: Rule = check_stored(document, "rule", Rule)
    n_classes: int = check_stored(document, "n_classes", int)
    kinds = get_type_hints(CalibrationData).items()
    kept = CalibrationData(**{name: check_stored(document, name, kind) for name, kind in kinds})
    if not 2 <= n_classes < _MOST_COLUMNS:
        raise CalibratorFileError(f"the file must be for at least 2 classes; got {n_classes}.")
    if rule.n_classes not in (None, n_classes):
        raise CalibratorFileError(
            f"the file is for {n_classes} classes, and its rule for {rule.n_classes}."
        )
    for name in kept.unsuitable(n_classes):
        raise CalibratorFileError(f"the file has no usable `{name}` for {n_classes} classes.")
    return rule, n_classes, kept


def _narrow(found: Array, given: Any) -> Array:
    """NumPy's probabilities as float32, if they become that in the library of the logits."""
    backend = backend_of(given)
    if backend in (None, NUMPY) or not isinstance(found, np.ndarray):
        return found
    wide = backend.kind(given) != "float" or given.dtype == backend.namespace(given).float64
    return found if wide else to_float32(found)

"""Fits and files of a calibrator: examples are checked, the rule is learned, kept and stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, get_type_hints

import numpy as np

from hokical._core.arrays import backend_of, float64_scope
from hokical._core.conversion import as_two_columns
from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import Logits, as_logits
from hokical._core.reading import check_row_order, column_names, to_numpy
from hokical._core.storage import CalibratorFileError
from hokical._core.tables import read_table
from hokical._core.topk import TopK
from hokical._fitting.example_stats import ExampleStats, warn_about_examples
from hokical._fitting.examples import Examples, InMemory, Partition
from hokical._fitting.floor import choose_floor, with_floor
from hokical._fitting.row_sample import read_sample
from hokical.calibrators._checks import acceptable, warn_of_row_numbers
from hokical.calibrators._method import Fit
from hokical.calibrators._predictions import Predictions
from hokical.calibrators._stored import check_stored
from hokical.guarantees._calibration_data import CalibrationData
from hokical.guarantees._row_sketch import row_draws
from hokical.guarantees._score_table import ScoreTable
from hokical.guarantees._scores import confidence_log_odds, score_levels
from hokical.rules._base import Rule
from hokical.rules._predicting import labels_and_confidence, predict_blocks
from hokical.rules._wrapped import FlooredRule
from hokical.stability._noise import Noise

#: Calibration examples whose calibrated confidence is counted.
_MOST_COUNTED = 5000
#: Probabilities that a mean over calibration examples is taken of, at most.
_MOST_PROBABILITIES = 1 << 20
#: More classes than this mean a damaged file.
_MOST_CLASSES = 1 << 31


class FittedPredictions(Predictions):
    """Predictions of a rule that `fit` learns, or that a file holds."""

    n_features_in_: int
    classes_: Any

    def fit(
        self, logits: Any, labels: Any = None, sample_weight: Any = None, *, groups: Any = None
    ) -> Self:
        """Learn from validation logits (n, classes) and labels (n,), which are column indices.

        `logits` are the classifier's scores on examples it was not trained on, an array of any
        library, which stays on its device, or a `TopK`; -inf marks a masked class. For files,
        chunks and iterators use `hokical.streams.fit`. `sample_weight` (n,) says how often each
        example counts.

        Of more than 4 million logits, a uniform sample of rows is used (`Hoki` uses all rows): at
        most 4 million logits and 200,000 rows, chosen by their row numbers, so that the result is
        the same in every run and for every container. All rows are checked, and counted for
        guarantees.

        A table of any Arrow engine (pyarrow, Polars, DuckDB, pandas) is taken with the name of its
        column of labels, `fit(table, "label")`; `sample_weight` and `groups` are names of columns
        then, and all other numeric columns are logits, one for each class. Labels may be the names
        of these columns.

        `groups`, which the default alone learns from, are what is known of the rows and the
        classifier may not know: text or numbers (n,), or several columns (a mapping, a DataFrame, a
        structured array or (n, columns)). Columns that clearly help on held-out examples are used,
        and `predict` and its like then need them; `reason_` says which. Numbers with more than 20
        different values are cut at deciles, with 50,000 examples or more into 30 parts.
        """
        return self._learn_from(self._fit_partition, logits, labels, sample_weight, groups=groups)

    def _check_parameters(self) -> None:
        """Raise ValueError for an invalid parameter."""

    def _fit(self, examples: Examples) -> Fit:
        """Learn the rule from rows in memory."""
        raise TypeError(f"{type(self).__name__} does not implement `_fit`.")

    def _learn_from(
        self,
        learn: Callable[[Partition], Self],
        logits: Any,
        labels: Any,
        sample_weight: Any,
        fitted_by: Any = None,
        groups: Any = None,
    ) -> Self:
        """Call `learn` with the examples as a partition; `fitted_by` as in `as_logits`."""
        given = read_table(logits, labels, sample_weight, groups)
        logits, labels, sample_weight, groups = given
        backend = backend_of(logits)
        lazy = None if backend is None else backend.partition(logits, labels, sample_weight)
        with float64_scope(logits):
            if fitted_by is None:
                self._columns = column_names(logits)
            examples = lazy or InMemory(self._check_block(logits, labels, sample_weight, fitted_by))
            examples.groups = groups
            return learn(examples)

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
        self._forget_fit()
        found, stats = self._fit_all(examples)
        self._keep(found, examples.n_classes, found.add_counts(stats.kept))
        warn_about_examples(self.name, stats, found.rule)
        return self

    def _fit_all(self, examples: Partition) -> tuple[Fit, ExampleStats]:
        """Read all examples once, and fit on a sample of them, zeros raised to a floor."""
        sample, stats = read_sample(examples, rows_per_class=self.method.rows_per_class)
        if self.method.fits_floor and stats.has_zeros:
            floor = choose_floor(sample.learnable)
            found = self._fit(with_floor(sample, floor))
            if floor > 0.0:
                found = replace(found, rule=FlooredRule(floor, found.rule))
        else:
            found = self._fit(sample)
        return _add_counts(found, sample), stats

    def _check_block(
        self, logits: Any, labels: Any, sample_weight: Any, fitted_by: Any = None
    ) -> Examples:
        data = self._acceptable(logits, fitted_by)  # first: its errors point to `hokical.streams`
        if labels is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give "
                "`labels`, the true class of each row."
            )
        check_row_order(logits, labels, "labels")
        check_row_order(logits, sample_weight, "sample_weight")
        warn_of_row_numbers(data)
        given = to_numpy(labels, "labels")
        truth = as_labels(given, data.n_rows, data.n_classes, classes=self._columns)
        if isinstance(given.flat[0], str):
            self.class_names = self._columns
        return Examples(data, truth, as_weights(sample_weight, data.n_rows))

    def _acceptable(self, logits: Any, fitted_by: Any = None) -> Logits:
        """Checked logits without gradients, if the method accepts them."""
        backend = backend_of(logits)
        given = logits if backend is None else backend.without_gradient(logits)
        if self.method.binary_only:
            given = as_two_columns(given, fitting=True)
        data = as_logits(given, fitted_by=fitted_by)
        return acceptable(self.method, data.without_gradient() if data is given else data)

    def _keep(self, found: Fit, n_classes: int, kept: CalibrationData) -> None:
        """Store the result of a fit; what `certify` counted for an earlier fit is dropped."""
        self._keep_rule(found.rule, found.report, **found.rule.own_fields())
        self.kept_ = kept
        self.n_classes_ = self.n_features_in_ = n_classes
        self.classes_ = np.arange(n_classes)

    def _stored_data(self) -> dict[str, Any]:
        return {
            "n_classes": self.n_classes_,
            "class_names": list(self.class_names),
            "columns": list(self._columns),
            **self.kept_.stored(),
        }

    def _restore(self, document: dict[str, Any]) -> None:
        rule, n_classes = _check_document(document)
        kept = CalibrationData(**{name: document.get(name) for name in CalibrationData.names()})
        self._keep(Fit(rule, document["report"]), n_classes, kept)
        # Files up to 0.3 have the names in their metadata, where `hokical fit` wrote them.
        names = document.get("class_names") or document["beside"].get("classes")
        if isinstance(names, list) and len(names) == n_classes:
            self.class_names = tuple(map(str, names))
        self._columns = tuple(map(str, document.get("columns", ())))

    def __repr__(self) -> str:
        """The parameters, as in scikit-learn, and once fitted what was learned."""
        text = super().__repr__()
        return f"{text}: {self._fit_in_words()}" if hasattr(self, "rule_") else text

    def _fit_in_words(self) -> str:
        """Classes, examples and the single numbers of the rule, for `repr`."""
        counts = self.kept_.fit_scores
        words = [f"{self.n_classes_} classes"]
        words += [] if counts is None else [f"{counts.total:,} examples"]
        for name, value in self.rule_.own_fields().items():
            if isinstance(value, (float, Noise)):
                words.append(f"{name} {value:.4g}" if isinstance(value, float) else repr(value))
        return ", ".join(words)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _add_counts(found: Fit, block: Examples) -> Fit:
    """The fit with counts of calibration examples by confidence, and their mean probabilities."""
    n = block.n_rows
    rows = np.flatnonzero(row_draws(0, n) * n < _MOST_COUNTED)
    data = block.logits.take(rows) if rows.size < n else block.logits
    labels, confidence = labels_and_confidence(found.rule, data)
    level = score_levels(confidence_log_odds(confidence.astype(np.float64)))
    counted = block.counting[rows].astype(np.float64)
    table = ScoreTable.from_examples(level, labels != block.labels[rows], counted)
    most = max(_MOST_PROBABILITIES // data.n_classes, 1)
    weights = block.counts[rows][:most]
    if isinstance(data, TopK) or not weights.any():
        return replace(found, confidences=table)
    weights, some = weights / weights.sum(), data.take(slice(0, min(most, data.n_rows)))
    with some.backend.in_float64():  # and on the device of the logits
        proba, share = predict_blocks(found.rule, "proba", some), some.from_host(weights)
        mean = share @ proba
        variance = (share @ (proba - mean) ** 2) * float((weights**2).sum())
        both = np.stack([some.to_host(mean), some.to_host(variance)])
    return replace(found, confidences=table, mean_proba=both)


def _check_document(document: dict[str, Any]) -> tuple[Rule, int]:
    """Rule and number of classes of a file's contents, if they belong together."""
    rule: Rule = check_stored(document, "rule", Rule)
    n_classes: int = check_stored(document, "n_classes", int)
    for name, kind in get_type_hints(CalibrationData).items():
        document.setdefault(name, None)
        check_stored(document, name, kind)
    if not 2 <= n_classes < _MOST_CLASSES:
        raise CalibratorFileError(f"the file must be for at least 2 classes; got {n_classes}.")
    for name in ("fit_conformity", "held_out_conformity"):
        noted = document[name]
        if noted is not None and (not noted.n or noted.labels.max() >= n_classes):
            raise CalibratorFileError(f"the file has no usable `{name}` for {n_classes} classes.")
    if document["class_scores"] and document["class_scores"].n_classes != n_classes:
        raise CalibratorFileError(f"the file has no usable `class_scores` for {n_classes} classes.")
    if rule.n_classes not in (None, n_classes):
        raise CalibratorFileError(
            f"the file is for {n_classes} classes, and its rule for {rule.n_classes}."
        )
    return rule, n_classes

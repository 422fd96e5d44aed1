"""Labels, confidence and probabilities: checked input goes to the rule, output to its library."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from hokical._core.arrays import NUMPY, Array, backend_of, float64_scope, to_input_library
from hokical._core.conversion import as_two_columns, probability_scale
from hokical._core.grouped_logits import GroupedLogits, with_groups
from hokical._core.groups import count_rows
from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import Logits, as_logits, check_rows
from hokical._core.reading import check_row_order
from hokical._core.storage import fingerprint
from hokical._core.types import IntArray
from hokical._core.warn import warn_user
from hokical.calibrators._checks import acceptable
from hokical.calibrators._stored import StoredEstimator
from hokical.guarantees._calibration_data import CalibrationData
from hokical.guarantees._scores import Support
from hokical.rules._base import Rule
from hokical.rules._predicting import (
    Output,
    labels_and_confidence,
    predict_blocks,
    to_float32,
)
from hokical.rules._sets import SetRule

#: Rows from which on they are checked for looking like probabilities.
_FEWEST_ROWS = 4


class Predictions(StoredEstimator):
    """Labels, confidence and probabilities of a fitted rule."""

    rule_: Rule
    n_classes_: int
    #: What is kept of the calibration examples for guarantees that are asked for later.
    kept_: CalibrationData
    #: Names of the classes in the order of the columns, where known.
    class_names: tuple[str, ...] = ()
    #: Names of the columns of the logits in the fit, if they were a frame's.
    _columns: tuple[str, ...] = ()

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
        return self._output("labels", self._attach_groups(logits, groups))

    def predict_confidence(self, logits: Any, *, groups: Any = None) -> Array:
        """The probability (n,) that each predicted label is right."""
        return self._output("confidence", self._attach_groups(logits, groups))

    def predict_proba(self, logits: Any, *, groups: Any = None, dtype: Any = None) -> Array:
        """Probabilities (n, classes); rows sum to 1 and masked classes (-inf) get 0.

        The only possible class of a row gets 1, whatever the confidence. The hidden classes of a
        `TopK` share their rest evenly. Where a method keeps the classifier's label, and its
        confidence is low, another class can be more likely; `predict` is still the label.
        `dtype="float32"` gives NumPy arrays of half the
        size, computed in float64 all the same; other libraries answer in the type of the logits.
        """
        given = self._attach_groups(logits, groups)
        if dtype is None or backend_of(logits) not in (None, NUMPY):
            return self._output("proba", given)
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise ValueError(f"`dtype` must be 'float32' or 'float64'; got {dtype!r}.")
        data = self._check_logits(given)
        return predict_blocks(self.rule_, "proba", data, narrow=np.dtype(dtype) == np.float32)

    def predict_support(self, logits: Any) -> Array:
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
        return self._output("support", logits)

    def group_codes(self, groups: Any) -> IntArray:
        """Integers (n, columns), which torch modules and ONNX graphs take in place of groups.

        The last of each column is for rows whose group is missing or was not in the fit.
        """
        self._check_fitted()
        coding = self.rule_.needed_groups
        if coding is None:
            raise ValueError("`groups` have no codes: this calibrator did not learn from groups.")
        codes: IntArray = coding.codes(groups, count_rows(groups))
        return codes

    def score(
        self, logits: Any, labels: Any, sample_weight: Any = None, *, groups: Any = None
    ) -> float:
        """The negative Brier score of the confidence: larger is better, 0 is perfect."""
        data = self._check_logits(self._attach_groups(logits, groups))
        check_row_order(logits, labels, "labels")
        truth = self._as_labels(labels, data)
        weights = as_weights(sample_weight, data.n_rows)
        found, confidence = labels_and_confidence(self.rule_, data)
        return -float(np.average((confidence - (found == truth)) ** 2, weights=weights))

    def _output(self, what: Output | Literal["support"], logits: Any) -> Array:
        """The output of a `predict` method: "labels", "confidence", "proba", "support", "members".

        "members" (n, classes), bool, are those of a calibrator `with_sets`.
        """
        self._check_fitted()
        if what == "members" and not isinstance(self.rule_, SetRule):
            raise ValueError(
                "sets need a coverage: use `predict_set(logits, coverage=0.9)`, or pass "
                "`hokical.calibrators.with_sets(cal, coverage=0.9)` in place of the calibrator."
            )
        backend = backend_of(logits)
        lazy = None if backend is None else backend.predict_lazily(self, what, logits)
        if lazy is not None:
            return lazy
        given = logits.given if isinstance(logits, Logits) else logits
        with float64_scope(given):
            data = self._check_logits(logits, late=True)
            if what == "support":
                found = self._known_support().holds(data)
            else:
                found = predict_blocks(self.rule_, what, data)
            if not isinstance(logits, Logits) and data.backend.queues_work(data.values):
                check_rows(data)
            return to_input_library(_narrow(found, given) if what == "proba" else found, given)

    def _known_support(self) -> Support:
        """The range of the calibration examples, or an error where it was not stored."""
        self._check_fitted()
        if self.kept_.support is None:
            raise ValueError(
                "the range of the calibration examples was not stored with this calibrator. Fit it "
                "again."
            )
        return self.kept_.support

    def _attach_groups(self, logits: Any, groups: Any) -> Any:
        """Logits with the groups of their rows (`GroupedLogits`), if the calibrator needs them."""
        self._check_fitted()
        if groups is None or self.rule_.needed_groups is None or isinstance(logits, GroupedLogits):
            return logits
        return with_groups(logits, groups, self.rule_.needed_groups, fitted_by=self)

    def _as_labels(self, labels: Any, data: Logits) -> IntArray:
        """Labels (n,) of rows, which may be names where those of the classes are known."""
        return as_labels(labels, data.n_rows, data.n_classes, classes=self.class_names)

    def _check_logits(self, logits: Any, *, late: bool = False) -> Logits:
        self._check_fitted()
        given = as_two_columns(logits) if self.rule_.binary_only else logits
        data = as_logits(given, fitted_by=self, late=late)
        self._warn_of_probabilities(data)
        return acceptable(self.rule_, data)

    def _warn_of_probabilities(self, data: Logits) -> None:
        """Warn if rows look like probabilities, and those of the fit did not."""
        support = self.kept_.support
        if support is None or type(data) is not Logits or not data.is_numpy:
            return
        # Fewer rows can sum to 1 by coincidence.
        highest = data.top.max() if data.n_rows >= _FEWEST_ROWS else np.inf
        if highest > 100.0 or data.top.min() <= 0.0:
            return
        scale = probability_scale(data, data.top)
        if (scale == 1.0 and support.top[1] > 1.0) or (scale == 100.0 and support.top[1] < highest):
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


def _narrow(found: Array, given: Any) -> Array:
    """NumPy's probabilities as float32, if they become that in the library of the logits."""
    backend = backend_of(given)
    if backend in (None, NUMPY) or not isinstance(found, np.ndarray):
        return found
    wide = backend.kind(given) != "float" or given.dtype == backend.namespace(given).float64
    return found if wide else to_float32(found)

"""What every calibrator does: checked input goes to the rule, and the answer to its library."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import NUMPY, Array, backend_of, float64_scope, to_input_library
from hokical._core.conversion import as_two_columns
from hokical._core.grouped_logits import GroupedLogits, with_groups
from hokical._core.groups import count_rows
from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import Logits, as_logits, check_rows
from hokical._core.topk import TopK
from hokical._core.types import IntArray
from hokical.guarantees._support import Support
from hokical.rules._base import Rule
from hokical.rules._predicting import Output, predict_blocks, to_float32
from hokical.rules._sets import SetRule


class Predictions:
    """Labels, confidence and probabilities of a fitted rule."""

    #: The fitted rule, and the number of classes.
    rule_: Rule
    n_classes_: int
    #: Names of the classes in the order of the columns, where known.
    class_names: tuple[str, ...] = ()
    #: What the calibration examples were like; None if it was not stored.
    support_: Support | None = None

    def predict(self, logits: Any, *, groups: Any = None) -> Array:
        """Labels (n,): the most likely class, or the classifier's own where the method keeps it.

        By default the label is the first maximum of `predict_proba`. Methods with
        `preserves_labels`, and the default with `keep_labels=True`, give the classifier's own.

        `logits` (n, classes) is an array of any library (NumPy, torch, JAX, CuPy, Dask), or a
        `TopK`; the answer has the same library and device. Files, chunks and iterators go through
        `hokical.streams`. `groups` are those of the rows, as in the fit: a calibrator that learned
        from groups needs them, and others ignore them. Rows whose group is missing or was not in
        the fit get the common answer, and a warning counts them.
        """
        return self.output("labels", self.with_groups(logits, groups))

    def predict_confidence(self, logits: Any, *, groups: Any = None) -> Array:
        """The probability (n,) that each predicted label is right."""
        return self.output("confidence", self.with_groups(logits, groups))

    def predict_proba(self, logits: Any, *, groups: Any = None, dtype: Any = None) -> Array:
        """Probabilities (n, classes); rows sum to 1 and masked classes (-inf) get 0.

        The only possible class of a row gets 1, whatever the confidence. The hidden classes of a
        `TopK` share their rest evenly. Where a method keeps the classifier's label, and its
        confidence is low, another class can be more likely; `predict` is still the label.
        `dtype="float32"` gives NumPy arrays of half the
        size, computed in float64 all the same; other libraries answer in the type of the logits.
        """
        given = self.with_groups(logits, groups)
        if dtype is None or backend_of(logits) not in (None, NUMPY):
            return self.output("proba", given)
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise ValueError(f"`dtype` must be 'float32' or 'float64'; got {dtype!r}.")
        data = self._check_logits(given)
        return predict_blocks(self.rule_, "proba", data, narrow=np.dtype(dtype) == np.float32)

    def with_groups(self, logits: Any, groups: Any) -> Any:
        """Logits with the groups of their rows (`GroupedLogits`), if the calibrator needs them.

        What takes logits takes these too: `output`, monitors, `compare`.
        """
        self.check_fitted()
        if groups is None or self.rule_.needed_groups is None or isinstance(logits, GroupedLogits):
            return logits
        return with_groups(logits, groups, self.rule_.needed_groups, fitted_by=self)

    def group_codes(self, groups: Any) -> IntArray:
        """Integers (n, columns), which torch modules and ONNX graphs take in place of groups.

        The last of each column is for rows whose group is missing or was not in the fit.
        """
        self.check_fitted()
        coding = self.rule_.needed_groups
        if coding is None:
            raise ValueError("`groups` have no codes: this calibrator did not learn from groups.")
        codes: IntArray = coding.codes(groups, count_rows(groups))
        return codes

    def predict_support(self, logits: Any) -> Array:
        """Which rows (n,) are like the calibration examples: False where it has seen no such row.

        A row is outside if the classifier's own certainty (the softmax log-odds of its label) or
        its top logit lies beyond all those of the fit. Confidence is an extrapolation there, and
        modest at best. Of n calibration examples and one more of the same kind, the last is outside
        with probability at most 4 / (n + 1); many such rows mean that the data are of another kind.

        >>> from hokical import Hoki
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (test_logits, _) = demo_logits()
        >>> cal = Hoki().fit(val_logits, val_labels)
        >>> bool(cal.predict_support(test_logits).mean() > 0.99)
        True
        >>> bool(cal.predict_support(20 * test_logits).mean() < 0.5)
        True
        """
        return self.output("support", logits)

    def score(
        self, logits: Any, labels: Any, sample_weight: Any = None, *, groups: Any = None
    ) -> float:
        """The negative Brier score of the confidence: larger is better, 0 is perfect."""
        data = self._check_logits(self.with_groups(logits, groups))
        truth = self._as_labels(labels, data)
        weights = as_weights(sample_weight, data.n_rows)
        error = self._output_on_host("confidence", data) - (
            self._output_on_host("labels", data) == truth
        )
        return -float(np.average(error**2, weights=weights))

    def check_fitted(self) -> None:
        """Raise if the calibrator is not fitted."""

    def output(self, what: Output | Literal["support"], logits: Any) -> Array:
        """The output of a `predict` method by name: "labels", "confidence", "proba", "support".

        "members" (n, classes), bool, is that of a calibrator `with_sets`.
        """
        self.check_fitted()
        if what == "members" and not isinstance(self.rule_, SetRule):
            raise ValueError(
                "sets need what is asked of them: use `predict_set(logits, coverage=0.9)`, or give "
                "`cal.with_sets(coverage=0.9)` in place of the calibrator."
            )
        backend = backend_of(logits)
        lazy = None if backend is None else backend.predict_lazily(self, what, logits)
        if lazy is not None:
            return lazy
        given = logits.given if isinstance(logits, Logits) else logits
        with float64_scope(given):
            data = self._check_logits(logits, late=True)
            if what == "support":
                found = self.known_support.holds(data)
            else:
                found = predict_blocks(self.rule_, what, data)
            if not isinstance(logits, Logits) and data.backend.queues_work(data.values):
                check_rows(data)
            return to_input_library(_narrow(found, given) if what == "proba" else found, given)

    @property
    def known_support(self) -> Support:
        """`support_`, or an error where it was not stored."""
        self.check_fitted()
        if self.support_ is None:
            raise ValueError(
                "what the examples of the fit were like was not stored with this calibrator. Fit "
                "it again."
            )
        return self.support_

    def _output_on_host(self, what: Output, data: Logits) -> NDArray[Any]:
        """An answer in full precision, on the host."""
        with data.backend.in_float64():
            return data.to_host(predict_blocks(self.rule_, what, data))

    def _as_labels(self, labels: Any, data: Logits) -> IntArray:
        """Labels (n,) of rows, which may be names where those of the classes are known."""
        return as_labels(labels, data.n_rows, data.n_classes, classes=self.class_names)

    def _check_logits(self, logits: Any, *, late: bool = False) -> Logits:
        self.check_fitted()
        given = as_two_columns(logits) if self.rule_.binary_only else logits
        return acceptable(self.rule_, as_logits(given, fitted_by=self, late=late))


def _narrow(found: Array, given: Any) -> Array:
    """NumPy's probabilities as float32, if they become that in the library of the logits."""
    backend = backend_of(given)
    if backend in (None, NUMPY) or not isinstance(found, np.ndarray):
        return found
    wide = backend.kind(given) != "float" or given.dtype == backend.namespace(given).float64
    return found if wide else to_float32(found)


def acceptable(method: Any, logits: Logits) -> Logits:
    """Return the logits if the method (a rule or an estimator) accepts them, else raise."""
    if type(logits) is Logits and getattr(method, "needed_groups", None) is not None:
        columns = ", ".join(method.needed_groups.columns)
        raise ValueError(
            f"`groups` must be given, as in the fit: {columns}. A group is never guessed; for rows "
            "whose group is not known pass None, and they get the common answer."
        )
    if type(logits) not in (method.logits_kind, TopK):
        raise TypeError(
            f"`logits` must be {_in_words(method.logits_kind)} for {method.name!r}; got "
            f"{_in_words(type(logits))}."
        )
    if method.accepts_top_k:
        return logits
    return logits.with_every_class(method.name, "Use temps, ets or hoki")


def check_plain_logits(method: Any, argument: str) -> None:
    """Raise if a method (a rule or an estimator) needs more than logits and groups."""
    if method.logits_kind not in (Logits, GroupedLogits):
        raise ValueError(
            f"`{argument}` cannot be {method.name!r} here, where there are logits alone: it needs "
            f"{_in_words(method.logits_kind)}. Call its `fit` and `predict` with that."
        )


def refuse_groups(rule: Rule) -> None:
    """Raise if a fitted rule needs groups, where nobody can pass them."""
    if rule.needed_groups is not None:
        raise ValueError(
            "`calibrator` must not have learned from groups here, where there are logits alone; "
            f"got one that needs {', '.join(rule.needed_groups.columns)}. Call its own `predict("
            "logits, groups=...)` on logits (n, classes), or fit one without groups."
        )


def _in_words(kind: type[Logits]) -> str:
    return "logits (n, classes)" if kind is Logits else f"a `{kind.__module__}.{kind.__name__}`"

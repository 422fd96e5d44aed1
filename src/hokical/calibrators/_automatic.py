"""The default: candidates averaged by held-out log loss, unless they do not clearly help."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from hokical._core.grouped_logits import GroupedLogits
from hokical._core.labels import as_labels
from hokical._core.logits import as_logits
from hokical._core.topk import TopK
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._core.warn import ConvergenceWarning, warn_user
from hokical._fitting.averaging import HeldOut, hold_out
from hokical._fitting.example_stats import has_zeros
from hokical._fitting.fit_warnings import FEWEST_EXAMPLES
from hokical._fitting.floor import choose_floor
from hokical._fitting.likelihood import WeightedExamples, effective_size, mean_and_error
from hokical._fitting.part_of_examples import SampledExamples, sample_examples
from hokical._fitting.partitions import Block, InMemory, Partition
from hokical._fitting.structured_passes import fit_structured_base
from hokical.calibrators._base import BaseCalibrator, Fit
from hokical.calibrators._group_learning import add_groups
from hokical.calibrators._profile import StabilityProfile
from hokical.rules._auto import PARTS, AutoRule
from hokical.rules._base import Rule
from hokical.rules._floored import FlooredRule
from hokical.rules._predicting import predict_blocks
from hokical.rules._profile import ProfileRule
from hokical.rules._softmax import UncalibratedRule

#: The classifier's own probabilities are kept unless the mean gain is this many standard errors:
#: at least the first with more than two classes, where that saves more than it costs; and more with
#: few examples: by their number, the second with two classes, the third with more, or half of the
#: parameters.
MIN_GAIN_SE, FEW_OF_TWO, FEW_OF_MORE = 0.7, 50.0, 80.0
#: The weights begin with examples that speak for structured scaling of two classes; or, of more,
#: for temperature scaling, by the class beyond two, and at most.
FOR_STRUCTURED, FOR_TEMPERATURE, MOST_FOR_TEMPERATURE = 2.0, 0.25, 6.0
#: Cross terms are fitted up to this many classes, and a stability profile above that many: it
#: costs most of an answer.
MAX_CROSS_CLASSES, PROFILED_ABOVE = 30, 20
#: The fit ends with a Newton step that promises no more than this in mean log loss; less where that
#: is below the second, down to 1 %. About a hundredth of it is left.
TOLERANCE, SMALL_LOSS, MAX_ITER = 1e-4, 0.1, 200
_TITLES = {
    "uncalibrated": "the classifier's own",
    "temps": "temperature scaling",
    "structured": "structured scaling",
}


class AutoCalibrator(BaseCalibrator):
    """The default: an average of candidates for all classes, weighed on held-out data.

    The candidates are the classifier's own probabilities, temperature scaling and structured
    scaling (with cross terms up to 30 classes). Each is asked about every example as if it had been
    fitted without it, and the weights of least log loss are taken. With more than 20 classes a
    stability profile is fitted on those averages; half of its correction, if it finds any, is used.
    If the average is not clearly better than the classifier's own probabilities, these are kept.

    `hokical.auto(logits, labels)` creates one and fits it.

    Parameters
    ----------
    keep_labels : bool
        False: `predict` gives the most likely class of `predict_proba`, and the confidence is its
        probability. True: `predict` gives the classifier's own label, and the confidence is the
        calibrated probability of that label; another class can then have a larger probability.
    interactions : bool, or list of pairs of names
        Of several columns of `groups`: whether to learn what holds only for pairs of their groups,
        as for women of one hospital. True tries every pair of columns, `[("sex", "site")]` those
        named. A pair is used if it clearly helps, as a column is.
    cv, random_state : None
        Deprecated, without effect: nothing is cut into folds, and nothing is random.

    Attributes
    ----------
    chosen_ : "average", "profile" or "uncalibrated"
    reason_ : why, in words
    shares_ : weight of every candidate by name
    held_out_log_loss_ : mean log loss on held-out examples by name, "average" among them
    weights_, structured_, profile_ : the parts of the rule
    converged_ : whether the fit of structured scaling converged
    groups_ : columns of `groups` that are used, if there were any

    Notes
    -----
    Fitted on `TopK`, which does not have every class, it is a stability profile. The label is then
    the classifier's own, whatever `keep_labels` is: only its confidence is known.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical import AutoCalibrator
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(2000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = AutoCalibrator().fit(3 * logits, labels)
    >>> bool(abs(cal.predict_proba(3 * logits).max(axis=1).mean() - 0.5) < 0.1)
    True
    """

    rule_kind = AutoRule
    ignored_parameters = ("cv", "random_state")
    accepts_top_k = True
    learns_groups = True
    fits_floor = False  # structured scaling has one; the classifier's own get one below
    title = "Automatic choice"
    reference = (
        "weights by held-out log loss: Wolpert: Stacked Generalization, Neural Networks 5, 1992, "
        "doi:10.1016/S0893-6080(05)80023-1; the candidates are those of the other methods"
    )
    cost = "a structured fit, and a profile above 20 classes"

    def __init__(
        self,
        *,
        keep_labels: bool = False,
        interactions: bool | Sequence[tuple[str, str]] = False,
        cv: Any = None,
        random_state: Any = None,
    ) -> None:
        self.keep_labels = keep_labels
        self.interactions = interactions
        self.cv = cv
        self.random_state = random_state

    def _check_parameters(self) -> None:
        if not isinstance(self.keep_labels, (bool, np.bool_)):
            raise ValueError(
                f"`keep_labels` must be True or False; got {self.keep_labels!r}. True predicts the "
                "classifier's own labels, False the most likely class."
            )
        for name in self.ignored_parameters:
            if getattr(self, name) is not None:
                warn_user(
                    f"`{name}` has no effect any more, and will be removed in 0.4: every example "
                    "is held out by itself, without folds or a seed. Leave it out.",
                    FutureWarning,
                )

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The estimator of a file's checked contents; files of 0.2 have folds and a seed."""
        kept = {
            name: value
            for name, value in document["parameters"].items()
            if name not in cls.ignored_parameters
        }
        return super().from_document(document | {"parameters": kept})

    @property
    def preserves_labels(self) -> bool:  # type: ignore[override]
        # Once fitted, of what was chosen: uncalibrated probabilities keep the classifier's labels.
        rule = self.__dict__.get("rule_")
        return bool(self.keep_labels) if rule is None else bool(rule.preserves_labels)

    def fit(
        self, logits: Any, labels: Any = None, sample_weight: Any = None, *, groups: Any = None
    ) -> Self:
        """Learn from validation logits (n, classes) and labels (n,), see `BaseCalibrator.fit`.

        `groups` are what is known of the rows and the classifier may not know: text or numbers
        (n,), or several columns (a mapping, a DataFrame, a structured array or (n, columns)).
        Columns that clearly help on held-out examples are used, and `predict` and its like then
        need them; `reason_` says which. Numbers with more than 20 different values are cut at
        deciles, with 50,000 examples or more into 30 parts.
        """
        return self._learn_from(self.fit_partition, logits, labels, sample_weight, groups=groups)

    def _fit(self, examples: Partition) -> Fit:
        name = type(self).__name__
        if examples.in_memory and isinstance(examples.gather(name).logits, TopK):
            if examples.groups is not None:
                raise TypeError(
                    "`logits` must be (n, classes) where there are `groups`; got a TopK. Leave the "
                    "groups out, or pass all logits."
                )
            return self._fit_best_classes(examples.gather(name).without_weightless())
        known = sample_examples(examples, name)
        found, held = self._fit_common(known)
        if isinstance(known.part.logits, GroupedLogits):
            return add_groups(found, known, held, self.interactions, bool(self.keep_labels))
        return found

    def _fit_common(self, known: SampledExamples) -> tuple[Fit, HeldOut | None]:
        """The fit without groups, and examples with what candidates say who have not seen them."""
        counted, n_examples = known.part, known.n_examples
        own = counted.logits.to_host(counted.logits.labels)
        hopeless = _find_hopeless(own == counted.labels, counted.labels, n_examples)
        if hopeless:
            hopeless += _tell_part(", judging by", counted.labels.size, known.n_rows)
            return _keep_own(counted, hopeless), None
        _, fit = fit_structured_base(
            known,
            cross_terms=counted.n_classes <= MAX_CROSS_CLASSES,
            tol=lambda loss: TOLERANCE * min(max(loss / SMALL_LOSS, 0.01), 1.0),
            max_iter=MAX_ITER,
        )
        held = hold_out(known, fit)
        weights = held.best_weights(_prior(counted.n_classes))
        mixed = held.chances @ weights
        losses = dict(zip(PARTS, held.losses.tolist(), strict=True))
        losses["average"] = float(-held.weights @ np.log(mixed))
        gain, error = mean_and_error(np.log(mixed / held.chances[:, 0]), held.weights)
        some = _tell_part(" of", held.labels.size, known.n_rows)
        if gain <= _caution(counted.n_classes, fit.minimum.x.size, n_examples) * error:
            kept = _keep_own(
                counted,
                f"an average of calibrated ones was not clearly better on held-out examples (log "
                f"loss{some} {losses['average']:.4f}, the classifier's own "
                f"{losses['uncalibrated']:.4f}, standard error {error:.4f})",
                losses,
            )
            return kept, held
        profile = _profile_on(held, weights) if counted.n_classes > PROFILED_ABOVE else None
        rule = AutoRule(weights, fit.rule, profile, bool(self.keep_labels))
        return Fit(rule, _tell_average(rule, losses, some, fit.minimum.converged)), held

    def _fit_best_classes(self, block: Block) -> Fit:
        """A profile, or the classifier's own confidence where that is not clearly worse."""
        share = block.counts / block.counts.sum()
        n_examples = effective_size(share)
        hopeless = _find_hopeless(block.correct, block.labels, n_examples)
        if hopeless:
            return _keep_own(None, hopeless)
        block = replace(block, weights=share * n_examples)
        rule, converged = _fit_profile(block)
        truth = block.correct
        own = _chance_of(UncalibratedRule(), block, truth)
        found = _chance_of(rule, block, truth)
        gain, error = mean_and_error(np.log(found / own), share)
        if gain <= MIN_GAIN_SE * error:
            return _keep_own(None, "a stability profile was not clearly better")
        reason = "a stability profile was fitted, as not every class has a logit."
        return Fit(rule, _report("profile", reason, {"profile": 1.0}, converged=converged))


def auto(
    logits: Any,
    labels: Any = None,
    sample_weight: Any = None,
    *,
    groups: Any = None,
    classes: Sequence[str] = (),
    **options: Any,
) -> AutoCalibrator:
    """Fit the default on validation logits and labels.

    Parameters
    ----------
    logits : array of shape (n, classes), or TopK
    labels : array-like of shape (n,)
        Column indices; or names of the `classes`.
    sample_weight : array-like of shape (n,), optional
    groups : array-like of shape (n,), or several columns, optional
        Sites, subjects, sexes, ages: see `AutoCalibrator.fit`.
    classes : sequence of str, optional
        Names of the classes, in the order of the columns; `certify`, `score` and `detect` then take
        names as well, and prediction sets have them.
    options
        Of `AutoCalibrator`: `keep_labels`, `interactions`.

    Examples
    --------
    >>> import hokical
    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (logits, labels) = demo_logits()
    >>> cal = hokical.auto(val_logits, val_labels)
    >>> cal.reason_.startswith("an average was fitted: ")
    True
    """
    names = tuple(classes)
    if names:
        columns = as_logits(logits).n_classes
        if len(set(names)) != columns:
            raise ValueError(
                f"`classes` must name each of the {columns} columns of `logits`; got {len(names)}."
            )
        labels = as_labels(labels, len(labels), columns, classes=names)
    found = AutoCalibrator(**options).fit(logits, labels, sample_weight, groups=groups)
    found.class_names = names
    return found


def _prior(n_classes: int) -> FloatArray:
    """Examples (3,) that speak for one of `PARTS` before any is seen."""
    if n_classes == 2:
        return np.array([0.0, 0.0, FOR_STRUCTURED])
    return np.array([0.0, min(FOR_TEMPERATURE * (n_classes - 2.0), MOST_FOR_TEMPERATURE), 0.0])


def _caution(n_classes: int, n_parameters: int, n_examples: float) -> float:
    """How many standard errors the gain must be."""
    least, few = (0.0, FEW_OF_TWO) if n_classes == 2 else (MIN_GAIN_SE, FEW_OF_MORE)
    return max(least, few / n_examples, 0.5 * n_parameters / n_examples)


def _find_hopeless(correct: BoolArray, labels: IntArray, n_examples: float) -> str:
    """Why nothing can be learned from the examples; "" if something can."""
    if n_examples < FEWEST_EXAMPLES * (1.0 - 1e-9):  # but for rounding
        few = f"{labels.size} examples"
        if n_examples < labels.size * (1.0 - 1e-9):
            few += f", whose weights make them worth {n_examples:.3g},"
        return f"{few} are too few to tell what is better (at least {FEWEST_EXAMPLES})"
    if correct.all():
        return "without a mistake, nothing tells how sure is too sure"
    if (labels == labels[0]).all():
        return f"every example is of class {labels[0]}, so nothing tells how likely the others are"
    return ""


def _keep_own(
    examples: WeightedExamples | None, why: str, losses: dict[str, float] | None = None
) -> Fit:
    """No calibration but a floor below probabilities of 0, and the reason."""
    rule: Rule = UncalibratedRule()
    if examples is not None and has_zeros(examples.logits):
        floor = choose_floor(examples)
        rule = FlooredRule(floor, rule) if floor > 0.0 else rule
    reason = f"the classifier's own probabilities were kept: {why}."
    return Fit(rule, _report("uncalibrated", reason, {"uncalibrated": 1.0}, losses))


def _tell_part(word: str, asked: int, n_rows: int) -> str:
    """After which word how many examples were looked at; "" if all were."""
    return "" if asked == n_rows else f"{word} {asked:,} of {n_rows:,} examples"


def _tell_average(
    rule: AutoRule, losses: dict[str, float], some: str, converged: bool
) -> dict[str, Any]:
    """The report; `some` says of which examples the losses are, if not of all."""
    shares = {PARTS[i]: float(weight) for i, weight in enumerate(rule.weights) if weight > 0.0}
    named = ", ".join(f"{weight:.0%} {_TITLES[name]}" for name, weight in shares.items())
    scores = ", ".join(f"{name} {loss:.4f}" for name, loss in losses.items())
    profile = "" if rule.profile is None else ", then half of a stability profile's correction"
    reason = f"an average was fitted: {named}{profile} (held-out log loss{some}: {scores})."
    return _report("average", reason, shares, losses, converged)


def _report(
    chosen: str,
    reason: str,
    shares: dict[str, float],
    losses: dict[str, float] | None = None,
    converged: bool = True,
) -> dict[str, Any]:
    if not converged:
        warn_user(f"AutoCalibrator did not converge: {reason}", ConvergenceWarning)
    return {
        "chosen": chosen,
        "reason": reason,
        "shares": shares,
        "held_out_log_loss": losses or {},
        "converged": converged,
    }


def _profile_on(held: HeldOut, weights: FloatArray) -> ProfileRule | None:
    """The stability profile of held-out averages, if its fit converges and finds something."""
    counts = held.weights * held.n_examples
    rule, converged = _fit_profile(Block(held.average(weights), held.labels, counts))
    return rule if converged and rule.coef.any() else None


def _fit_profile(block: Block) -> tuple[ProfileRule, bool]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what does not converge is not used
        found = StabilityProfile()._fit(InMemory(block))
    assert isinstance(found.rule, ProfileRule)
    return found.rule, bool(found.report["converged"])


def _chance_of(rule: Any, block: Block, truth: Any) -> FloatArray:
    """The probability (n,) given to what happened: the label is right, or it is not."""
    confidence = block.logits.to_host(predict_blocks(rule, "confidence", block.logits))
    return np.clip(np.where(truth, confidence, 1.0 - confidence), 1e-12, 1.0)

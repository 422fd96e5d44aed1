"""The default: scores of all classes by held-out log loss, corrected row by row; or no change."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import per_row
from hokical._core.grouped_logits import GroupedLogits
from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical._core.types import FloatArray, IntArray
from hokical._core.warn import ConvergenceWarning, warn_user
from hokical._fitting.averaging import BaseFit, fit_average, weighing_step
from hokical._fitting.class_scaling import fit_class_scaling
from hokical._fitting.examples import FEWEST_EXAMPLES, Examples, has_zeros, spaced_rows
from hokical._fitting.row_correction import (
    ERRORS,
    CorrectionProblem,
    fit_row_correction,
    standard_error,
)
from hokical._fitting.temperature import best_temperature, choose_floor, moment_sums
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._group_learning import add_groups
from hokical.calibrators._method import Fit, MethodInfo
from hokical.rules._adaptive import AdaptiveRule
from hokical.rules._auto import PARTS, AutoRule, Average, ClassScaling, as_scores
from hokical.rules._base import Rule
from hokical.rules._probabilities import uncalibrated
from hokical.rules._row_correction import RowCorrection, corrected_scores, row_features
from hokical.rules._scaling import TemperatureRule, UncalibratedRule
from hokical.rules._wrapped import FlooredRule

#: Structured scaling, with terms between classes, is a candidate up to this many classes. Of more,
#: each class has a scale and a bias.
MAX_CROSS_CLASSES = 30


class AutoCalibrator(Calibrator):
    """The default: calibrated probabilities of all classes, judged on held-out examples.

    Up to 30 classes, the uncalibrated probabilities, temperature scaling and structured scaling
    are averaged, with the weights of least held-out log loss. With more classes, temperature
    scaling gets a scale and a bias for each class, shrunk by held-out log loss. From three classes
    on, a row correction follows: a temperature and a shift of the label for each row, linear in
    its label stabilities, if that is clearly better. Each example is predicted as if it had been
    left out of the fit. If the result is not clearly better than the uncalibrated probabilities,
    these are kept.

    `hokical.auto(logits, labels)` creates one and fits it.

    Parameters
    ----------
    keep_labels : bool
        False: `predict` gives the most likely class of `predict_proba`, and the confidence is its
        probability. True: `predict` gives the classifier's own label, and the confidence is the
        calibrated probability of that label; another class can then have a larger probability.

    Attributes
    ----------
    chosen_ : "average", "class scaling", "adaptive" or "uncalibrated"
    reason_ : why, in words
    shares_ : weight of every candidate by name
    held_out_log_loss_ : mean log loss on held-out examples by name; "final" is that of the result
    base_, correction_ : the parts of the rule; None where it has none
    converged_ : whether the fit converged
    groups_ : columns of `groups` that are used; None if the fit had no groups

    Notes
    -----
    Fitted on `TopK`, which does not have every class, it is adaptive temperature scaling. The label
    is then the classifier's own, whatever `keep_labels` is: only its confidence is known.

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

    method = MethodInfo(
        AutoRule,
        "Automatic choice",
        "weights by held-out log loss: Wolpert: Stacked Generalization, Neural Networks 5, 1992, "
        "doi:10.1016/S0893-6080(05)80023-1; the candidates are those of the other methods",
        "some ten fits of temperature scaling",
        fits_floor=False,  # its candidates have one; uncalibrated probabilities get one below
        fits_top_k=True,
        learns_groups=True,
    )

    chosen_: str
    reason_: str
    shares_: dict[str, float]
    held_out_log_loss_: dict[str, float]
    base_: Average | ClassScaling | None = None
    correction_: RowCorrection | None = None
    groups_: list[str] | None = None

    def __init__(self, *, keep_labels: bool = False) -> None:
        self.keep_labels = keep_labels

    def _check_parameters(self) -> None:
        if not isinstance(self.keep_labels, (bool, np.bool_)):
            raise ValueError(
                f"`keep_labels` must be True or False; got {self.keep_labels!r}. True predicts the "
                "classifier's own labels, False the most likely class."
            )

    def _fit(self, sample: Examples) -> Fit:
        examples = sample.learnable
        if isinstance(examples.logits, TopK):
            found = _fit_best_classes(examples)
        else:
            found, held_out = _fit_every_class(examples, bool(self.keep_labels))
            if isinstance(examples.logits, GroupedLogits):
                found = add_groups(found, examples, held_out, bool(self.keep_labels))
        if sample.description:
            reason = f"{found.report['reason']} It was {sample.description}."
            found = replace(found, report=found.report | {"reason": reason})
        return found


def auto(
    logits: Any,
    labels: Any = None,
    sample_weight: Any = None,
    *,
    groups: Any = None,
    classes: Sequence[str] = (),
    score_columns: Sequence[str] = (),
    **options: Any,
) -> AutoCalibrator:
    """Fit the default on validation logits and labels.

    Parameters
    ----------
    logits : array of shape (n, classes), TopK, or a table of any Arrow engine, see `Calibrator.fit`
    labels : array-like of shape (n,)
        Column indices; or names of the `classes`; or the name of a column of the table.
    sample_weight : array-like of shape (n,), optional
    groups : array-like of shape (n,), or several columns, optional
        Sites, subjects, sexes, ages: see `AutoCalibrator.fit`.
    classes : sequence of str, optional
        Names of the classes, in the order of the columns; `certify`, `score` and `detect` then take
        names as well, and prediction sets have them.
    score_columns : sequence of str, optional
        The columns of a table that hold the scores, class 0 first, if their names do not tell.
    options
        Of `AutoCalibrator`: `keep_labels`.

    Examples
    --------
    >>> import hokical
    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (logits, labels) = demo_logits()
    >>> cal = hokical.auto(val_logits, val_labels)
    >>> cal.chosen_
    'average'
    """
    rows: dict[str, Any] = {"groups": groups, "classes": classes, "score_columns": score_columns}
    return AutoCalibrator(**options).fit(logits, labels, sample_weight, **rows)


def _fit_every_class(examples: Examples, keep_labels: bool) -> tuple[Fit, Logits | None]:
    """The fit without groups, and held-out log-probabilities of all examples, if there are any."""
    why = _find_degenerate(examples)
    if why:
        return _keep_uncalibrated(examples, why), None
    few = examples.n_classes <= MAX_CROSS_CLASSES
    base = fit_average(examples) if few else fit_class_scaling(examples)
    correction, held_out = None, base.held_out
    if examples.n_classes > 2:
        correction, held_out = _correct_rows(base)
    before, after, error = _compare(base.examples, held_out)
    losses = base.losses | {"uncalibrated": before, "final": after}
    every = held_out if held_out.n_rows == examples.logits.n_rows else None
    if before - after <= ERRORS * error:
        why = (
            "no calibrated ones were clearly better on held-out examples (log loss "
            f"{after:.4f}, uncalibrated {before:.4f}, standard error {error:.4f})"
        )
        return _keep_uncalibrated(examples, why, losses), every
    rule: Rule = AutoRule(base.base, correction, keep_labels)
    if isinstance(base.base, ClassScaling) and correction is None and len(base.shares) == 1:
        rule = TemperatureRule(base.base.temperature)
    if base.floor > 0.0:
        rule = FlooredRule(base.floor, rule)
    chosen = "average" if few else "class scaling"
    reason = _describe(base, correction, losses, examples.labels.size)
    return Fit(rule, _report(chosen, reason, base.shares, losses, base.converged)), every


def _correct_rows(base: BaseFit) -> tuple[RowCorrection | None, Logits]:
    """The row correction, and the base's held-out scores after it.

    Held-out scores depend on their own labels a little, and features of them would tell these
    where rows hardly differ: so the features are those of the whole fit.
    """
    examples, logits = base.examples, base.held_out

    def describe(block: Logits) -> Array:
        return row_features(base.scores(block)).T

    features = per_row(describe, examples.logits)
    correction, pairs = fit_row_correction(replace(examples, logits=logits), features=features)
    if correction is None:
        return None, base.held_out
    log_scale, shift = (logits.from_host(column) for column in pairs.T)
    scores = corrected_scores(logits, logits.xp.exp(log_scale), shift)
    held_out = as_scores(scores, logits)
    if _is_too_good(base, correction, held_out):
        return None, base.held_out
    return correction, held_out


def _is_too_good(base: BaseFit, correction: RowCorrection, held_out: Logits) -> bool:
    """Whether examples are predicted better held out than by the whole fit, which has seen them.

    The correction has then learned labels from what leaving an example out changes in its scores.
    """
    rows = spaced_rows(0, base.examples.n_rows, max(weighing_step(held_out), 1))
    some = base.examples.take(rows)
    both = (base.scores(some.logits, correction), held_out.take(rows))
    seen, unseen = (float(some.share @ _log_losses(logits, some.labels)) for logits in both)
    return seen > unseen


def _compare(examples: Examples, calibrated: Logits) -> tuple[float, float, float]:
    """Mean log loss, uncalibrated and calibrated, and the standard error of the difference."""
    own, share = examples.logits, examples.share
    before, after = (_log_losses(logits, examples.labels) for logits in (own, calibrated))
    # If the uncalibrated probabilities are right, the gain of a row varies by its class.
    xp, proba = own.xp, uncalibrated(own)
    gaps = xp.where(own.possible, own.margins - calibrated.margins, xp.zeros_like(proba))
    mean = xp.sum(proba * gaps, axis=1)
    variances = own.to_host(xp.sum(proba * gaps * gaps, axis=1) - mean * mean)
    error = standard_error(before - after, variances, share)
    return float(share @ before), float(share @ after), error


def _log_losses(logits: Logits, labels: IntArray) -> FloatArray:
    """-log p of the true class, (n,)."""
    sums = per_row(lambda block: moment_sums(block, 1.0)[0], logits)
    return np.asarray(np.log(sums) + logits.to_host(logits.top) - logits.of_class(labels))


def _fit_best_classes(examples: Examples) -> Fit:
    """Adaptive temperature scaling of a `TopK`, or its uncalibrated confidence."""
    why = _find_degenerate(examples)
    if why:
        return _keep_uncalibrated(None, why)
    found = best_temperature(examples)
    correction, held_out = fit_row_correction(examples, found.x)
    # Uncalibrated, the logits are not divided by the temperature.
    pair = held_out - np.array([np.log(found.x), 0.0])
    gain, error = CorrectionProblem(examples, 1.0).gain(pair)
    if gain <= ERRORS * error:
        return _keep_uncalibrated(None, "adaptive temperature scaling was not clearly better")
    rule: Rule = TemperatureRule(found.x)
    what = "temperature scaling was chosen"
    if correction is not None:
        rule = AdaptiveRule(found.x, correction)
        what = "temperature scaling with a row correction was chosen"
    reason = f"{what}, as not every class has a logit."
    return Fit(rule, _report("adaptive", reason, {"adaptive": 1.0}, converged=found.converged))


def _find_degenerate(examples: Examples) -> str:
    """Why nothing can be learned from the examples; "" if something can."""
    labels, n_examples = examples.labels, examples.effective_size
    if n_examples < FEWEST_EXAMPLES * (1.0 - 1e-9):  # but for rounding
        few = f"{labels.size} examples"
        if n_examples < labels.size * (1.0 - 1e-9):
            few += f", whose weights make them worth {n_examples:.3g},"
        return f"{few} are too few to tell what is better (at least {FEWEST_EXAMPLES})"
    if examples.correct.all():
        return "the examples have no mistake that could show overconfidence"
    if (labels == labels[0]).all():
        return f"every example is of class {labels[0]}, so nothing shows how likely the others are"
    return ""


def _keep_uncalibrated(
    examples: Examples | None, why: str, losses: dict[str, float] | None = None
) -> Fit:
    """No calibration but a floor below probabilities of 0, and the reason."""
    rule: Rule = UncalibratedRule()
    floor = 0.0 if examples is None or not has_zeros(examples.logits) else choose_floor(examples)
    kept = "the uncalibrated probabilities were kept"
    if floor > 0.0:
        rule, kept = FlooredRule(floor, rule), f"{kept} with {floor:g} added, as some are 0"
    reason = f"{kept}: {why}."
    return Fit(rule, _report("uncalibrated", reason, {"uncalibrated": 1.0}, losses))


def _describe(
    base: BaseFit, correction: RowCorrection | None, losses: dict[str, float], n_rows: int
) -> str:
    """What was fitted and why, in words."""
    shares = list(base.shares.items())
    if "class scaling" in base.shares:
        share = base.shares["class scaling"]
        what = f"temperature scaling with a scale and a bias for each class (shrunk to {share:.0%})"
    elif len(shares) == 1:
        what = PARTS[shares[0][0]]
    else:
        named = [f"{PARTS[name]} ({weight:.0%})" for name, weight in shares]
        what = f"an average of {', '.join(named[:-1])} and {named[-1]}"
    if correction is not None:
        what += f" {'and' if 'class scaling' in base.shares else 'with'} a row correction"
    some = base.examples.labels.size
    of = "" if some == n_rows else f" of {some:,} of {n_rows:,} examples"
    scores = ", ".join(f"{PARTS.get(name, name)} {loss:.4f}" for name, loss in losses.items())
    return f"{what} was chosen (held-out log loss{of}: {scores})."


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

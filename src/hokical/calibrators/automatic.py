"""The default: scores of all classes by held-out log loss, corrected row by row; or no change.

What it learns from groups comes on top of its fit without them.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from hokical._core.arrays import Array
from hokical._core.logits import Logits, per_row
from hokical._core.messages import ConvergenceWarning, FitDataWarning, warn_user
from hokical._core.parallel import one_blas_thread
from hokical._core.topk import TopK
from hokical._fitting.default import (
    BaseFit,
    CorrectionProblem,
    distrust,
    fit_base,
    fit_row_correction,
    mean_loss,
    weighing_step,
)
from hokical._fitting.examples import FEWEST_EXAMPLES, Examples, has_zeros, spaced_rows
from hokical._fitting.group_effects import GroupEffects, Pooling, learn_groups
from hokical._fitting.pooled_terms import SoftmaxTerms
from hokical._fitting.temperature import choose_floor_alone, shrink_temperature
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.stored import Fit, MethodInfo
from hokical.rules.automatic import (
    AdaptiveRule,
    AutoRule,
    RowCorrection,
    corrected_scores,
    row_features,
)
from hokical.rules.base import Rule, as_log_proba, as_scores, predict_blocks, uncalibrated
from hokical.rules.scaling import StructuredRule, TemperatureRule, UncalibratedRule
from hokical.rules.wrapped import FlooredRule, GroupedRule

#: A column is used if a gain of none would reach that of the column with this probability.
LEVEL = 0.025
#: Classes have biases by group up to this many; of more, there is a scale by group alone.
MAX_BIASED = 30


@one_blas_thread()
def add_groups(
    found: Fit,
    counted: Examples,
    held_out: Logits | None,
    keep_labels: bool,
) -> Fit:
    """The fit with the corrections of those groups that help, and the reason.

    `held_out` are log-probabilities by fits without each example, where there are any.
    """
    coding = counted.coding
    assert coding is not None
    text, rule, used = "nothing can be learned from the examples", found.rule, []
    if found.report["held_out_log_loss"]:  # else the examples are degenerate
        rows = _predict(found.rule, counted, held_out)
        blocks = [0] + [1] * (rows.n_features - 1)
        pooling = Pooling(LEVEL, own_blocks=blocks, common_blocks=blocks)
        without = GroupEffects(coding, rows.losses(rows.offset))
        effects = learn_groups(rows, counted.logits.codes, without, pooling)
        text, used = "; ".join(effects.notes), list(dict.fromkeys(chain(*effects.terms)))
        if effects.fit is not None:
            terms = tuple(tuple(used.index(k) for k in term) for term in effects.terms)
            first, *others = effects.tables().values()
            table = np.vstack([first + effects.fit.common, *others])
            bias = table[:, 1:] if rows.biased else np.zeros((len(table), 1))
            rule = GroupedRule(rule, coding.take(used), table[:, 0], bias, keep_labels, terms)
    names = [coding.columns[k] for k in used]
    reason = f"{found.report['reason']} Groups: {text}."
    return replace(found, rule=rule, report=found.report | {"reason": reason, "groups": names})


def _predict(rule: Rule, examples: Examples, held_out: Logits | None) -> SoftmaxTerms:
    """Log-probabilities of the examples: held-out ones, where there are any of a fitted rule."""
    logits = examples.logits
    if held_out is None or isinstance(rule.core, UncalibratedRule):
        proba = predict_blocks(rule, "proba", logits)
    else:
        proba = uncalibrated(held_out)
    log_proba = logits.to_host(as_log_proba(proba, logits).values)
    possible = logits.to_host(logits.possible)
    counts = examples.share * examples.effective_size
    return SoftmaxTerms(
        np.where(possible, log_proba, 0.0),
        examples.labels,
        np.where(possible, log_proba, -np.inf),
        counts,
        biased=examples.n_classes <= MAX_BIASED,
    )


#: What scores are averaged, in words.
TITLES = {
    "uncalibrated": "the uncalibrated logits",
    "temps": "temperature scaling",
    "structured": "structured scaling",
}


class AutoCalibrator(Calibrator):
    """The default: calibrated probabilities of all classes, judged on held-out examples.

    Structured scaling is fitted with several ridge penalties, an infinitely large one included,
    which is temperature scaling; above 30 classes it has a scale and a bias for each class, and no
    terms between classes. The scores of these fits are averaged with the weights of least held-out
    log loss, and moved towards the uncalibrated logits unless the gain over them is clear. From
    three classes on, a row correction follows: a temperature and a shift of the label for each row,
    linear in its label stabilities, if that is clearly better. Each example is predicted as if it
    had been left out of the fit. Fewer than ten examples, or examples of one class alone, leave the
    probabilities uncalibrated, with a warning.

    `hokical.auto(logits, labels)` creates one and fits it.

    Parameters
    ----------
    keep_labels : bool
        False: `predict` gives the most likely class of `predict_proba`, and the confidence is its
        probability. True: `predict` gives the classifier's own label, and the confidence is the
        calibrated probability of that label; another class can then have a larger probability.

    Attributes
    ----------
    chosen_ : the largest of `shares_`; "adaptive" if fitted on `TopK`
    reason_ : what was fitted, in words
    shares_ : weights of "structured", "temps" and "uncalibrated" scores in the average
    held_out_log_loss_ : mean log loss on held-out examples of "uncalibrated", "temps" and
        "structured" (at its best weights), and "final", that of the result
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
    base_: StructuredRule | None = None
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
            if examples.coding is not None:
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
    'temps'
    """
    rows: dict[str, Any] = {"groups": groups, "classes": classes, "score_columns": score_columns}
    return AutoCalibrator(**options).fit(logits, labels, sample_weight, **rows)


def _fit_every_class(examples: Examples, keep_labels: bool) -> tuple[Fit, Logits | None]:
    """The fit without groups, and held-out log-probabilities of all examples, if there are any."""
    why = _find_degenerate(examples)
    if why:
        return _keep_uncalibrated(examples, why), None
    base = fit_base(examples)
    correction, held_out = None, base.held_out
    if examples.n_classes > 2:
        correction, held_out = _correct_rows(base)
    final = mean_loss(held_out, base.examples, base.rule.even) + base.optimism
    losses = base.losses | {"final": final}
    every = held_out if held_out.n_rows == examples.logits.n_rows else None
    rule: Rule = AutoRule(base.rule, correction, keep_labels)
    if correction is None and "structured" not in base.shares:
        rule = TemperatureRule(base.rule.temperature / float(base.rule.scale[0]))
        if "temps" not in base.shares:
            rule = UncalibratedRule()
        if base.rule.floor > 0.0:
            rule = FlooredRule(base.rule.floor, rule)
    chosen = max(base.shares, key=base.shares.__getitem__)
    reason = _describe(base, correction, losses, examples.labels.size)
    return Fit(rule, _report(chosen, reason, base.shares, losses, base.converged)), every


def _correct_rows(base: BaseFit) -> tuple[RowCorrection | None, Logits]:
    """The row correction, and the base's held-out scores after it.

    Held-out scores depend on their own labels a little, and features of them would leak these where
    rows are near-duplicates: so the features are those of the whole fit.
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
    rows = spaced_rows(0, examples.n_rows, max(weighing_step(held_out), 1))
    some = examples.take(rows)
    seen, unseen = base.scores(some.logits, correction), held_out.take(rows)
    if mean_loss(seen, some) > mean_loss(unseen, some):  # labels have leaked into held-out scores
        return None, base.held_out
    return correction, held_out


def _fit_best_classes(examples: Examples) -> Fit:
    """Adaptive temperature scaling of a `TopK`, or its uncalibrated confidence."""
    why = _find_degenerate(examples)
    if why:
        return _keep_uncalibrated(None, why)
    found = shrink_temperature(examples)
    correction, pairs = fit_row_correction(examples, found.x)
    # Uncalibrated, the logits are not divided by the temperature.
    gain, error = CorrectionProblem(examples, 1.0).gain(pairs - np.array([np.log(found.x), 0.0]))
    away = distrust(examples.effective_size, gain, error)
    temperature = 1.0 / ((1.0 - away) / found.x + away)
    rule: Rule = TemperatureRule(temperature)
    what = "temperature scaling"
    if correction is not None:
        rule, what = AdaptiveRule(temperature, correction), f"{what} with a row correction"
    reason = f"{what}, as not every class has a logit."
    return Fit(rule, _report("adaptive", reason, {"adaptive": 1.0}, converged=found.converged))


def _find_degenerate(examples: Examples) -> str:
    """Why nothing can be learned from the examples; "" if something can."""
    labels, n_examples = examples.labels, examples.effective_size
    if n_examples < FEWEST_EXAMPLES * (1.0 - 1e-9):  # but for rounding
        few = f"{labels.size} examples"
        if n_examples < labels.size * (1.0 - 1e-9):
            few += f", whose weights make them worth {n_examples:.3g},"
        return f"{few} are too few to calibrate with (at least {FEWEST_EXAMPLES})"
    if (labels == labels[0]).all():
        return f"all {labels.size} examples are of class {labels[0]}"
    return ""


def _keep_uncalibrated(examples: Examples | None, why: str) -> Fit:
    """No calibration but a floor below probabilities of 0, and the reason, which is a warning."""
    rule: Rule = UncalibratedRule()
    floor = (
        0.0 if examples is None or not has_zeros(examples.logits) else choose_floor_alone(examples)
    )
    kept = "the uncalibrated probabilities were kept"
    if floor > 0.0:
        rule, kept = FlooredRule(floor, rule), f"{kept} with {floor:g} added, as some are 0"
    reason = f"{kept}: {why}."
    remedy = "examples of all classes" if "of class" in why else "more examples"
    warn_user(f"{reason[0].upper()}{reason[1:]} Use {remedy}.", FitDataWarning)
    return Fit(rule, _report("uncalibrated", reason, {"uncalibrated": 1.0}))


def _describe(
    base: BaseFit, correction: RowCorrection | None, losses: dict[str, float], n_rows: int
) -> str:
    """What was fitted, in words, and held-out log losses."""
    named = [f"{TITLES[name]} ({share:.0%})" for name, share in base.shares.items()]
    what = f"an average of the scores of {', '.join(named[:-1])} and {named[-1]}"
    if len(named) == 1:
        what = TITLES[next(iter(base.shares))]
    if correction is not None:
        what += " with a row correction"
    some = base.examples.labels.size
    of = "" if some == n_rows else f" of {some:,} of {n_rows:,} examples"
    scores = ", ".join(f"{TITLES.get(name, name)} {_digits(loss)}" for name, loss in losses.items())
    return f"{what} (held-out log loss{of}: {scores})."


def _digits(loss: float) -> str:
    return f"{loss:.4f}" if loss < 1e4 else f"{loss:.4g}"


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

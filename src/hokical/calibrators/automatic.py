"""The default: scores averaged by held-out log loss, and corrected row by row.

Without enough examples the probabilities stay uncalibrated. Corrections by group come on
top of the fit without groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np

from hokical._core.arrays import FloatArray
from hokical._core.checks import check_choice
from hokical._core.logits import Logits, TopK
from hokical._core.runtime import FitDataWarning, one_blas_thread, warn_user
from hokical._fitting import default, searches
from hokical._fitting.examples import FEWEST_EXAMPLES, Examples, has_zeros
from hokical._fitting.number_effects import beside_numbers, learn_numbers
from hokical._fitting.partial_pooling import GroupEffects, SoftmaxTerms, learn_groups
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.stored import Fit, MethodInfo
from hokical.rules import base, scaling
from hokical.rules.base import FlooredRule, GroupedRule, Rule, UncalibratedRule

#: A column is used if a column without effect would reach its gain with at most this
#: probability.
GROUP_LEVEL = 0.025
#: Classes have biases by group up to this many; of more, there is a scale by group
#: alone.
MAX_BIASED = 30
#: What scores are averaged, in words.
TITLES = {
    "uncalibrated": "the uncalibrated logits",
    "temps": "temperature scaling",
    "structured": "structured scaling",
}


class AutoCalibrator(Calibrator):
    """The default: calibrated probabilities of all classes, judged on held-out
    examples.

    Structured scaling is fitted with several ridge penalties, an infinitely large one
    included, which is temperature scaling; above 30 classes it has a scale and a bias
    for each class, and no terms between classes. The scores of these fits are averaged
    with weights that minimise held-out log loss, and moved towards the uncalibrated
    logits unless the gain over them is clear. From three classes on, a row correction
    follows: a temperature and a shift of the label for each row, linear in its label
    stabilities, if that is clearly better. Each example is predicted as if it had been
    left out of the fit. Where the labels clearly contradict the mean probabilities, as
    after training with class weights, biases are hardly shrunk, and of two classes the
    mean probability becomes the share of the labels. Fewer than ten examples leave the
    probabilities uncalibrated, and examples of one class alone determine a temperature
    only, each with a warning.

    `hokical.auto(logits, labels)` creates one and fits it.

    Parameters
    ----------
    keep_labels : bool
        False: `predict` gives the most likely class of `predict_proba`, and the
        confidence is its probability. True: `predict` gives the classifier's own label,
        and the confidence is the calibrated probability of that label; another class
        can then have a larger probability.

    Attributes
    ----------
    chosen_ : the largest of `shares_`; "adaptive" if fitted on `TopK`
    reason_ : what was fitted, in words
    shares_ : weights of "structured", "temps" and "uncalibrated" scores in the average
    held_out_log_loss_ : mean log loss on held-out examples of "uncalibrated", "temps"
        and "structured" (at its best weights), and "final", that of the result
    base_, correction_ : the parts of the rule; None where it has none
    converged_ : whether the fit converged
    groups_ : columns of `groups` that are used; None if the fit had no groups

    Notes
    -----
    Fitted on `TopK`, which does not have every class, it is adaptive temperature
    scaling. The label is then the classifier's own, whatever `keep_labels` is: only its
    confidence is known.

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
        scaling.AutoRule,
        "Automatic choice",
        "weights by held-out log loss: Wolpert: Stacked Generalization, Neural "
        "Networks 5, 1992, doi:10.1016/S0893-6080(05)80023-1; the candidates are those "
        "of the other methods",
        "four to nine fits of temperature scaling",
        fits_floor=False,  # its candidates have one; uncalibrated probabilities get one below
        learns_groups=True,
        examples_needed=None,  # few examples are a warning of its own
        changes_labels=True,
        accepts_top_k=True,
        simpler_rule=Rule,  # files of earlier versions hold that of one candidate
    )

    chosen_: str
    reason_: str
    shares_: dict[str, float]
    held_out_log_loss_: dict[str, float]
    base_: scaling.StructuredRule | None = None
    correction_: scaling.RowCorrection | None = None
    groups_: list[str] | None = None

    def __init__(self, *, keep_labels: bool = False) -> None:
        self.keep_labels = keep_labels

    def _check_parameters(self) -> None:
        remedy = (
            "True predicts the classifier's own labels, False the most likely class."
        )
        check_choice("keep_labels", self.keep_labels, Literal[True, False], remedy)

    @property
    def _keeps_member_labels(self) -> bool:
        return self.keep_labels is True

    def _fit(self, sample: Examples) -> Fit:
        examples = sample.learnable
        keep_labels = bool(self.keep_labels)
        choice = _choose(examples, keep_labels)
        report: dict[str, Any] = {
            "chosen": max(choice.shares, key=choice.shares.__getitem__),
            "shares": choice.shares,
            "held_out_log_loss": choice.losses,
            "converged": choice.converged,
        }
        rule = choice.rule
        reason = choice.reason
        if examples.coding is not None:
            grouped = GroupChoice(rule, "nothing can be learned from the examples", [])
            if choice.losses:  # else the examples are degenerate
                grouped = add_groups(rule, examples, choice.held_out, keep_labels)
            rule = grouped.rule
            report["groups"] = grouped.columns
            reason = f"{reason} Groups: {grouped.reason}."
        if sample.sampled_from is not None:
            sample_size = f"{sample.n_rows:,} of {sample.sampled_from:,} rows"
            reason = f"{reason} It was fitted on {sample_size}."
        return Fit(rule, report | {"reason": reason})


def auto(
    logits: Any,
    labels: Any = None,
    sample_weight: Any = None,
    *,
    groups: Any = None,
    classes: Sequence[str] = (),
    score_columns: Sequence[str] = (),
    most_members: int | None = None,
    keep_labels: bool = False,
) -> AutoCalibrator:
    """Fit the default on validation logits and labels.

    It averages structured scaling and temperature scaling by held-out log loss; see
    `AutoCalibrator` for how, and `cal.reason_` for what it chose.

    Parameters
    ----------
    logits : array of shape (n, classes), TopK, Ensemble or table
        The classifier's scores, before the softmax, on examples that it was not
        trained on; -inf marks a masked class. `from_probabilities` and
        `from_binary_scores` convert probabilities and one score per example. Tables of
        any Arrow engine are accepted, see `Calibrator.fit`.
    labels : array-like of shape (n,), or (n, classes)
        Column indices; or names of the `classes`; or the name of a column of the table;
        or votes for each class.
    sample_weight : array-like of shape (n,), optional
        How much each example counts; 2 is an example that was seen twice.
    groups : array-like of shape (n,), or several columns, optional
        Sites, subjects, sexes, ages, which the classifier may not know. Those that
        clearly help on held-out examples are used, and predictions then need them.
    classes : sequence of str, optional
        Names of the classes, in the order of the columns; `certify`, `score` and
        `detect` then take names as well, and prediction sets have them.
    score_columns : sequence of str, optional
        The columns of a table that hold the scores, class 0 first, if their names do
        not tell.
    most_members : int, optional
        How many members of an Ensemble get a weight at most.
    keep_labels : bool
        True: `predict` gives the classifier's own labels, and the confidence is that of
        these. False: it gives the likeliest class after calibration, which can be
        another one.

    Returns
    -------
    cal : AutoCalibrator
        Fitted: `predict_proba`, `predict_confidence` and `predict` take new logits,
        `certify` counts errors on other examples for guarantees, `save` writes a file.

    Examples
    --------
    >>> import hokical
    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (logits, labels) = demo_logits()
    >>> cal = hokical.auto(val_logits, val_labels)
    >>> print(cal.reason_.partition(" (held-out")[0])
    an average of the scores of temperature scaling (60%) and structured scaling (40%)
    >>> cal.predict_confidence(logits[:3]).round(2)
    array([0.99, 1.  , 0.57])
    """
    return AutoCalibrator(keep_labels=keep_labels).fit(
        logits,
        labels,
        sample_weight,
        groups=groups,
        classes=classes,
        score_columns=score_columns,
        most_members=most_members,
    )


@dataclass(frozen=True, eq=False)
class Choice:
    """What the default fits before it looks at groups.

    Attributes
    ----------
    rule, reason : the rule, and what was fitted, in words
    shares : the weights of what is averaged, by name
    losses : held-out log losses by name; none of degenerate examples
    held_out : log-probabilities of the examples by fits without each, where there are
        any
    """

    rule: Rule
    reason: str
    shares: dict[str, float]
    converged: bool = True
    losses: dict[str, float] = field(default_factory=dict)
    held_out: Logits | None = None


def _choose(examples: Examples, keep_labels: bool) -> Choice:
    """The fit without groups that the examples allow for."""
    too_few = _find_too_few(examples)
    if too_few:
        return _keep_uncalibrated(examples, too_few)
    if (examples.labels == examples.labels[0]).all():
        return _fit_single_class(examples)
    if isinstance(examples.logits, TopK):
        return _fit_best_classes(examples)
    fitted = default.fit_default(examples)
    rule, reason = _choose_rule(fitted, examples, keep_labels)
    of_all = fitted.examples.n_rows == examples.n_rows
    return Choice(
        rule,
        reason,
        fitted.shares,
        fitted.converged,
        fitted.losses,
        fitted.held_out if of_all else None,
    )


def _choose_rule(
    fitted: default.DefaultFit, examples: Examples, keep_labels: bool
) -> tuple[Rule, str]:
    """The simplest rule of a fit; and what was fitted, in words, with held-out log
    losses.
    """
    inner = fitted.base
    correction = fitted.correction
    rule: Rule = scaling.AutoRule(inner, correction, keep_labels)
    moved = bool(inner.bias.any())
    if correction is None and "structured" not in fitted.shares and not moved:
        rule = scaling.TemperatureRule(inner.temperature / float(inner.scale[0]))
        if "temps" not in fitted.shares:
            rule = UncalibratedRule()
        if inner.floor > 0.0:
            rule = FlooredRule(inner.floor, rule)
    return rule, _describe_fit(fitted, examples)


def _describe_fit(fitted: default.DefaultFit, examples: Examples) -> str:
    """What was fitted, in words, with held-out log losses."""
    titles = [f"{TITLES[name]} ({share:.0%})" for name, share in fitted.shares.items()]
    if len(titles) == 1:
        description = TITLES[next(iter(fitted.shares))]
    else:
        listed = f"{', '.join(titles[:-1])} and {titles[-1]}"
        description = f"an average of the scores of {listed}"
    if fitted.correction is not None:
        description += " with a row correction"
    if fitted.level > 0.0 and fitted.base.bias.any():
        description += ", moved to the class frequencies of the labels"
    n_sampled = fitted.examples.n_rows
    n_rows = examples.n_rows
    of = "" if n_sampled == n_rows else f" of {n_sampled:,} of {n_rows:,} examples"
    scores = ", ".join(
        f"{TITLES.get(name, name)} {format(loss, '.4f' if loss < 1e4 else '.4g')}"
        for name, loss in fitted.losses.items()
    )
    return f"{description} (held-out log loss{of}: {scores})."


def _fit_best_classes(examples: Examples) -> Choice:
    """Adaptive temperature scaling of a `TopK`, or its uncalibrated confidence."""
    solution = searches.shrink_temperature(examples)
    correction, pairs = default.fit_row_correction(examples, solution.x)
    # Uncalibrated, the logits are not divided by the temperature.
    change = pairs - np.array([np.log(solution.x), 0.0])
    gain = default.CorrectionProblem(examples, 1.0).gain(change)
    away = default.distrust(examples.effective_size, *gain)
    temperature = 1.0 / ((1.0 - away) / solution.x + away)
    rule: Rule = scaling.TemperatureRule(temperature)
    description = "temperature scaling"
    if correction is not None:
        rule = scaling.AdaptiveRule(temperature, correction)
        description = f"{description} with a row correction"
    reason = f"{description}, as not every class has a logit."
    return Choice(rule, reason, {"adaptive": 1.0}, solution.converged)


def _find_too_few(examples: Examples) -> str:
    """Why the examples are too few to learn from; "" if they are not."""
    labels = examples.labels
    n_examples = examples.effective_size
    if n_examples >= FEWEST_EXAMPLES * (1.0 - 1e-9):  # but for rounding
        return ""
    few = f"{labels.size} examples"
    if n_examples < labels.size * (1.0 - 1e-9):
        few += f", whose weights make them worth {n_examples:.3g},"
    return f"{few} are too few to calibrate with (at least {FEWEST_EXAMPLES})"


def _fit_single_class(examples: Examples) -> Choice:
    """A temperature alone, with a warning."""
    label = examples.labels[0]
    why = f"all {examples.labels.size} examples are of class {label}"
    if isinstance(examples.logits, TopK):
        solution = searches.shrink_temperature(examples)
        rule: Rule = scaling.TemperatureRule(solution.x)
        shares = {"temps": 1.0}
        converged = solution.converged
    else:
        fit = default.fit_temperature(examples)
        rule, _ = _choose_rule(fit, examples, keep_labels=False)
        shares = fit.shares
        converged = fit.converged
    description = "the uncalibrated probabilities were kept"
    if "temps" in shares:
        description = "only a temperature was fitted"
    reason = f"{description}: {why}."
    warn_user(
        f"{reason[0].upper()}{reason[1:]} Use examples of all classes.", FitDataWarning
    )
    return Choice(rule, reason, shares, converged)


def _keep_uncalibrated(examples: Examples, why: str) -> Choice:
    """No calibration but a floor below probabilities of 0, with a warning."""
    rule: Rule = UncalibratedRule()
    zeros = not isinstance(examples.logits, TopK) and has_zeros(examples.logits)
    floor = searches.choose_floor_alone(examples) if zeros else 0.0
    description = "the uncalibrated probabilities were kept"
    if floor > 0.0:
        rule = FlooredRule(floor, rule)
        description = f"{description} with {floor:g} added, as some are 0"
    reason = f"{description}: {why}."
    warn_user(f"{reason[0].upper()}{reason[1:]} Use more examples.", FitDataWarning)
    return Choice(rule, reason, {"uncalibrated": 1.0})


@dataclass(frozen=True, eq=False)
class GroupChoice:
    """A rule with corrections by group, the reason, and the columns that are used."""

    rule: Rule
    reason: str
    columns: list[str]


@one_blas_thread()
def add_groups(
    rule: Rule, counted: Examples, held_out: Logits | None, keep_labels: bool
) -> GroupChoice:
    """The rule with the corrections of those groups and numbers that help.

    `held_out` are log-probabilities by fits without each example, where there are any.
    """
    coding = counted.coding
    codes = counted.logits.codes
    assert coding is not None
    terms = _group_terms(rule, counted, held_out)
    blocks = [0] + [1] * (terms.n_features - 1)
    numbers = learn_numbers(terms, coding, codes)
    without = GroupEffects(coding, terms.losses(terms.offset))
    terms, without = beside_numbers(terms, without, numbers)
    effects = learn_groups(
        terms,
        coding.codes_of_inputs(codes),
        without,
        level=GROUP_LEVEL,
        own_blocks=blocks,
        common_blocks=blocks,
    )
    notes = (*numbers.used_notes, *effects.notes, *numbers.unused_notes)
    numeric = () if numbers.effects is None else numbers.effects.columns
    used = list(dict.fromkeys(chain(numeric, *effects.terms)))
    if used:
        scale, bias = _correction_tables(effects, terms)
        rule = GroupedRule(
            rule,
            coding.take(used, numeric),
            scale,
            bias,
            keep_labels,
            tuple(tuple(used.index(k) for k in term) for term in effects.terms),
            numbers.effects_among(used),
        )
    return GroupChoice(rule, "; ".join(notes), [coding.columns[k] for k in used])


def _group_terms(
    rule: Rule, counted: Examples, held_out: Logits | None
) -> SoftmaxTerms:
    """The likelihood of the labels with the log-probabilities of the rule, held out
    where possible.
    """
    logits = counted.logits
    if held_out is None or isinstance(rule.core, UncalibratedRule):
        proba = base.predict_blocks(rule, "proba", logits)
    else:
        proba = base.uncalibrated(held_out)
    log_proba = logits.to_host(base.as_log_proba(proba, logits).values)
    possible = logits.to_host(logits.possible)
    return SoftmaxTerms(
        np.where(possible, log_proba, 0.0),
        counted.labels,
        np.where(possible, log_proba, -np.inf),
        counted.share * counted.effective_size,
        biased=counted.n_classes <= MAX_BIASED,
    )


def _correction_tables(
    effects: GroupEffects, likelihood: SoftmaxTerms
) -> tuple[FloatArray, FloatArray]:
    """Changes of the scale (rows,) and biases (rows, classes) by group, of all columns
    in one table; without biases (rows, 1) of zeros.
    """
    n_biases = likelihood.n_features - 1 if likelihood.biased else 1
    table = np.zeros((0, 1 + n_biases))
    if effects.fit is not None:
        first_table, *later_tables = effects.tables().values()
        table = np.vstack([first_table + effects.fit.common, *later_tables])
    bias = table[:, 1:] if likelihood.biased else np.zeros((len(table), 1))
    return table[:, 0], bias

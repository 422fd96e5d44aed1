"""What the default learns from groups, on top of its fit without them."""

from dataclasses import replace
from itertools import chain, combinations

import numpy as np

from hokical._core.grouped_logits import GroupedLogits
from hokical._core.logits import Logits
from hokical._fitting.examples import Examples
from hokical._fitting.group_effects import GroupedPredictions, learn_groups
from hokical.calibrators._method import Fit
from hokical.rules._auto import as_log_proba
from hokical.rules._base import Rule
from hokical.rules._predicting import predict_blocks
from hokical.rules._probabilities import softmax
from hokical.rules._scaling import UncalibratedRule
from hokical.rules._wrapped import GroupedRule


def add_groups(
    found: Fit,
    counted: Examples,
    held_out: Logits | None,
    keep_labels: bool,
) -> Fit:
    """The fit with the corrections of those groups that help, and the reason.

    `held_out` are log-probabilities by fits without each example, where there are any.
    """
    assert isinstance(counted.logits, GroupedLogits)
    coding = counted.logits.coding
    assert coding is not None
    pairs = [*combinations(range(len(coding.columns)), 2)]
    text, rule, used = "nothing can be learned from the examples", found.rule, []
    if found.report["held_out_log_loss"]:  # else the examples are degenerate
        effects = learn_groups(_predict(found.rule, counted, held_out), coding, pairs)
        text, used = effects.description, list(dict.fromkeys(chain(*effects.terms)))
        if used:
            terms = tuple(tuple(used.index(k) for k in term) for term in effects.terms)
            parts = (effects.scale, effects.bias, keep_labels, terms)
            rule = GroupedRule(rule, coding.take(used), *parts)
    names = [coding.columns[k] for k in used]
    reason = f"{found.report['reason']} Groups: {text}."
    return replace(found, rule=rule, report=found.report | {"reason": reason, "groups": names})


def _predict(rule: Rule, examples: Examples, held_out: Logits | None) -> GroupedPredictions:
    """Log-probabilities of the examples: held-out ones, where there are any of a fitted rule."""
    logits = examples.logits
    if held_out is None or isinstance(rule.core, UncalibratedRule):
        proba = predict_blocks(rule, "proba", logits)
    else:
        proba = softmax(-held_out.margins, logits)
    log_proba = logits.to_host(as_log_proba(proba, logits).values)
    possible = logits.to_host(logits.possible)
    assert isinstance(logits, GroupedLogits)
    counts = examples.share * examples.effective_size
    return GroupedPredictions(
        np.where(possible, log_proba, 0.0), possible, examples.labels, counts, logits.codes
    )

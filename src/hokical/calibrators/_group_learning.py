"""What the default learns from groups, on top of its fit without them."""

from dataclasses import replace
from itertools import chain

import numpy as np

from hokical._core.grouped_logits import GroupedLogits
from hokical._core.logits import Logits
from hokical._core.parallel import one_blas_thread
from hokical._fitting.examples import Examples
from hokical._fitting.group_effects import GroupEffects, Pooling, learn_groups
from hokical._fitting.pooled_terms import SoftmaxTerms
from hokical.calibrators._method import Fit
from hokical.rules._base import Rule
from hokical.rules._predicting import predict_blocks
from hokical.rules._probabilities import as_log_proba, uncalibrated
from hokical.rules._scaling import UncalibratedRule
from hokical.rules._wrapped import GroupedRule

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
    assert isinstance(counted.logits, GroupedLogits)
    coding = counted.logits.coding
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

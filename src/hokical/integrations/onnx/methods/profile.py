"""The stability profile: temperature scaling, corrected by stability at several widths."""

from __future__ import annotations

import math

import numpy as np

from hokical.calibrators import StabilityProfile
from hokical.calibrators import profile as core
from hokical.integrations.onnx import gaussian
from hokical.integrations.onnx.builder import Value
from hokical.integrations.onnx.rows import Outcome, Rows
from hokical.integrations.onnx.sharing import share_rest
from hokical.integrations.onnx.special import erfc, log1p, log_loss_of_normal, one_minus_exp
from hokical.noise import Gumbel
from hokical.stability import profile as chances
from hokical.stability.gaussian import TAIL_LIMIT, gaussian_rule

_LIMIT = core.LARGEST_LOG_ODDS


def profile(calibrator: StabilityProfile, rows: Rows, probabilities: bool) -> Outcome:
    features = _features(calibrator, rows)
    log_odds = features.columns(0, 1)
    linear = features @ calibrator.coef_[:, None] + float(calibrator.intercept_)
    least, most = (float(end) for end in calibrator.range_)
    correction = linear.clipped(least, most) * _trust(calibrator, features)
    confidence = (log_odds + correction).clipped(-_LIMIT, _LIMIT).sigmoid()
    noise = Gumbel(calibrator.temperature_)
    proba = share_rest(rows, confidence, noise) if probabilities else None
    return Outcome(rows.labels, confidence, proba)


def _features(calibrator: StabilityProfile, rows: Rows) -> Value:
    """The scaled softmax's log-odds; then log gamma and log(1 - gamma) at each width.

    All widths are dealt with at once, as if they were further rows: (n * widths, classes).
    """
    graph, widths = rows.graph, calibrator.widths_
    log_odds = _log_odds(rows, float(calibrator.temperature_)).clipped(-_LIMIT, _LIMIT)
    apart = graph.op("Unsqueeze", rows.margins, np.array([1])) / widths[None, :, None]
    margins = graph.op("Reshape", apart, np.array([-1, rows.n_classes]))
    gap = graph.op("Reshape", rows.gap / widths[None, :], np.array([-1, 1]))
    logs = graph.concat(*_log_chances(margins, gap, rows.n_classes)).at_least(core.LEAST_LOG)
    return graph.concat(log_odds, graph.op("Reshape", logs, np.array([-1, 2 * widths.size])))


def _trust(calibrator: StabilityProfile, features: Value) -> Value:
    """1 within the reach of the validation set, then falling with the squared distance."""
    familiar = calibrator.familiar_
    apart = features - familiar.centre
    squared = ((apart @ familiar.precision) * apart).sum().at_least(familiar.reach)
    away = squared > 0.0
    return away.where(familiar.reach / away.where(squared, 1.0), 1.0)


def _log_odds(rows: Rows, temperature: float) -> Value:
    """-log of the sum over the other classes of exp(-d/temperature), taken from the gap."""
    gap = rows.single_choice.where(0.0, rows.gap)
    beyond = (rows.margins - gap).at_least(0.0)
    total = (beyond / -temperature).exp().sum() - 1.0
    return rows.single_choice.where(np.inf, gap / temperature - total.log())


def _log_chances(margins: Value, gap: Value, n_classes: int) -> tuple[Value, Value]:
    """log gamma and log(1 - gamma) under unit Gaussian noise, (n, 1) each."""
    rule = gaussian_rule(-TAIL_LIMIT)
    survival = gaussian.log_survival(margins, n_classes, 1.0, rule).at_most(0.0).exp()
    kept = (survival * rule.weights).sum()
    last = (gap > chances.CUT_FROM).where(chances.BUMP - 0.5 * gap, np.inf)
    counted = last >= rule.nodes[None, :]
    near = counted.where((1.0 - survival) * rule.weights, 0.0).sum()
    lost = (gap > chances.FAR_FROM).where(_far_chance(margins, gap), near)
    log_kept = (lost < 0.5).where(log1p(-lost.at_most(0.5)), kept.log())
    return log_kept, lost.log()


def _far_chance(margins: Value, gap: Value) -> Value:
    """1 - gamma where the runner-up is far: the chances of the rivals, less what they do at once.

    They are taken for so many equal ones at the gap; see `hokical.stability.profile`.
    """
    overtaking = erfc(margins * 0.5) * 0.5
    sums = (margins > 0.5 * gap).where(overtaking, 0.0).sum()
    one = erfc(gap * 0.5) * 0.5
    crowded = (sums > 1.001 * one) & (gap < chances.CROWDED_UP_TO)
    gap = crowded.where(gap, chances.FAR_FROM)
    count = sums / crowded.where(one, 1.0)
    nodes = gap * -0.5 + chances.BUMP_NODES
    fallen = one_minus_exp(count * log_loss_of_normal(nodes + gap).exp())
    mass = (nodes * nodes * -0.5).exp() * (chances.BUMP_STEP / math.sqrt(2.0 * math.pi))
    return crowded.where((mass * fallen).sum(), sums)

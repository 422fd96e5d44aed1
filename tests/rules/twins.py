"""Every rule as its definition says, one row at a time in plain NumPy: slow and
obvious.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np
from scipy.special import expit, log_softmax, logsumexp, softmax

from hokical import rules
from hokical.rules.base import BalancedRule, ClippedRule, FlooredRule, UncalibratedRule
from hokical.rules.binary_isotonic import (
    BetaRule,
    ClasswiseIsotonicRule,
    PlattRule,
    PooledIsotonicRule,
    VennAbersRule,
)
from hokical.rules.hoki import HokiRule
from hokical.rules.scaling import (
    AdaptiveRule,
    AutoRule,
    EnsembleRule,
    RowCorrection,
    StructuredRule,
    TemperatureRule,
    VectorRule,
)
from tests.references import gaussian_stability, uniform_stability

Row = np.ndarray


@singledispatch
def proba_of(rule: rules.Rule, row: Row) -> Row:
    """Probabilities (classes,) of a row (classes,) and its views (n_transforms,
    classes).
    """
    raise NotImplementedError(type(rule))


def confidence_of(rule: rules.Rule, row: Row) -> float:
    """Of the predicted label."""
    if isinstance(rule, HokiRule):
        return hoki_confidence(rule, row)
    proba = proba_of(rule, row)
    return float(proba[row.argmax()] if rule.preserves_labels else proba.max())


@proba_of.register
def _(rule: FlooredRule, row: Row) -> Row:
    with np.errstate(divide="ignore"):
        logs = np.log(softmax(row) + rule.floor)
    return proba_of(rule.rule, np.where(row > -np.inf, logs, -np.inf))


@proba_of.register
def _(rule: ClippedRule, row: Row) -> Row:
    clipped = np.maximum(log_softmax(row), rule.lowest)
    return proba_of(rule.rule, np.where(row > -np.inf, clipped, -np.inf))


@proba_of.register
def _(rule: BalancedRule, row: Row) -> Row:
    old = proba_of(rule.rule, row)
    found = old * rule.weights
    return old if found.sum() < 1e-30 else found / found.sum()


@proba_of.register
def _(rule: PlattRule, row: Row) -> Row:
    return _from_odds(rule.slope * (row[1] - row[0]) + rule.intercept, row)


@proba_of.register
def _(rule: BetaRule, row: Row) -> Row:
    below, above = log_softmax(np.maximum(row, row.max() - 1e10))
    return _from_odds(rule.rise * above - rule.fall * below + rule.intercept, row)


@proba_of.register
def _(rule: VennAbersRule, row: Row) -> Row:
    score = np.float32(row[1] - row[0])
    lower = rule.lower[sum(knot <= score for knot in rule.knots)]
    upper = rule.upper[sum(knot < score for knot in rule.knots)]
    return _from_odds(np.log(upper) - np.log1p(-lower), row)


def _from_odds(odds: float, row: Row) -> Row:
    """Two probabilities from log-odds of class 1; a class alone gets 1."""
    if np.isneginf(row).any():
        return np.where(row > -np.inf, 1.0, 0.0)
    return np.array([expit(-odds), expit(odds)])


@proba_of.register
def _(rule: UncalibratedRule, row: Row) -> Row:
    return softmax(row)


@proba_of.register
def _(rule: TemperatureRule, row: Row) -> Row:
    return softmax(row / rule.temperature)


@proba_of.register
def _(rule: EnsembleRule, row: Row) -> Row:
    even = (row > -np.inf) / np.count_nonzero(row > -np.inf)
    return rule.weights @ np.stack(
        [softmax(row / rule.temperature), softmax(row), even]
    )


@proba_of.register
def _(rule: VectorRule, row: Row) -> Row:
    possible = row > -np.inf
    out = np.zeros(row.size)
    scale, bias = rule.scale[possible], rule.bias[possible]
    out[possible] = softmax(log_softmax(row[possible]) * scale + bias)
    return out


def structured_scores(rule: StructuredRule, row: Row) -> Row:
    """Whatever where masked."""
    possible = row > -np.inf
    logs = log_softmax(row[possible])
    logs = logs if rule.floor == 0.0 else np.logaddexp(logs, np.log(rule.floor))
    if not rule.shape.size:
        z = np.zeros(row.size)
        z[possible] = (logs - logs.max()) / rule.temperature
        return rule.scale * z + rule.bias
    z, miss, p = _tempered(logs, rule.temperature, possible)
    shapes = np.stack([miss, p][: rule.shape.size])
    scores = rule.scale * z + rule.bias + rule.shape @ shapes
    return scores + rule.cross @ z if rule.cross.size else scores


def mixed(scores: Row, row: Row, even: float) -> Row:
    """The softmax over possible classes, with a share of the uniform distribution on
    them.
    """
    possible, out = row > -np.inf, np.zeros(row.size)
    out[possible] = softmax(scores[possible])
    return (1.0 - even) * out + even * possible / possible.sum()


@proba_of.register
def _(rule: StructuredRule, row: Row) -> Row:
    return mixed(structured_scores(rule, row), row, rule.even)


@proba_of.register
def _(rule: AutoRule, row: Row) -> Row:
    scores = np.where(row > -np.inf, structured_scores(rule.base, row), -np.inf)
    if rule.correction is None:
        return mixed(scores, row, rule.base.even)
    proba = corrected(scores, *scale_and_shift(rule.correction, scores))
    return (1.0 - rule.base.even) * proba + mixed(scores, row, 1.0) * rule.base.even


@proba_of.register
def _(rule: AdaptiveRule, row: Row) -> Row:
    logs = row / rule.temperature
    scale, shift = scale_and_shift(rule.correction, logs)
    others = np.delete(logs, logs.argmax())
    shift = max(shift, 1e-6 - scale * (logs.max() - others.max()))
    return corrected(logs, scale, shift)


def scale_and_shift(correction: RowCorrection, logs: Row) -> tuple[float, float]:
    unit = (row_features(logs) - correction.centre) / correction.spread
    features = np.append(1.0, np.clip(unit, -4.0, 4.0))
    log_scale, shift = features @ correction.log_scale, features @ correction.shift
    return float(np.exp(np.clip(log_scale, -3.0, 3.0))), float(
        np.clip(shift, -4.0, 4.0)
    )


def row_features(logs: Row) -> Row:
    """Of logits of possible classes and -inf of others."""
    margins = np.minimum(logs.max() - logs, 1e150)[logs > -np.inf]
    stabilities = []
    for width in (4.0, 2.0, 1.0, 0.5):
        others = np.delete(-margins / width, margins.argmin())
        log_odds = -logsumexp(others) if others.size else np.inf
        stabilities.append(np.clip(log_odds, -8.0, 20.0))
    proba, near = softmax(-margins), np.minimum(margins, 50.0)
    entropy = -np.sum(proba * log_softmax(-margins), where=proba > 0.0)
    return np.array([*stabilities, entropy, near.mean(), near.std()])


def corrected(logs: Row, scale: float, shift: float) -> Row:
    scores = scale * (logs - logs.max())
    scores[logs.argmax()] = shift
    return softmax(scores)


def _tempered(logs: Row, temperature: float, possible: Row) -> tuple[Row, Row, Row]:
    """z, log(1 - p) and p; the least possible class stands for those that are not."""
    margins = np.minimum((logs.max() - logs) / temperature, 700.0)
    z = -margins - np.log(np.exp(-margins).sum())
    others = [np.exp(np.delete(z, k)).sum() for k in range(z.size)]
    miss = np.log(np.maximum(others, 1e-12))
    wide = []
    for part in (z, miss, np.exp(z)):
        out = np.full(possible.size, part[np.argmin(z)])
        out[possible] = part
        wide.append(out)
    return wide[0], wide[1], wide[2]


@proba_of.register
def _(rule: PooledIsotonicRule, row: Row) -> Row:
    logs = log_softmax(row)
    fitted = np.array([_interpolate(x, rule.knots, rule.values) for x in logs])
    mixed = (1 - 1e-9) * fitted + 1e-9 * np.exp(logs)
    held = np.minimum(mixed, mixed[row.argmax()] * (1 - 2.0**-20))
    out = np.where(row == -np.inf, 0.0, np.where(row < row.max(), held, mixed))
    return out / out.sum() if rule.normalize else out


@proba_of.register
def _(rule: ClasswiseIsotonicRule, row: Row) -> Row:
    logs = log_softmax(row / rule.temperature)
    out = np.zeros(row.size)
    for c, x in enumerate(logs):
        part = slice(rule.offsets[c], rule.offsets[c + 1])
        fitted = _interpolate(x, rule.knots[part], rule.values[part])
        out[c] = (1 - 1e-9) * fitted + 1e-9 * np.exp(x)
    out[row == -np.inf] = 0.0
    return out / out.sum()


def _interpolate(x: float, knots: Row, values: Row) -> float:
    """Linear between two knots, constant outside; compared as float32."""
    with np.errstate(over="ignore"):
        x = float(np.float32(x))
    if x <= knots[0]:
        return float(values[0])
    for low, high, start, end in zip(
        knots, knots[1:], values, values[1:], strict=False
    ):
        if low <= x < high:
            return float(start + (end - start) * (x - low) / (high - low))
    return float(values[-1])


def hoki_stability(rule: HokiRule, row: Row) -> float:
    """By the integral, or by the draws one after the other."""
    if rule.draws is not None:
        below = row.astype(np.float64) - row.max()
        kept = [np.argmax(below + noise) == row.argmax() for noise in rule.draws.values]
        return float(np.mean(kept))
    width = rule.noise.width
    if rule.noise.family == "gumbel":
        return float(softmax(row / width).max())
    twin = gaussian_stability if rule.noise.family == "gaussian" else uniform_stability
    return float(twin(row[None], width)[0])


def hoki_confidence(rule: HokiRule, row: Row, stability: float | None = None) -> float:
    level = round(
        (hoki_stability(rule, row) if stability is None else stability) * rule.levels
    )
    gamma, link = level / rule.levels, rule.link
    run = np.flatnonzero(link.first <= level)[-1]
    return float(np.clip(link.slope[run] * gamma + link.base[run], 0.0, 1.0))


def _shared(row: Row, confidence: float, shares: Row) -> Row:
    """The confidence for the label, the rest in the proportions of the shares."""
    others = np.arange(row.size) != row.argmax()
    if np.count_nonzero(row > -np.inf) == 1:
        confidence = 1.0
    total = shares[others].sum()
    out = np.where(
        others, shares * (1.0 - confidence) / (total if total > 0.0 else 1.0), 0.0
    )
    out[row.argmax()] = confidence
    return out

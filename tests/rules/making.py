"""Rules of every kind with random valid numbers, and rows of logits of every kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from hokical import rules
from hokical.rules.base import BalancedRule, ClippedRule, FlooredRule, UncalibratedRule
from hokical.rules.binary_isotonic import (
    BetaRule,
    ClasswiseIsotonicRule,
    PlattRule,
    PooledIsotonicRule,
    VennAbersRule,
)
from hokical.rules.hoki import Curve, HokiRule
from hokical.rules.scaling import (
    N_COEFFICIENTS,
    N_FEATURES,
    N_SHAPES,
    AdaptiveRule,
    AutoRule,
    EnsembleRule,
    RowCorrection,
    StructuredRule,
    TemperatureRule,
    VectorRule,
)
from hokical.stability import Noise, families
from hokical.stability.sampled import Draws
from hokical.stability.tables import EXACT_LEVELS

Generator = np.random.Generator
FAMILIES = tuple(families.FAMILIES.values())


def _scale(rng: Generator) -> float:
    """A temperature or a width: mostly ordinary, now and then far away."""
    return (
        float(np.exp(rng.normal()))
        if rng.random() < 0.8
        else float(10.0 ** rng.uniform(-6, 6))
    )


def _uncalibrated(rng: Generator, n_classes: int) -> rules.Rule:
    return UncalibratedRule()


def _temps(rng: Generator, n_classes: int) -> rules.Rule:
    return TemperatureRule(_scale(rng))


def _ets(rng: Generator, n_classes: int) -> rules.Rule:
    weights = rng.dirichlet([0.7] * 3) * (rng.random(3) < 0.8)
    weights = weights if weights.sum() > 0.0 else np.eye(3)[rng.integers(3)]
    return EnsembleRule(_scale(rng), weights / weights.sum())


def _vecs(rng: Generator, n_classes: int) -> rules.Rule:
    scale = rng.normal(1.0, 0.5, n_classes) * (rng.random(n_classes) < 0.9)
    return VectorRule(scale, rng.normal(size=n_classes))


def _structured(rng: Generator, n_classes: int) -> rules.Rule:
    floor = float(rng.choice([0.0, 10.0 ** rng.uniform(-60, -2)]))
    size = n_classes if rng.random() < 0.7 else 0
    return StructuredRule(
        floor,
        _scale(rng),
        rng.normal(size=rng.integers(1, N_SHAPES + 1)),
        rng.normal(1.0, 0.3, n_classes),
        rng.normal(size=n_classes),
        0.1 * rng.normal(size=(size, size)),
        float(rng.choice([0.0, 0.1 * rng.random()])),
    )


def _curve(rng: Generator, most: int = 40) -> tuple[np.ndarray, np.ndarray]:
    knots = np.unique(
        -(10.0 ** rng.uniform(-4, 2, rng.integers(1, most + 1))).astype(np.float32)
    )
    values = np.sort(rng.choice(rng.random(5), knots.size))
    return knots.astype(np.float64), values


def _irm(rng: Generator, n_classes: int) -> rules.Rule:
    knots, values = _curve(rng, 200)
    return PooledIsotonicRule(knots, values, bool(rng.random() < 0.7))


def _irova_ts(rng: Generator, n_classes: int) -> rules.Rule:
    curves = [_curve(rng) for _ in range(n_classes)]
    knots, values = (np.concatenate(part) for part in zip(*curves, strict=True))
    offsets = np.cumsum([0] + [knot.size for knot, _ in curves])
    return ClasswiseIsotonicRule(_scale(rng), knots, values, offsets)


def make_noise(rng: Generator) -> Noise:
    return FAMILIES[rng.integers(len(FAMILIES))].of_width(_scale(rng))


def _hoki(rng: Generator, n_classes: int) -> rules.Rule:
    noise = make_noise(rng)
    draws = (
        Draws(noise, int(rng.integers(9)), 20, n_classes)
        if rng.random() < 0.3
        else None
    )
    levels = EXACT_LEVELS if draws is None else draws.n_draws
    first = np.unique(np.append(0, rng.integers(levels + 1, size=rng.integers(1, 100))))
    base, end = rng.random((2, first.size))
    return HokiRule(noise, draws, levels, Curve(first.astype(float), end - base, base))


def make_correction(rng: Generator) -> RowCorrection:
    """With numbers so large, now and then, that features, scale and shift are
    clipped.
    """
    centre, spread = rng.normal(size=(2, N_FEATURES)) * 2.0
    log_scale, shift = 0.2 * np.exp(rng.normal()) * rng.normal(size=(2, N_COEFFICIENTS))
    return RowCorrection(centre, np.exp(spread), log_scale, shift)


def _adaptive(rng: Generator, n_classes: int) -> rules.Rule:
    return AdaptiveRule(_scale(rng), make_correction(rng))


def make_class_scaling(rng: Generator, n_classes: int) -> StructuredRule:
    """Structured scaling as the default has it of many classes."""
    scale, bias, none = (
        np.exp(0.3 * rng.normal(size=n_classes)),
        rng.normal(size=n_classes),
        [],
    )
    floor = 0.0 if rng.random() < 0.5 else 1e-4
    shape, cross = np.array(none), np.zeros((0, 0))
    return StructuredRule(floor, _scale(rng), shape, scale, bias, cross, 0.0)


def make_structured(rng: Generator, n_classes: int) -> StructuredRule:
    rule = _structured(rng, n_classes)
    assert isinstance(rule, StructuredRule)
    return rule


def _auto(rng: Generator, n_classes: int) -> rules.Rule:
    make = make_structured if rng.random() < 0.5 else make_class_scaling
    base = make(rng, n_classes)
    correction = make_correction(rng) if rng.random() < 0.6 else None
    return AutoRule(base, correction, bool(rng.random() < 0.5))


def _averaged(rng: Generator, n_classes: int) -> rules.Rule:
    correction = make_correction(rng) if rng.random() < 0.6 else None
    return AutoRule(_structured(rng, n_classes), correction, bool(rng.random() < 0.5))


def _platt(rng: Generator, n_classes: int) -> rules.Rule:
    return PlattRule(float(rng.normal() * _scale(rng)), float(rng.normal()))


def _beta(rng: Generator, n_classes: int) -> rules.Rule:
    rise, fall = _scale(rng) * rng.random(2) * (rng.random(2) < 0.9)
    return BetaRule(float(rise), float(fall), float(rng.normal()))


def _venn_abers(rng: Generator, n_classes: int) -> rules.Rule:
    knots = np.unique(rng.normal(size=rng.integers(1, 30)).astype(np.float32) * 3.0)
    lower = np.sort(rng.choice(rng.random(5), knots.size + 1))
    upper = np.maximum(np.append(lower[1:], lower[-1]), 0.1) + 0.1 * rng.random()
    return VennAbersRule(knots.astype(np.float64), lower, np.minimum(upper, 1.0))


def _floored(rng: Generator, n_classes: int) -> rules.Rule:
    makers = [_temps, _vecs, _ets, _irm, _structured, _adaptive, _auto]
    makers += [_platt] if n_classes == 2 else []
    inner = makers[rng.integers(len(makers))](rng, n_classes)
    return FlooredRule(float(10.0 ** rng.uniform(-60, -2)), inner)


def _clipped(rng: Generator, n_classes: int) -> rules.Rule:
    makers = [_temps, _vecs, _ets, _irm, _structured, _adaptive, _auto, _floored]
    inner = makers[rng.integers(len(makers))](rng, n_classes)
    return ClippedRule(float(-np.log(n_classes) - 20.0 * rng.random()), inner)


def _balanced(rng: Generator, n_classes: int) -> rules.Rule:
    makers = [_temps, _vecs, _ets, _structured]
    inner = makers[rng.integers(len(makers))](rng, n_classes)
    weights = np.exp(rng.normal(size=n_classes)) * (rng.random(n_classes) < 0.8)
    return BalancedRule(inner, np.append(weights[:-1], 0.5))


MAKERS: dict[str, Callable[[Generator, int], rules.Rule]] = {
    "uncalibrated": _uncalibrated,
    "temps": _temps,
    "vecs": _vecs,
    "structured": _structured,
    "ets": _ets,
    "irm": _irm,
    "irova_ts": _irova_ts,
    "hoki": _hoki,
    "adaptive": _adaptive,
    "auto": _auto,
    "auto-averaged": _averaged,
    "platt": _platt,
    "beta": _beta,
    "venn_abers": _venn_abers,
    "floored": _floored,
    "clipped": _clipped,
    "balanced": _balanced,
}
NAMES = list(MAKERS)


def make_rule(name: str, seed: int, n_classes: int) -> rules.Rule:
    return MAKERS[name](np.random.default_rng(seed), n_classes)


def make_case(
    name: str, seed: int, n_classes: int, n_rows: int = 12
) -> tuple[rules.Rule, np.ndarray]:
    """A rule and rows for it, of two classes if it takes no more."""
    rule = make_rule(name, seed, n_classes)
    return rule, make_rows(seed, rule.n_classes or n_classes, n_rows)


def make_rows(seed: int, n_classes: int, n_rows: int = 12) -> np.ndarray:
    """Logits (n, classes), float32 or float64: ordinary rows, and the first ones
    special.

    All equal, ties at the top, one possible class, some masked, far apart, huge, all
    but equal.
    """
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n_rows, n_classes)) * np.exp(
        rng.normal(size=(n_rows, 1)) + 1.0
    )
    huge = 1e300 if rng.random() < 0.6 else 1e37
    values[0] = values[0, 0]
    values[1, rng.random(n_classes) < 0.5] = values[1].max()
    values[2, np.arange(n_classes) != rng.integers(n_classes)] = -np.inf
    values[3, rng.permutation(n_classes)[: n_classes // 2]] = -np.inf
    values[4] *= 1e3
    values[5, rng.integers(n_classes)] = huge
    values[6] = rng.choice([-huge, 0.0, huge], n_classes)
    values[7] = 1e8 + 1e-7 * rng.normal(size=n_classes)
    return values.astype(np.float32) if huge < 1e38 else values


def assert_chances(numbers: np.ndarray) -> None:
    """Between 0 and 1, and none NaN."""
    assert ((numbers >= 0.0) & (numbers <= 1.0)).all(), numbers


seeds = st.integers(0, 2**32 - 1)
class_counts = st.integers(2, 12)

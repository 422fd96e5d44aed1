from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from hokical import Gaussian, Gumbel, Uniform
from hokical._core import special as _portable
from hokical.stability.noise import (
    FAMILIES,
    default_families,
    family_named,
    parse_noise,
)
from tests.stability.examples import NOISES

positive = st.floats(1e-6, 1e6)
finite = st.floats(-1e6, 1e6)


@given(positive, finite)
def test_parameters_describe_a_noise(scale: float, mean: float) -> None:
    for noise in (
        Gaussian(scale, mean),
        Uniform(mean, mean + scale + 1.0),
        Gumbel(scale),
    ):
        parameters = noise.to_dict()
        assert family_named(parameters.pop("family"))(**parameters) == noise
        assert type(noise).of_width(noise.width).width == pytest.approx(noise.width)


def test_noise_is_immutable_hashable_and_readable() -> None:
    noise = Gaussian(2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        noise.scale = 3.0  # type: ignore[misc]
    assert {noise: 1}[Gaussian(2.0)] == 1
    assert repr(noise) == "Gaussian(scale=2.0, mean=0.0)"
    assert repr(Uniform(-2, 4)) == "Uniform(low=-2.0, high=4.0)"


@pytest.mark.parametrize("scale", [0, -1, 1e-310, 1e200, float("nan"), float("inf")])
def test_widths_must_be_positive_and_finite(scale: float) -> None:
    for family in (Gaussian, Gumbel):
        with pytest.raises(
            ValueError, match=r"`scale` must be .* from 1e-100 to 1e[+]100; got"
        ):
            family(scale)


def test_bad_parameters_name_the_rule() -> None:
    with pytest.raises(ValueError, match="`high` must lie above `low`"):
        Uniform(2, 2)
    with pytest.raises(ValueError, match=r"`mean` must be a number from .*; got inf"):
        Gaussian(1.0, float("inf"))
    with pytest.raises(ValueError, match=r"`scale` must be a number .*; got '2'"):
        Gaussian("2")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="noise family must be one of"):
        family_named("cauchy")


@pytest.mark.parametrize(
    ("text", "noise"),
    [
        ("gaussian:2.5", Gaussian(2.5)),
        ("Gaussian:2,-20", Gaussian(2, -20)),
        ("uniform:-2,4", Uniform(-2, 4)),
        ("gumbel:1", Gumbel(1)),
    ],
)
def test_noise_can_be_typed(text: str, noise: object) -> None:
    assert parse_noise(text) == noise


@pytest.mark.parametrize(
    "text", ["gaussian", "gaussian:x", "uniform:3", "gumbel:1,2", "x:1", ""]
)
def test_mistyped_noise_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must (read|be one of)"):
        parse_noise(text)


@pytest.mark.parametrize(
    ("noise", "law"),
    [
        (Gaussian(2.0, 1.0), stats.norm(1.0, 2.0)),
        (Uniform(-2.0, 4.0), stats.uniform(-2.0, 6.0)),
        (Gumbel(1.5), stats.gumbel_r(0.0, 1.5)),
    ],
)
def test_draws_follow_their_law(noise: Gaussian, law: stats.rv_continuous) -> None:
    draws = noise.from_uniform(_portable.uniform_draws(11, (200, 100))).ravel()
    assert stats.kstest(draws, law.cdf).pvalue > 1e-3


@given(st.floats(1e-300, 1e300))
def test_portable_log_is_the_log(x: float) -> None:
    assert float(_portable.log(np.array([x]))[0]) == pytest.approx(
        np.log(x), rel=1e-15, abs=1e-15
    )


@given(st.floats(1e-300, 1.0 - 1e-16))
def test_portable_quantile_is_the_quantile(p: float) -> None:
    ours = float(_portable.normal_quantile(np.array([p]))[0])
    assert ours == pytest.approx(special.ndtri(p), rel=4e-15, abs=4e-15)


def test_draws_are_pinned_for_ever() -> None:
    """Saved calibrators hold a seed: these very numbers must come out on every
    machine.
    """
    words = _portable.uniform_draws(123, (2, 3))
    assert [x.hex() for x in words.ravel()] == PINNED_UNIFORM
    assert [x.hex() for x in _portable.normal_quantile(words).ravel()] == PINNED_NORMAL


def test_uniform_draws_stay_inside() -> None:
    draws = _portable.uniform_draws(0, (500, 100))
    assert draws.min() > 0.0
    assert draws.max() < 1.0


def test_families_are_all_listed() -> None:
    assert set(FAMILIES) == {noise.family for noise in NOISES}
    assert default_families() == ("gaussian", "uniform")


PINNED_UNIFORM = [
    "0x1.08b4e91e90a5ap-1",
    "0x1.786c55734d92ap-3",
    "0x1.b3e40611a3f06p-3",
    "0x1.ae04557107dd2p-3",
    "0x1.73861a586b035p-2",
    "0x1.b371a6465459cp-4",
]
PINNED_NORMAL = [
    "0x1.5d4be4dade7adp-5",
    "-0x1.cd4cce1b98bfdp-1",
    "-0x1.97ddf39936e78p-1",
    "-0x1.9cf1409967a06p-1",
    "-0x1.675d1deb9cb14p-2",
    "-0x1.3f13cbfd4bc9fp+0",
]


def test_mistyped_noise_is_told_how_to_type_it() -> None:
    with pytest.raises(
        ValueError, match=r"must read gumbel:SCALE, in numbers; got 'gumbel'\."
    ):
        parse_noise("gumbel")
    with pytest.raises(ValueError, match=r"`scale` must be a number from 1e-100"):
        parse_noise("gumbel:-1")

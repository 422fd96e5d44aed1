"""A noise of every family, for tests that walk over them."""

from __future__ import annotations

import pytest

from hokical.stability import Gaussian, Gumbel, Noise, Uniform

NOISES: list[Noise] = [Gaussian(1.3), Uniform(-1.0, 3.0), Gumbel(0.8)]
each_noise = pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.family)

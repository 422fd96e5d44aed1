"""The noise that is added to logits: Gaussian, uniform or Gumbel, independent per
class.

Only the *width* of a family matters to the label: a constant added to every logit moves
no argmax, so `Gaussian.mean` and the place of a `Uniform` interval change no result.
They are kept because the paper reports them.

The import of a family below puts it into the registry.

>>> from hokical import Gaussian, Uniform
>>> Gaussian(2.0).width, Uniform(-2, 4).width
(2.0, 6.0)
"""

from hokical.stability.families import (
    FAMILIES,
    NARROWEST,
    WIDEST,
    Noise,
    check_noise,
    default_families,
    family_named,
    parse_noise,
)
from hokical.stability.gaussian import Gaussian
from hokical.stability.gumbel import Gumbel
from hokical.stability.uniform import Uniform

__all__ = [
    "FAMILIES",
    "NARROWEST",
    "WIDEST",
    "Gaussian",
    "Gumbel",
    "Noise",
    "Uniform",
    "check_noise",
    "default_families",
    "family_named",
    "parse_noise",
]

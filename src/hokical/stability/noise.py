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

from hokical.stability.families import FAMILIES as FAMILIES
from hokical.stability.families import NARROWEST as NARROWEST
from hokical.stability.families import WIDEST as WIDEST
from hokical.stability.families import Noise as Noise
from hokical.stability.families import check_noise as check_noise
from hokical.stability.families import default_families as default_families
from hokical.stability.families import family_named as family_named
from hokical.stability.families import parse_noise as parse_noise
from hokical.stability.gaussian import Gaussian as Gaussian
from hokical.stability.gumbel import Gumbel as Gumbel
from hokical.stability.uniform import Uniform as Uniform

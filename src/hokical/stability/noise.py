"""The noise that is added to logits: Gaussian, uniform or Gumbel, independent per
class.

Only the *width* of a family matters to the label: a constant added to every logit moves
no argmax, so `Gaussian.mean` and the place of a `Uniform` interval change no result.
They are kept because the paper reports them.

>>> from hokical import Gaussian, Uniform
>>> Gaussian(2.0).width, Uniform(-2, 4).width
(2.0, 6.0)
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, ClassVar, Self

from hokical._core import special as _portable
from hokical._core.arrays import Array, FloatArray
from hokical._core.checks import Checked, Within
from hokical._core.logits import Logits, TopK
from hokical._core.storage import storable
from hokical.stability import gaussian, gumbel, uniform

#: Widths beyond these would overflow or vanish when margins are divided by them.
NARROWEST = 1e-100
WIDEST = 1e100
Scale = Annotated[float, Within(NARROWEST, WIDEST)]
Finite = Annotated[float, Within(-sys.float_info.max, sys.float_info.max)]


@dataclass(frozen=True)
class Noise(Checked, ABC):
    """Noise of one family: its width, draws of it, and the stability of labels under
    it.
    """

    family: ClassVar[str]
    unit_deviation: ClassVar[float]  # standard deviation of the noise of width 1
    _solver: ClassVar[Any]  # the module of the functions `stability` and `distribution`

    @property
    @abstractmethod
    def width(self) -> float:
        """The length by which logit margins are divided before anything else
        happens.
        """

    @classmethod
    def of_width(cls, width: float) -> Self:
        """The member of this family with the given width and no shift."""
        return cls(width)  # type: ignore[call-arg]

    @abstractmethod
    def from_uniform(self, uniform: FloatArray) -> FloatArray:
        """Turn numbers drawn uniformly from (0, 1) into noise of this family."""

    def stability(self, logits: Logits) -> Array:
        """gamma of every row, (n,) float64; hidden classes are taken as equals
        (`TopK.tail`).
        """
        return self._solver.stability(logits, self.width)

    @classmethod
    def stabilities(cls, logits: Logits, widths: FloatArray) -> Array:
        """gamma (widths, n) under noise of each of the widths (m,), as `stability`
        gives it.
        """
        fused = logits.backend.kernels.stability(cls.family, logits, widths)
        if fused is not None:
            return fused
        return logits.xp.stack(
            [cls._solver.stability(logits, each) for each in widths.tolist()]
        )

    def distribution(self, logits: Logits) -> Array:
        """pi of every row and class, (n, classes) float64; rows sum to 1.

        Hidden classes are taken as equals.
        """
        dense = logits.fill() if isinstance(logits, TopK) else logits
        return self._solver.distribution(dense, self.width)

    def unbounded(self) -> Noise:
        """Noise of the same deviation under which no possible class has probability
        0.
        """
        return self

    def to_dict(self) -> dict[str, Any]:
        """The family and its parameters, plain."""
        parameters = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"family": self.family, **parameters}


@storable("noise:gaussian")
@dataclass(frozen=True)
class Gaussian(Noise):
    """Normal noise with standard deviation `scale`; `mean` changes no result.

    >>> from hokical import label_stability
    >>> label_stability([[2.0, 0.0]], Gaussian(1.0)).round(4).tolist()
    [0.9214]
    """

    family: ClassVar[str] = "gaussian"
    unit_deviation: ClassVar[float] = 1.0
    _solver: ClassVar[Any] = gaussian
    scale: Scale
    mean: Finite = 0.0

    @property
    def width(self) -> float:
        return self.scale

    @classmethod
    def make_unchecked(cls, scale: Any) -> Self:
        """Of a scale that may be an array of one number, as while a graph is traced."""
        noise = object.__new__(cls)
        noise.__dict__.update(scale=scale, mean=0.0)
        return noise

    def from_uniform(self, uniform: FloatArray) -> FloatArray:
        return self.mean + self.scale * _portable.normal_quantile(uniform)


@storable("noise:uniform")
@dataclass(frozen=True)
class Uniform(Noise):
    """Noise spread evenly over [`low`, `high`]; only `high - low` changes a result.

    >>> from hokical import label_stability
    >>> label_stability([[2.0, 0.0]], Uniform(0.0, 4.0)).round(4).tolist()
    [0.875]
    """

    family: ClassVar[str] = "uniform"
    unit_deviation: ClassVar[float] = 1.0 / math.sqrt(12.0)
    _solver: ClassVar[Any] = uniform
    low: Finite
    high: Finite

    def __post_init__(self) -> None:
        super().__post_init__()
        if not NARROWEST <= self.high - self.low <= WIDEST:
            told = (
                f"by {NARROWEST:g} to {WIDEST:g}; got low={self.low!r}, "
                f"high={self.high!r}"
            )
            raise ValueError(f"`high` must lie above `low`, {told}.")

    @property
    def width(self) -> float:
        return self.high - self.low

    @classmethod
    def of_width(cls, width: float) -> Self:
        return cls(-0.5 * width, 0.5 * width)

    def from_uniform(self, uniform: FloatArray) -> FloatArray:
        return self.low + (self.high - self.low) * uniform

    def unbounded(self) -> Noise:
        return Gaussian.make_unchecked(self.width * self.unit_deviation)


@storable("noise:gumbel")
@dataclass(frozen=True)
class Gumbel(Noise):
    """Gumbel noise: the stability it gives is the softmax confidence at temperature
    `scale`.

    >>> from hokical import label_stability
    >>> label_stability([[2.0, 0.0]], Gumbel(1.0)).round(4).tolist()
    [0.8808]
    """

    family: ClassVar[str] = "gumbel"
    unit_deviation: ClassVar[float] = math.pi / math.sqrt(6.0)
    _solver: ClassVar[Any] = gumbel
    scale: Scale

    @property
    def width(self) -> float:
        return self.scale

    def from_uniform(self, uniform: FloatArray) -> FloatArray:
        return -self.scale * _portable.log(-_portable.log(uniform))


FAMILIES: dict[str, type[Noise]] = {
    kind.family: kind for kind in (Gaussian, Uniform, Gumbel)
}


def family_named(name: object) -> type[Noise]:
    """The noise class called `name`, or an error that lists the names there are."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(
            f"noise family must be one of {sorted(FAMILIES)}; got {name!r}."
        )
    return FAMILIES[name]


def parse_noise(text: str) -> Noise:
    """Read noise as people type it: `gaussian:2`, `uniform:-2,4` or `gumbel:1.5`.

    >>> parse_noise("uniform:-2,4")
    Uniform(low=-2.0, high=4.0)
    """
    name, _, rest = str(text).strip().lower().partition(":")
    family = family_named(name)
    wanted = [field.name.upper() for field in fields(family)]
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    least = sum(field.default is MISSING for field in fields(family))
    if not least <= len(numbers) <= len(wanted):
        raise ValueError(
            f"noise must read {name}:{','.join(wanted)}, in numbers; got {text!r}."
        )
    return family(*numbers)


def check_noise(noise: Any) -> Noise:
    """A noise object, or an error that shows how to make one."""
    if not isinstance(noise, Noise):
        rule = (
            "a Gaussian, Uniform or Gumbel of hokical, for example "
            "`Gaussian(scale=2.0)`"
        )
        raise TypeError(f"`noise` must be {rule}; got {noise!r}.")
    return noise

"""What every family of noise has, and the registry of all families.

A family is a class in a module of its own, under `@register_family`. The registry is
all that the rest of the package knows of it: names in options and files, the families
among which `noise="auto"` chooses, kernels of a GPU.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, ClassVar, Self, TypeVar

from hokical._core.arrays import Array, FloatArray
from hokical._core.checks import Checked, Within
from hokical._core.logits import Logits, TopK
from hokical._core.storage import storable

#: Width, in units of logits: margins divided by a smaller one would overflow.
NARROWEST = 1e-100
#: Width, in units of logits: margins divided by a larger one would vanish.
WIDEST = 1e100
Scale = Annotated[float, Within(NARROWEST, WIDEST)]
Finite = Annotated[float, Within(-sys.float_info.max, sys.float_info.max)]


@dataclass(frozen=True)
class Noise(Checked, ABC):
    """Noise of one family: its width, draws of it, and the stability of labels under
    it.
    """

    #: The name in options and files.
    family: ClassVar[str]
    #: Standard deviation of the noise of width 1.
    unit_deviation: ClassVar[float]
    #: Whether `noise="auto"` tries this family without being asked to.
    is_default: ClassVar[bool] = False
    #: Whether probabilities of all classes cost hardly more than the stability.
    has_cheap_distribution: ClassVar[bool] = False
    #: The name of its kernel in `hokical.integrations.torch.kernels`; None without one.
    kernel: ClassVar[str | None] = None

    @property
    @abstractmethod
    def width(self) -> float:
        """The length by which logit margins are divided before anything else
        happens.
        """

    @staticmethod
    @abstractmethod
    def exact_stability(logits: Logits, width: Array, /) -> Array:
        """gamma of every row, (n,) float64, under noise of a width, over the columns
        and the tail (`Logits.tail`).
        """

    @staticmethod
    @abstractmethod
    def exact_distribution(logits: Logits, width: Array, /) -> Array:
        """pi of every row and class, (n, classes) float64, under noise of a width."""

    @abstractmethod
    def from_uniform(self, uniform: FloatArray) -> FloatArray:
        """Turn numbers drawn uniformly from (0, 1) into noise of this family."""

    @classmethod
    def of_width(cls, width: float) -> Self:
        """The member of this family with the given width and no shift."""
        return cls(width)  # type: ignore[call-arg]

    @classmethod
    def fused_stability(cls, logits: Logits, width: Array) -> Array | None:
        """gamma (n,) by the kernel of the family, or (m, n) of widths (m,); None if
        there is no kernel for these logits.
        """
        if cls.kernel is None:
            return None
        return logits.backend.kernels.stability(cls.kernel, logits, width)

    @classmethod
    def stabilities(cls, logits: Logits, widths: FloatArray) -> Array:
        """gamma (widths, n) under noise of each of the widths (m,), as `stability`
        gives it.
        """
        fused = cls.fused_stability(logits, widths)
        if fused is not None:
            return fused
        rows = [cls.exact_stability(logits, width) for width in widths.tolist()]
        return logits.xp.stack(rows)

    def stability(self, logits: Logits) -> Array:
        """gamma of every row, (n,) float64; hidden classes are taken as equals
        (`TopK.tail`).
        """
        return self.exact_stability(logits, self.width)

    def distribution(self, logits: Logits) -> Array:
        """pi of every row and class, (n, classes) float64; rows sum to 1.

        Hidden classes are taken as equals.
        """
        dense = logits.fill() if isinstance(logits, TopK) else logits
        return self.exact_distribution(dense, self.width)

    def unbounded(self) -> Noise:
        """Noise of the same deviation under which no possible class has probability
        0.
        """
        return self

    def to_dict(self) -> dict[str, Any]:
        """The family and its parameters, plain."""
        parameters = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"family": self.family, **parameters}


#: The families by name. `register_family` fills it.
FAMILIES: dict[str, type[Noise]] = {}
Family = TypeVar("Family", bound=type[Noise])


def register_family(family: Family) -> Family:
    """The class itself, once its name is known to options, searches and files."""
    stored = storable(f"noise:{family.family}")(family)
    FAMILIES[family.family] = stored
    return stored


def default_families() -> tuple[str, ...]:
    """Names of the families that `noise="auto"` tries without being asked to."""
    return tuple(name for name, family in FAMILIES.items() if family.is_default)


def family_named(name: object) -> type[Noise]:
    """The noise class called `name`, or an error that lists the names there are."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(
            f"noise family must be one of {sorted(FAMILIES)}; got {name!r}."
        )
    return FAMILIES[name]


def parse_noise(text: str) -> Noise:
    """Noise as people type it: `gaussian:2`, `uniform:-2,4` or `gumbel:1.5`.

    >>> parse_noise("uniform:-2,4")
    Uniform(low=-2.0, high=4.0)
    """
    name, _, numbers = str(text).strip().lower().partition(":")
    family = family_named(name)
    parameters = [field.name.upper() for field in fields(family)]
    n_required = sum(field.default is MISSING for field in fields(family))
    values = _parse_numbers(numbers)
    if not n_required <= len(values) <= len(parameters):
        raise ValueError(
            f"noise must read {name}:{','.join(parameters)}, in numbers; got {text!r}."
        )
    return family(*values)


def _parse_numbers(text: str) -> list[float]:
    """The numbers between the commas; none if one of them is not a number."""
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        return []


def check_noise(noise: Any) -> Noise:
    """A noise object, or an error that shows how to make one."""
    if isinstance(noise, Noise):
        return noise
    *names, last = sorted(family.__name__ for family in FAMILIES.values())
    raise TypeError(
        f"`noise` must be a {', '.join(names)} or {last} of hokical, for example "
        f"`Gaussian(scale=2.0)`; got {noise!r}."
    )

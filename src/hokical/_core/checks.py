"""Checks of arguments and of stored records, and bins of [0, 1], [j/J, (j+1)/J), 1.0 in
the last.

Files may lie, so records say in the annotations of their fields what these must be
(`Checked`). Within the limits no prediction can overflow, vanish or become NaN: margins
are at most 1e150, and float64 ends at 1e308.
"""

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from numbers import Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, cast, get_args, get_type_hints

import numpy as np

from hokical._core.arrays import FloatArray, IntArray

_MOST_BINS = 1_000_000
#: Longer values are not shown in errors.
_LONGEST_SHOWN = 80


def bin_edges(n_bins: int) -> FloatArray:
    """The J + 1 edges, each the double nearest to j/J."""
    return np.arange(n_bins + 1) / n_bins


def bin_index(confidence: FloatArray, n_bins: int) -> IntArray:
    """Bin of each confidence, by comparison with the edges, so that j/J falls exactly
    into bin j.

    >>> bin_index(np.array([0.0, 0.6, 1.0]), 15)
    array([ 0,  9, 14])
    """
    return np.searchsorted(bin_edges(n_bins)[1:-1], confidence, side="right").astype(
        np.int64
    )


def sum_by(group: IntArray, values: FloatArray, n_groups: int) -> FloatArray:
    """Sum of the values in each group, (n_groups,) float64."""
    return np.bincount(group, values, n_groups).astype(np.float64, copy=False)


def effective_size(weights: FloatArray) -> float:
    """Kish's effective number of examples, by their weights (n,)."""
    return float(weights.sum() ** 2 / max((weights**2).sum(), 1e-300))


def check_count(
    name: str, value: Any, *, least: int = 1, most: float = math.inf, remedy: str = ""
) -> int:
    """Check a count: an integer of at least `least`, and at most `most`."""
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or not least <= value <= most:
        rule = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
        raise ValueError(
            f"`{name}` must be an integer {rule}; got {show(value)}. {remedy}".rstrip()
        )
    return int(value)


def check_bins(n_bins: object) -> int:
    """Check `n_bins`; more are a mistake, and would take all memory."""
    count = check_count("n_bins", n_bins)
    return check_count("n_bins", count, most=_MOST_BINS)


def show(value: object) -> str:
    """What an error says it got: the value itself, if that is short, or its type.

    >>> show(0.5), show([0.5] * 100)
    ('0.5', 'a list')
    """
    text = repr(value)
    is_short = len(text) <= _LONGEST_SHOWN and "\n" not in text
    return text if is_short else f"a {type(value).__name__}"


def check_choice(name: str, value: Any, choices: Any, remedy: str = "") -> None:
    """Check that a value is one of those of a `Literal` type."""
    plain = isinstance(value, (str, bool, np.bool_, NoneType))  # 1 is not True
    allowed = list(get_args(choices))
    if not plain or value not in allowed:
        raise ValueError(
            f"`{name}` must be one of {allowed}; got {show(value)}. {remedy}".rstrip()
        )


def check_flag(name: str, value: object) -> None:
    """Check that a value is True or False."""
    check_choice(name, value, Literal[True, False])


def check_mapping(name: str, value: object) -> None:
    """Check that a value is None or a dict."""
    if not isinstance(value, dict | None):
        raise TypeError(f"`{name}` must be a dict; got {show(value)}.")


def check_names(name: str, names: object) -> tuple[str, ...]:
    """Names of classes or columns in an order, as texts."""
    is_other = isinstance(names, (str, bytes, Mapping, Set))
    is_flat = isinstance(names, Iterable) and len(getattr(names, "shape", (0,))) == 1
    if is_other or not is_flat:
        raise TypeError(f"`{name}` must be a sequence of names; got {show(names)}.")
    return tuple(map(str, cast(Iterable[object], names)))


class NoEvidenceError(ValueError):
    """Nothing that a guarantee needs is known of the calibrator.

    `reason` says what is missing, `call` which method is called first, with names of
    its arguments.

    >>> error = NoEvidenceError("`detect` needs examples.")
    >>> str(error.with_call("certify(X, y)"))
    '`detect` needs examples. Call `certify(X, y)` first, with examples that nothing was fitted on.'
    """

    def __init__(self, reason: str, call: str = "certify(logits, labels)") -> None:
        super().__init__(reason, call)
        self.reason = reason
        self.call = call

    def __str__(self) -> str:
        remedy = f"Call `{self.call}` first, with examples that nothing was fitted on."
        return f"{self.reason} {remedy}"

    def with_call(self, call: str) -> Self:
        """The same error of an object whose method has other arguments."""
        return type(self)(self.reason, call)


def as_number(value: object) -> float:
    """A real number as a float, infinite beyond those; NaN of anything else."""
    if isinstance(value, bool | np.timedelta64) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if cast(Any, value) > 0 else -math.inf


def check_positive(name: str, value: Any, remedy: str) -> None:
    """Check a parameter that is a finite number above 0."""
    if not 0.0 < as_number(value) < np.inf:
        raise ValueError(
            f"`{name}` must be a finite number above 0; got {show(value)}. {remedy}"
        )


#: Temperatures and noise widths; margins divided by them stay finite, and masked
#: classes far.
LEAST_TEMPERATURE = 1e-140
LARGEST_TEMPERATURE = 1e140
#: Coefficients; products with margins stay finite.
LARGEST_COEFFICIENT = 1e100


@dataclass(frozen=True)
class Within:
    """Annotation of a field: a number from `low` to `high`, kept as a float."""

    low: float = -LARGEST_COEFFICIENT
    high: float = LARGEST_COEFFICIENT

    def check(self, name: str, value: Any, sizes: dict[Any, int]) -> float:
        number = isinstance(value, (int, float, np.integer, np.floating))
        if isinstance(value, bool) or not number or not self.low <= value <= self.high:
            raise ValueError(
                f"`{name}` must be a number from {self.low:g} to {self.high:g}; got "
                f"{show(value)}."
            )
        return float(value)


@dataclass(frozen=True)
class ArrayOf:
    """Annotation of a field: an array of this shape with numbers from `low` to `high`.

    Lengths are numbers, None for one or more, or names: equal names have equal lengths.
    `rising` numbers (k,) are each larger than the one before.
    """

    shape: tuple[int | str | None, ...]
    low: float = -LARGEST_COEFFICIENT
    high: float = LARGEST_COEFFICIENT
    dtype: Any = np.float64
    nan_allowed: bool = False
    rising: bool = False

    def check(self, name: str, array: Any, sizes: dict[Any, int]) -> Any:
        shape = tuple(sizes.get(n) if isinstance(n, str) else n for n in self.shape)
        is_array = isinstance(array, np.ndarray)
        fits = is_array and array.dtype == self.dtype and array.ndim == len(shape)
        if not fits or any(
            has < 1 if want is None else has != want
            for want, has in zip(shape, array.shape, strict=True)
        ):
            got = f"{array.dtype} {array.shape}" if is_array else repr(array)
            raise ValueError(
                f"`{name}` must be {np.dtype(self.dtype)} of shape {shape}; got {got}."
            )
        inside = (array >= self.low) & (array <= self.high)
        if not (inside | np.isnan(array) if self.nan_allowed else inside).all():
            raise ValueError(
                f"`{name}` must hold numbers from {self.low:g} to {self.high:g}."
            )
        if self.rising and not (np.diff(array) > 0).all():
            raise ValueError(f"`{name}` must rise from each number to the next.")
        sizes.update(zip(self.shape, array.shape, strict=True))
        return array


@dataclass(frozen=True)
class SequenceOf:
    """Annotation of a field: a `container`, tuple or list, of entries of one type."""

    container: type[Any]
    entry: type[Any]

    def check(self, name: str, value: object, sizes: dict[Any, int]) -> object:
        entries = value if isinstance(value, tuple | list) else ()
        fits = isinstance(value, self.container)
        if not fits or not all(isinstance(entry, self.entry) for entry in entries):
            raise ValueError(
                f"`{name}` must be a {self.container.__name__} of "
                f"{self.entry.__name__}; got {value!r}."
            )
        return value


@dataclass(frozen=True)
class AtLeast:
    """Annotation of a field: an integer of at least `least`."""

    least: int

    def check(self, name: str, value: object, sizes: dict[Any, int]) -> int:
        return check_count(name, value, least=self.least)


def check_array(name: str, array: Any, *kind: Any, **more: Any) -> None:
    """Raise unless an array is an `ArrayOf` what follows."""
    ArrayOf(*kind, **more).check(name, array, {})


Temperature = Annotated[float, Within(LEAST_TEMPERATURE, LARGEST_TEMPERATURE)]
Coefficient = Annotated[float, Within()]
Share = Annotated[float, Within(0.0, 1.0)]
Count = Annotated[int, AtLeast(0)]
#: The logarithm of a share above 0: that of the smallest float64 is -744.4.
LogShare = Annotated[float, Within(-745.0, 0.0)]


class Checked:
    """Base of dataclasses whose fields must be what their annotations say.

    Besides `Within` and `ArrayOf`, a bool or text must be one, a tuple of texts or a
    list of bools hold them alone, and a record be of one of the classes that are named,
    or None. Subclasses with more to check extend `__post_init__`.
    """

    def __post_init__(self) -> None:
        """Raise unless the fields are what their annotations say."""
        sizes: dict[Any, int] = {}
        for name, (kinds, checks) in _field_checks(type(self)).items():  # type: ignore[arg-type]
            value = getattr(self, name)
            if kinds and not isinstance(value, kinds):
                type_words = {bool: "True or False", NoneType: "None"}
                rule = " or ".join(
                    type_words.get(kind, kind.__name__) for kind in kinds
                )
                raise ValueError(f"`{name}` must be {rule}; got {value!r}.")
            for check in checks:
                object.__setattr__(self, name, check.check(name, value, sizes))


#: What annotations of sequences stand for.
_SEQUENCES = {
    tuple[str, ...]: SequenceOf(tuple, str),
    list[bool]: SequenceOf(list, bool),
}


@cache
def _field_checks(
    kind: Any,
) -> dict[str, tuple[tuple[type[Any], ...], tuple[Any, ...]]]:
    """By field: the classes that it must be of, if these are records, and the
    annotated checks.
    """
    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError:
        # A type that is imported for type checkers alone: there is nothing to check by.
        return {}
    field_checks = {}
    for name in (field.name for field in fields(kind)):
        kinds = (
            get_args(hints[name])
            if isinstance(hints[name], UnionType)
            else (hints[name],)
        )
        checks = getattr(hints[name], "__metadata__", ())
        sequence = _SEQUENCES.get(hints[name])
        if sequence is not None:
            checks = (*checks, sequence)
        plain = (bool, str, NoneType, Checked)
        are_checked = [
            is_dataclass(k) or (isinstance(k, type) and issubclass(k, plain))
            for k in kinds
        ]
        field_checks[name] = kinds if all(are_checked) else (), checks
    return field_checks

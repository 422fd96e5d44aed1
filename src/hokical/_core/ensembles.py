"""Several evaluations of each example: views, networks, models, prompts, passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, Self

import numpy as np

from hokical._core import arrays, reading
from hokical._core.arrays import NUMPY, AnyArray, Array, Backend, BoolArray
from hokical._core.checks import check_choice, check_names, show
from hokical._core.logits import Logits, TopK, as_float_matrix, row_maxima


class Ensemble:
    """Several evaluations of each example, for whatever takes logits.

    A classifier is often evaluated more than once for an example: on transformed
    inputs (test-time augmentation), by several networks or models, with several
    prompts, or in several passes with dropout. A calibrator that is fitted on an
    ensemble learns how to pool its members into one row of logits, and is then used
    with ensembles of the same members.

    Parameters
    ----------
    members : sequence or mapping of arrays (n, classes), or array (members, n, classes)
        The logits of each member, for the same examples in the same order, of any
        array library; probabilities through `from_probabilities(Ensemble(...))`. A row of NaN says
        that a member was not evaluated for that example.
    names : sequence of str, optional
        The names of the members; by default the keys of a mapping, or "0", "1", ...
        The first member is the classifier whose labels `keep_labels=True` keeps.
    exchangeable : bool
        Whether members differ by chance alone, as passes with dropout do: they get
        equal weights, and their number may differ from use to use.

    Attributes
    ----------
    names : tuple of str
    n_members, n_rows, n_classes : int

    Examples
    --------
    >>> import numpy as np
    >>> plain, flipped = np.random.default_rng(0).normal(size=(2, 100, 3))
    >>> views = Ensemble({"plain": plain, "flipped": flipped})
    >>> views
    Ensemble(2 members, 100 rows, 3 classes: plain, flipped)
    >>> views[:10].n_rows
    10
    """

    def __init__(
        self,
        members: Sequence[Array] | Mapping[str, Array] | Array,
        names: Sequence[str] | None = None,
        exchangeable: bool = False,
    ) -> None:
        check_choice("exchangeable", exchangeable, Literal[True, False])
        if isinstance(members, Mapping):
            if names is not None:
                raise ValueError(
                    "`names` must be None where `members` is a mapping, whose keys are "
                    f"the names; got {list(names)}."
                )
            names = list(map(str, members))
            members = list(members.values())
        listed = list(_split(members))
        #: Whether the members were given names, by which they are matched.
        self.named = names is not None
        self.names = _check_names(names, len(listed))
        self.exchangeable = exchangeable
        first = listed[0]
        columns = reading.column_names(first)
        self.members = (
            first,
            *(
                reading.order_columns(member, self.label(v), columns)
                for v, member in enumerate(listed[1:], 1)
            ),
        )
        self._check_shapes()

    def _check_shapes(self) -> None:
        shapes = [
            _shape(member, self.label(v)) for v, member in enumerate(self.members)
        ]
        for v, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise ValueError(
                    f"`{self.label(v)}` must have the shape (n, classes) of the first "
                    f"member, {shapes[0]}; got {shape}. Evaluate every member on the "
                    "same examples and classes; where one was not evaluated, its row is "
                    "NaN."
                )
            reading.check_row_order(
                self.members[0], self.members[v], self.label(v), self.label(0)
            )
        self.n_rows, self.n_classes = shapes[0]

    def label(self, v: int) -> str:
        """What errors call a member."""
        return f"members[{self.names[v]!r}]" if self.named else f"members[{v}]"

    @property
    def n_members(self) -> int:
        return len(self.members)

    @property
    def shape(self) -> tuple[int, int]:
        """That of the pooled logits, (n, classes)."""
        return self.n_rows, self.n_classes

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, where members are frames."""
        return reading.column_names(self.members[0])

    @property
    def like(self) -> Array:
        """Results are arrays of the library of the first member."""
        return self.members[0]

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, rows: AnyArray | slice) -> Self:
        """The same members for some of the rows, by a slice, a mask or row numbers."""
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            rows = rows[0]  # as scikit-learn takes rows of what has a shape
        return self.take(rows if isinstance(rows, slice) else np.atleast_1d(rows))

    def take(self, rows: AnyArray | slice) -> Self:
        """The same members for some of the rows."""
        if not isinstance(rows, slice):
            rows = reading.as_rows(rows, self.n_rows)
        return self._with_members([_take(member, rows) for member in self.members])

    def convert(self, change: Callable[[Array, str], Array]) -> Self:
        """The same with every member changed; `change` is told what errors call it."""
        changed = [change(m, self.label(v)) for v, m in enumerate(self.members)]
        return self._with_members(changed)

    def label_survival(self) -> BoolArray:
        """Whether each member but the first keeps its label, (members - 1, n).

        Members that were not evaluated keep it. `SurvivalCalibrator` learns from it.

        >>> ensemble = Ensemble(np.array([[[0.0, 1.0]], [[0.0, 2.0]], [[3.0, 0.0]]]))
        >>> ensemble.label_survival().tolist()
        [[True], [False]]
        """
        tables, top, backend = self.checked()
        xp = backend.namespace(top)
        labels = np.stack([backend.to_host(xp.argmax(z, axis=1)) for z in tables])
        missing = np.isnan(backend.to_host(top))
        return np.asarray((labels[1:] == labels[0]) | missing[1:])

    def select(self, members: Sequence[str]) -> Self:
        """Some of the members, by name and in that order.

        >>> Ensemble(np.zeros((3, 5, 2)), ["a", "b", "c"]).select(["c", "a"]).names
        ('c', 'a')
        """
        names = check_names("members", members)
        missing = [name for name in names if name not in self.names]
        if missing:
            raise ValueError(
                f"`members` must be among {', '.join(self.names)}; got "
                f"{', '.join(map(repr, missing))}."
            )
        indices = [self.names.index(name) for name in names]
        return self._with_members([self.members[v] for v in indices], names)

    def append(self, others: Sequence[Self]) -> Self:
        """The rows of this ensemble and of others with the same members, on the host."""
        if isinstance(others, Ensemble) or not isinstance(others, Sequence):
            raise TypeError(
                f"`others` must be a sequence of ensembles; got {show(others)}."
            )
        ensembles = [self, *others]
        for ensemble in ensembles:
            if not isinstance(ensemble, Ensemble):
                raise TypeError(f"`others` must be ensembles; got {show(ensemble)}.")
            if ensemble.names != self.names:
                raise ValueError(
                    "all ensembles must have the same members in one order; got "
                    f"{', '.join(self.names)} and {', '.join(ensemble.names)}."
                )
        return self._with_members(
            [
                np.concatenate([arrays.to_host(e.members[v]) for e in ensembles])
                for v in range(self.n_members)
            ]
        )

    def order_columns(self, names: tuple[str, ...], *, strict: bool) -> Self:
        """The same with the columns of frames in the order of a fit."""
        if not self.columns:
            return self
        ordered = [
            reading.order_columns(member, self.label(v), names, strict=strict)
            for v, member in enumerate(self.members)
        ]
        return self._with_members(ordered)

    def _with_members(
        self, members: Sequence[Array], names: Sequence[str] | None = None
    ) -> Self:
        """Other arrays, by default of the same members."""
        changed = type(self)(members, names or self.names, self.exchangeable)
        changed.named = self.named
        return changed

    def __array__(self, dtype: object = None, copy: object = None) -> AnyArray:
        raise TypeError(
            "an Ensemble has several logits for each class, so it cannot become an "
            "array. Fit a calibrator on it, which pools them, or choose a member: "
            "`ensemble.members[0]`."
        )

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:4]) + ", ..." * (self.n_members > 4)
        sizes = (
            f"{self.n_members} members, {self.n_rows:,} rows, {self.n_classes} classes"
        )
        return f"Ensemble({sizes}: {shown})" if self.named else f"Ensemble({sizes})"

    def checked(self) -> tuple[tuple[Array, ...], Array, Backend]:
        """Checked logits (n, classes) of each member, row maxima (members, n), backend.

        Maxima are NaN where a member was not evaluated.
        """
        checked = [
            as_float_matrix(member, self.label(v))
            for v, member in enumerate(self.members)
        ]
        tables = tuple(table for table, _ in checked)
        backend = checked[0][1]
        for v, (_, library) in enumerate(checked):
            if library is not backend:
                raise TypeError(
                    f"`{self.label(v)}` must be an array of the library of the first "
                    "member. Convert all members to one library."
                )
        tops = [row_maxima(table, backend) for table in tables]
        top = backend.namespace(tables[0]).stack(tops)
        self._check_values(tables, top, backend)
        return tables, top, backend

    def _check_values(
        self, tables: Sequence[Array], top: Array, backend: Backend
    ) -> None:
        """Refuse entries that are no logits, and rows that no member was evaluated on."""
        if backend.is_traced(top):
            return
        tops = backend.to_host(top)
        if np.isfinite(tops).all():
            return
        for v, maxima in enumerate(tops):
            rows = np.flatnonzero(~np.isfinite(maxima))
            suspects = backend.to_host(tables[v])[rows]
            _check_member_rows(suspects, rows, self.label(v))
        absent = np.flatnonzero(np.isnan(tops).all(axis=0))
        if absent.size:
            raise ValueError(
                "`members` must have one that was evaluated in every row; all are NaN "
                f"in row {absent[0]}. Drop the row."
            )


class MemberReader(Protocol):
    """How several evaluations of each row become one row of logits.

    A schema has one where the fit was on an `Ensemble`.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The members of the fit."""

    @property
    def exchangeable(self) -> bool:
        """Whether the members differ by chance alone."""

    def read(self, ensemble: Ensemble, groups: object = None) -> Logits:
        """The pooled logits (n, classes) of checked members.

        `groups` are those of the rows, for members whose calibrators need them.
        """

    def describe(self) -> str:
        """The members in a few words, for errors and for the `repr`."""


def _split(members: Array) -> Sequence[Array]:
    """The members of a sequence, or of an array (members, n, classes)."""
    if arrays.backend_of(members) is not None:
        shape = tuple(members.shape)
        if len(shape) != 3:
            raise ValueError(
                "`members` must be an array (members, n, classes), or a sequence of "
                f"arrays (n, classes); got shape {shape}. One evaluation of each example "
                "needs no Ensemble."
            )
        members = [members[v, ...] for v in range(shape[0])]
    if isinstance(members, (str, bytes)) or not isinstance(members, Sequence):
        raise TypeError(
            "`members` must be a sequence or a mapping of arrays (n, classes), or an "
            f"array (members, n, classes); got a {type(members).__name__}."
        )
    if not members:
        raise ValueError(
            "`members` must hold at least one array (n, classes); got none."
        )
    return members


def _check_names(names: Sequence[str] | None, n_members: int) -> tuple[str, ...]:
    if names is None:
        return tuple(map(str, range(n_members)))
    texts = tuple(names)
    if isinstance(names, str) or not all(type(text) is str for text in texts):
        raise TypeError(f"`names` must be a sequence of texts; got {names!r}.")
    if len(texts) != n_members or len({*texts}) < n_members:
        raise ValueError(
            f"`names` must name each of the {n_members} members once; got {list(texts)}."
        )
    return texts


def _shape(member: Array, name: str) -> tuple[int, int]:
    if isinstance(member, (TopK, Ensemble)):
        raise TypeError(
            f"`{name}` must be logits (n, classes) with a column for every class; got a "
            f"{type(member).__name__}. Fill in the rest of a TopK: `to_dense(fill=...)`."
        )
    shape = tuple(member.shape) if hasattr(member, "shape") else np.shape(member)
    if len(shape) != 2:
        remedy = " For binary scores use `from_binary_scores` of each member."
        raise ValueError(
            f"`{name}` must be 2-D (n, classes); got shape {shape}."
            f"{remedy if len(shape) == 1 else ''}"
        )
    return shape[0], shape[1]


def _take(member: Array, rows: AnyArray | slice) -> Array:
    backend = arrays.backend_of(member)
    if backend is not None and (isinstance(rows, slice) or backend is NUMPY):
        return member[rows, ...]
    if isinstance(rows, slice):
        return reading.select_rows(member, rows)
    index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    if backend is None:
        return reading.select_rows(member, index)
    xp = backend.namespace(member)
    return xp.take(member, backend.from_host(index, member), axis=0)


def _check_member_rows(values: AnyArray, rows: AnyArray, name: str) -> None:
    """Refuse rows that are neither logits nor all NaN."""
    missing: BoolArray = np.isnan(values)
    bad = (missing & ~missing.all(axis=1, keepdims=True)) | np.isposinf(values)
    bad |= (values == -np.inf).all(axis=1, keepdims=True)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"`{name}` must hold logits, or a row of NaN where the member was not "
            f"evaluated; got {values[row, column]} in row {rows[row]}, column {column}. "
            "Only -inf is allowed, for a masked class."
        )

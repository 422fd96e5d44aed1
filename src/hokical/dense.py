"""Outputs with more than one prediction per input: segmentation maps, tokens, anchors.

`Dense` wraps a calibrator so that logits keep their shape. A position is a place that
has a prediction: a pixel, a token. Logits have the shape of their positions with one
more axis, that of the classes; an item is an entry of the first axis. They are worked
on as rows (positions, classes), some items at a time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from array_api_compat import device, is_writeable_array

from hokical import streams
from hokical._core import arrays
from hokical._core.arrays import Array, BoolArray, FloatArray, IntArray, to_host
from hokical._core.checks import check_choice, check_count, check_mapping
from hokical._core.ensembles import Ensemble
from hokical._core.groups import count_rows, read_columns, take_rows
from hokical._core.logits import as_logits
from hokical._core.reading import Rows, as_labels, as_weights, iterate, to_numpy
from hokical._core.runtime import NotFittedError, cut_rows, sklearn_class
from hokical._core.storage import CalibratorFileError
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.catalog import load, new_calibrator
from hokical.calibrators.predictor import Predictor
from hokical.calibrators.stored import Estimator, refuse_groups
from hokical.guarantees.control import (
    Loss,
    RiskControl,
    RiskOptions,
    control_risk,
    percent,
)
from hokical.guarantees.evidence import Evidence, observe
from hokical.guarantees.fingerprints import Reused, row_draws
from hokical.guarantees.scores import AbstentionOptions, SelectivePrediction
from hokical.guarantees.sets import Conformity, PredictionSets, SetOptions
from hokical.io import tables
from hokical.rules.base import Output
from hokical.rules.sets import SetKind

__all__ = ["Dense"]

_GIVE_AXIS = "Give `class_axis`, the axis of the classes"
_RULE = "a batch must be logits (n, ..., classes)"
#: The arrays of a batch, by what they may be called.
_BATCH_NAMES = (*streams.CHUNK_NAMES, ("mask", "attention_mask"))


#: The arrays of a batch, in order.
_INPUTS = ("logits", "labels", "sample_weight", "mask")


def _has_axes(array: object) -> bool:
    """Whether it is indexed by axes as it is; frames are not."""
    return hasattr(array, "shape") and not hasattr(array, "iloc")


class Maps:
    """Logits with their labels, weights and mask, read a slab of items at a time.

    `labels` and `mask` have the positions' shape, or are None; `weights` have it too,
    or are one per item. Positions with `ignored` labels do not count. `first_item` is
    how many items came before.
    """

    def __init__(
        self,
        arrays_of_batch: Iterable[Any],
        class_axis: int,
        ignored: tuple[int, ...],
        first_item: int,
    ) -> None:
        arrays_of_batch = list(arrays_of_batch)
        if isinstance(arrays_of_batch[0], Ensemble):
            raise TypeError(
                "`logits` must be maps of one network; got an Ensemble, which has rows "
                "(n, classes). Average the maps of several, or choose positions and "
                "fit on their rows."
            )
        # What has a shape stays as it is: a file on disk; but no frame.
        self.logits, self.labels, self.weights, self.mask = (
            array if array is None or _has_axes(array) else to_numpy(array, name)
            for name, array in zip(_INPUTS, arrays_of_batch, strict=True)
        )
        self.ignored = ignored
        self.first_item = first_item
        self.shape = tuple(map(int, self.logits.shape))
        rank = len(self.shape)
        self.axis = class_axis % max(rank, 1)
        if not (
            -rank <= class_axis < rank and self.axis > 0 and self.shape[self.axis] > 1
        ):
            raise ValueError(
                "`logits` must have at least two classes on `class_axis`, after an "
                f"axis of items; got shape {self.shape} and class_axis={class_axis}. "
                f"{_GIVE_AXIS}, and one item as `logits[None]`."
            )
        self.n_classes = self.shape[self.axis]
        self.positions = self.shape[: self.axis] + self.shape[self.axis + 1 :]
        self._check_shapes()
        # Slabs are worked on where they are, in their library, if results can be
        # written there.
        backend = arrays.backend_of(self.logits) or arrays.NUMPY
        in_place = backend.lazy is None and bool(is_writeable_array(self.logits))
        self.backend = backend if in_place else arrays.NUMPY

    def _check_shapes(self) -> None:
        """Raise unless labels, mask and weights have the shape of the positions."""
        named_arrays = {
            "labels": self.labels,
            "mask": self.mask,
            "sample_weight": self.weights,
        }
        for name, array in named_arrays.items():
            shape = self.positions if array is None else tuple(array.shape)
            of_items = name == "sample_weight" and shape == self.positions[:1]
            if shape != self.positions and not of_items:
                raise ValueError(
                    f"`{name}` must have the shape of the logits without their "
                    f"classes, {self.positions}; got {shape}. {_GIVE_AXIS}."
                )

    def slabs(self) -> Iterator[tuple[slice, BoolArray]]:
        """Items of up to 8 MB of logits, at least one, and which of their positions
        count.
        """
        n_items, *lengths = self.positions
        step = max(
            1, streams.rows_per_chunk(self.n_classes) // max(1, math.prod(lengths))
        )
        for items in cut_rows(n_items, step):
            keep = np.ones((items.stop - items.start, *lengths), np.bool_)
            if self.mask is not None:
                mask = to_numpy(self.mask[items, ...], "mask")
                if (
                    mask.dtype.kind not in "biu"
                    or not ((mask == 0) | (mask == 1)).all()
                ):
                    raise TypeError(
                        "`mask` must be True or 1 where a position counts, False or 0 "
                        f"elsewhere; got dtype {mask.dtype}."
                    )
                keep &= mask.astype(np.bool_)
            if self.ignored and self.labels is not None:
                keep &= ~np.isin(
                    to_numpy(self.labels[items, ...], "labels"), self.ignored
                )
            yield items, keep

    def rows(self, items: slice, keep: BoolArray) -> Array:
        """The logits (rows, classes) of a slab; 0 where positions do not count."""
        slab = self.logits[items, ...]
        values = to_numpy(slab, "logits") if self.backend is arrays.NUMPY else slab
        xp = self.backend.namespace(values)
        rows = xp.reshape(xp.moveaxis(values, self.axis, -1), (-1, self.n_classes))
        if keep.all():
            return rows
        counts = self.backend.from_host(keep.reshape(-1, 1), rows)
        return xp.where(counts, rows, xp.zeros_like(rows))

    def read(self, max_per_item: int | None = None, seed: int = 0) -> Iterator[Rows]:
        """The positions that count with labels, by slab; at most `most` of an item, by
        the seed.

        They are checked here, where an error can name the position; `ids` are their
        items.
        """
        for items, keep in self.slabs():
            first = self.first_item + items.start
            if max_per_item is not None:
                # Views of it.
                for item, counts in enumerate(keep.reshape(len(keep), -1), first):
                    positions = np.flatnonzero(counts)
                    if positions.size > max_per_item:
                        rng = np.random.default_rng([seed, item])
                        counts[:] = False
                        counts[rng.choice(positions, max_per_item, replace=False)] = (
                            True
                        )
            if not keep.any():
                continue
            rows = self.rows(items, keep)
            indices = np.nonzero(keep)
            weights = None
            rows = rows[self.backend.from_host(keep.reshape(-1), rows)]
            chosen = self.backend.without_gradient(rows)
            with self._report(items, keep):
                n = as_logits(chosen).n_rows
                labels = to_numpy(self.labels[items, ...], "labels")
                labels = as_labels(labels[keep], n, self.n_classes)
            if self.weights is not None:  # one per item is of all its positions
                weights = to_numpy(self.weights[items, ...], "sample_weight")
                weights = weights[indices if weights.ndim == keep.ndim else indices[0]]
            yield Rows(chosen, labels, weights, ids=indices[0] + first)

    def output(self, predictor: Predictor, what: Output, fill: float) -> Array:
        """What is predicted at each position."""
        return self.predict(
            lambda rows: {what: predictor.predict(what, rows)}, {what: fill}
        )[what]

    def predict(
        self, work: Callable[[Array], Mapping[str, Array]], fills: Mapping[str, Any]
    ) -> dict[str, Array]:
        """What `work` makes of rows (n, classes), in the shape of the positions or of
        the logits.

        Given are the names of the results, and what they are where no position counts.
        """
        xp = self.backend.namespace(self.logits)
        placement = (
            {} if self.backend is arrays.NUMPY else {"device": device(self.logits)}
        )
        results: dict[str, Array] = {}
        for items, keep in self.slabs():
            with self._report(items):
                values = work(self.rows(items, keep))
            for name, fill in fills.items():
                result = values[name]
                of_classes = values[name].ndim == 2
                if name not in results:
                    shape = self.shape if of_classes else self.positions
                    results[name] = xp.empty(shape, dtype=result.dtype, **placement)
                shaped = xp.reshape(result, (*keep.shape, *result.shape[1:]))
                if not keep.all():
                    counts = self.backend.from_host(
                        keep[..., None] if of_classes else keep, result
                    )
                    shaped = xp.where(counts, shaped, xp.full_like(shaped, fill))
                shaped = xp.moveaxis(shaped, -1, self.axis) if of_classes else shaped
                results[name][items, ...] = shaped
        if not results:
            raise ValueError(
                f"`logits` must have at least one item; got shape {self.shape}."
            )
        return {
            name: arrays.to_input_library(array, self.logits)
            for name, array in results.items()
        }

    def _report(
        self, items: slice, keep: BoolArray | None = None
    ) -> AbstractContextManager[None]:
        """Errors about a row of a slab, or of its positions to keep, name the position.

        Items are counted over all batches.
        """

        def place(row: int) -> str:
            shape = (items.stop - items.start, *self.positions[1:])
            flat = row if keep is None else int(np.flatnonzero(keep)[row])
            item, *inside = map(int, np.unravel_index(flat, shape))
            return f"position {(item + items.start + self.first_item, *inside)}"

        remedy = "If the position does not count, give `mask` with False there"
        return tables.report_file(None, place, remedy)


def holds_batches(logits: Any) -> bool:
    """Whether it is batches, and not one array."""
    if hasattr(logits, "shape"):
        return False
    unfit = isinstance(logits, (str, bytes, Mapping, tuple))
    if unfit or not (callable(logits) or isinstance(logits, Iterable)):
        raise TypeError(
            "`logits` must be an array (n, ..., classes), or a list or iterable of "
            f"batches; got {type(logits).__name__}. Open files with "
            "`numpy.load(path, mmap_mode='r')`, and give arrays by name, "
            "`fit(logits=..., labels=...)`."
        )
    return True


def _weigh_items(rows: Rows) -> FloatArray:
    """The weight of each item (items,), 1 on average of those above 0."""
    weights = as_weights(rows.weights, rows.n_rows)
    counts = np.bincount(rows.ids)
    if weights is None:
        return np.sign(counts).astype(np.float64)
    items = np.bincount(rows.ids, weights) / np.maximum(counts, 1)
    if not np.allclose(items[rows.ids], weights):
        raise ValueError(
            "`sample_weight` must be one per item, (n,); got several in an item. Give "
            "`mask` with False where positions do not count."
        )
    return np.asarray(items / items[items > 0.0].mean())


def _groups_of_items(groups: object, items: IntArray, n_items: int) -> Any:
    """The groups of some items, given those of all."""
    if groups is None:
        return None
    n = count_rows(groups)
    if n < n_items:
        raise ValueError(
            f"`groups` must have one entry per item, at least {n_items}; got {n}. Give "
            "that of each entry of the first axis."
        )
    return take_rows(read_columns(groups, n), items)


def _observe_positions(
    calibrator: Calibrator, positions: Rows, reused: Reused
) -> Conformity:
    """Where predictions place the true classes of positions, which share the weight of
    their item.

    Then the weighted share of missed positions is the mean share over items, and a
    threshold for it, with room for one item more, is that of conformal risk control.
    """
    item_weights = _weigh_items(positions)
    n_positions = np.maximum(np.bincount(positions.ids), 1)
    weights = (item_weights / n_positions)[positions.ids]
    rows = calibrator.read_held_out(reused, positions.scores, positions.labels, weights)
    conformity = observe(calibrator.rule_, rows).conformity
    return replace(conformity, unit=float(item_weights.max()))


def _observe_items(
    calibrator: Calibrator,
    positions: Rows,
    drawn: IntArray,
    groups: object,
    reused: Reused,
) -> Evidence:
    """What one position of each item proves, those that were `drawn` (items,)."""
    item_weights = _weigh_items(positions)
    items = positions.ids[drawn]
    chosen = positions.take(drawn)
    weights = None if positions.weights is None else item_weights[items]
    item_groups = _groups_of_items(groups, items, len(item_weights))
    rows = calibrator.read_held_out(
        reused, chosen.scores, chosen.labels, weights, item_groups
    )
    return Evidence.collect([observe(calibrator.rule_, rows)])


#: Positions of each item that sets are certified with.
_PER_ITEM = 64


class Dense(Estimator):
    """Calibrate outputs that have a prediction at every position: segmentation maps,
    tokens.

    Logits have any shape, with items on the first axis and the classes on another;
    labels, masks and confidences have the same shape without it. One calibrator is
    fitted on all positions that count. Arrays are read some items at a time, up to 8
    MB, so the memory of a fit does not grow with the number of items.

    Parameters
    ----------
    calibrator : Calibrator or str
        What to fit: a calibrator, which stays as it is, or a name in the registry. One
        that is fitted already predicts without a `fit`.
    class_axis : int
        The axis of the classes: -1 for (n, h, w, classes), 1 for (n, classes, h, w).
    ignore_label : int or several, optional
        Positions with such a label do not count: 255 in many segmentation sets, -100
        for tokens.
    max_positions_per_item : int, optional
        Fit on at most this many positions of each item (an entry of the first axis),
        chosen at random from those that count, by the seed `random_state` and the
        item's number alone. A few hundred pixels carry most of the information of an
        image.

    Attributes
    ----------
    calibrator_ : the fitted calibrator, for logits (positions, classes) of `n_classes_`
    n_positions_, accuracy_ : of the fit and of the classifier's labels there; None with
        weights

    Notes
    -----
    Positions of an item are not independent: neighbours are right and wrong together. A
    fit is not affected, but whatever counts examples is: so `calibrator_` does not keep
    the positions of the fit for guarantees, and `certify` counts one position per item.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical import Hoki
    >>> from hokical.dense import Dense
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(4, size=(6, 20, 20))
    >>> logits = 3 * (
    ...     rng.normal(size=(6, 4, 20, 20)) + 2 * np.moveaxis(np.eye(4)[labels], 3, 1)
    ... )
    >>> labels[:, :2] = 255
    >>> cal = Dense(Hoki(), class_axis=1, ignore_label=255).fit(logits, labels)
    >>> cal.predict_confidence(logits).shape, cal.predict_proba(logits).shape
    ((6, 20, 20), (6, 4, 20, 20))
    """

    def __init__(
        self,
        calibrator: Calibrator | str = "auto",
        *,
        class_axis: int = -1,
        ignore_label: int | Sequence[int] | None = None,
        max_positions_per_item: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.calibrator = calibrator
        self.class_axis = class_axis
        self.ignore_label = ignore_label
        self.max_positions_per_item = max_positions_per_item
        self.random_state = random_state

    def fit(
        self,
        logits: Any,
        labels: Any = None,
        sample_weight: Any = None,
        *,
        mask: Any = None,
    ) -> Self:
        """Learn from the positions that count.

        `logits` (n, ..., classes), or with the classes on `class_axis`, are an array of
        any library, in any memory order, mapped into memory or HDF5; or batches: a
        list, a loader, an iterator, or a function that returns one. A batch is (logits,
        labels), (logits, labels, sample_weight), or a mapping with these names and
        `mask`; batches may differ in shape.

        `labels` (n, ...) are the true classes; `mask` (n, ...) is True where a position
        counts, and logits elsewhere may be anything; `sample_weight` (n, ...) or (n,)
        says how much each position counts, or each position of an item. Batches bring
        their own.
        """
        calibrator = new_calibrator(self.calibrator, argument="calibrator")
        inputs = (logits, labels, sample_weight, mask)
        streams.fit(calibrator, self.source(inputs, self.max_positions_per_item))
        table = calibrator.predictor_.fit_record.label_scores
        self.n_positions_ = None if table is None else table.total
        self.accuracy_ = (
            None if table is None else float(1.0 - table.wrong.sum() / table.total)
        )
        calibrator.forget_examples()
        self.calibrator_: Calibrator = calibrator
        return self

    def predict(self, logits: Any, *, mask: Any = None) -> Any:
        """Labels (n, ...), int64; -1 where the mask is False.

        Of batches, this and the other predictions give an iterator of results, one per
        batch.
        """
        return self._predict("labels", logits, mask, -1)

    def predict_confidence(self, logits: Any, *, mask: Any = None) -> Any:
        """The probability (n, ...) that each label is right; NaN where the mask is
        False.

        Positions whose label is ignored in a fit are predicted like all others: labels
        are not known here.
        """
        return self._predict("confidence", logits, mask, np.nan)

    def predict_proba(self, logits: Any, *, mask: Any = None) -> Any:
        """Probabilities in the shape of the logits; they sum to 1 along `class_axis`.

        NaN where the mask is False.
        """
        return self._predict("proba", logits, mask, np.nan)

    def score(
        self,
        logits: Any,
        labels: Any = None,
        sample_weight: Any = None,
        *,
        mask: Any = None,
    ) -> float:
        """Minus the Brier score of the confidence: larger is better, 0 is perfect."""
        positions = self._flatten((logits, labels, sample_weight, mask))
        return self.fitted_calibrator().score(
            positions.scores, positions.labels, positions.weights
        )

    def certify(
        self,
        logits: Any,
        labels: Any = None,
        sample_weight: Any = None,
        *,
        mask: Any = None,
        groups: Any = None,
        reused: Reused = "refuse",
    ) -> Self:
        """Count held-out positions, so that `predict_or_abstain` and `predict_set` are
        guaranteed.

        The items are those that neither the classifier nor this calibrator was fitted
        on. The calibrator given at the start stays as it is; `calibrator_` is a copy
        that has counted: one position per item, and for sets up to 64, which count as
        one example together. `sample_weight` (n,) are importance weights of the items,
        on any scale: how much more likely each is in the future; only sets can use
        them. `groups` (n,), one column or several, are for `by="new group"`: the
        patient of each image, the document of each sentence. `reused` is that of
        `Calibrator.certify`.
        """
        positions = self._flatten((logits, labels, sample_weight, mask), _PER_ITEM)
        calibrator = self.fitted_calibrator()
        conformity = _observe_positions(calibrator, positions, reused)
        drawn = self._draw_one(positions)
        by_item = _observe_items(calibrator, positions, drawn, groups, reused)
        predictor = calibrator.predictor_
        # For a new group each item counts as one example, by the position that was
        # drawn.
        certified = replace(
            predictor,
            fit_record=predictor.fit_record.without_evidence(),
            held_out=replace(by_item, conformity=conformity),
            held_out_for_new_groups=by_item,
        )
        self.calibrator_ = calibrator.with_predictor(certified)
        return self

    def _draw_one(self, positions: Rows) -> IntArray:
        """The index (items,) of a position of each item, at random."""
        draws = row_draws(self.random_state, positions.n_rows)
        order = np.lexsort((draws, positions.ids))
        first = np.unique(positions.ids[order], return_index=True)[1]
        return np.asarray(order[first])

    def predict_set(
        self,
        logits: Any,
        *,
        coverage: float = 0.9,
        delta: float | None = None,
        by: Literal["all", "new group"] = "all",
        kind: SetKind = "smallest",
        penalty: float = 0.0,
        free_ranks: int = 0,
        allow_empty: bool = False,
        mask: Any = None,
    ) -> Any:
        """The classes that each position may have; `members` has the shape of the
        logits.

        Of a new item at most a share 1 - coverage of the positions misses its true
        class, on average over items (conformal risk control): a position that is drawn
        at random from one is covered as often. Positions where the mask is False have
        empty sets. `kind`, `penalty`, `free_ranks` and `allow_empty` are those of
        `Calibrator.predict_set`. After `certify` with `groups`, `by="new group"` goes
        with or without `delta`: the coverage then holds in a group that was never seen,
        counting one position of each item. Of batches it is an iterator of
        `PredictionSets`.
        """
        predictor = self._certified("predict_set").predictor_
        check_choice("by", by, Literal["all", "new group"])
        if delta is not None and by == "all":
            raise ValueError(
                f'`delta` goes with by="new group" here; got {delta!r}. Positions of an '
                "item share its weight: leave it out, for a guarantee on average."
            )
        options = SetOptions(
            coverage=coverage,
            delta=delta,
            by=by,
            kind=kind,
            penalty=penalty,
            free_ranks=free_ranks,
            allow_empty=allow_empty,
        )
        if by == "new group":
            predictor = predictor.for_new_groups()
        certified = predictor.certified_sets(options)
        share = f"Coverage of the positions of a new item at least {percent(coverage)}"
        message = certified.guarantee(share, "items")
        sets = replace(predictor, rule=certified.rule(predictor.rule))

        def predict(maps: Maps) -> PredictionSets:
            members = maps.output(sets, "members", False)
            return PredictionSets(
                members=members,
                sizes=members.sum(maps.axis),
                options=options,
                certified_on=certified.certified_on,
                guarantee=message,
                thresholds=certified.probability_thresholds(),
                classes=predictor.schema.class_names or None,
            )

        return self._each(logits, mask, predict)

    def predict_or_abstain(
        self,
        logits: Any,
        *,
        risk: float = 0.05,
        delta: float = 0.1,
        by: Literal["all", "new group"] = "all",
        mask: Any = None,
    ) -> Any:
        """Labels, and which of them to accept so that at most a fraction `risk` is
        wrong.

        The fraction is that of a position drawn at random from a new item, given that
        it is accepted. Arrays of the result have the shape of the positions; nothing is
        accepted, the label is -1 and the confidence NaN where the mask is False. With
        `by="new group"` it is guaranteed for a group that was never seen, drawn like
        the `groups` of `certify`. It is a `SelectivePrediction`, or of batches an
        iterator of them.
        """
        predictor = self._certified("predict_or_abstain").predictor_
        check_choice("by", by, Literal["all", "new group"])
        options = AbstentionOptions(risk, delta, by)
        proven = predictor.abstention_thresholds(options)
        fills = {"labels": -1, "confidence": np.nan, "accepted": False}

        def accept(rows: Any) -> dict[str, Array]:
            selected = predictor.predict_or_abstain(rows, options)
            return {
                "labels": selected.labels,
                "confidence": selected.confidence,
                "accepted": selected.accepted,
            }

        def predict(maps: Maps) -> SelectivePrediction:
            return SelectivePrediction.of(proven, **maps.predict(accept, fills))

        return self._each(logits, mask, predict)

    def control_risk(
        self,
        logits: Any,
        labels: Any,
        sample_weight: Any = None,
        *,
        loss: Loss | Mapping[str, Loss],
        risk: float | Mapping[str, float],
        delta: float | None = None,
        thresholds: Any = None,
        by: Literal["all", "group", "new group"] = "all",
        groups: Any = None,
    ) -> RiskControl:
        """The last threshold at which the mean of a loss of your own is proven to be
        small.

        `loss`, `risk`, `delta` and `thresholds` are those of `Calibrator.control_risk`,
        with one item as one example: `loss(proba, labels, threshold)` gets arrays in
        memory, probabilities in the shape of the logits and labels, and gives a number
        for each item (n,), such as the share of a mask that is missed. `sample_weight`
        (n,) is of items, and so are `groups` (n,): with `by="group"` each of them gets
        a threshold too, with `by="new group"` the threshold is for a group that was
        never seen, drawn like these.
        """
        proba = to_host(self.predict_proba(logits))
        truth = to_host(labels)
        for _ in self.read_positions((logits, labels, None, None)):
            pass  # labels are checked
        weights = as_weights(sample_weight, len(proba))
        options = RiskOptions(loss, risk, delta, thresholds)
        return control_risk(
            proba, truth, options, weights=weights, by=by, groups=groups
        )

    def draw_positions(
        self, logits: Any, labels: Any = None, *, mask: Any = None, per_item: int = 1
    ) -> tuple[Any, Any]:
        """Logits (rows, classes) and labels (rows,) of positions drawn at random from
        each item.

        One per item are as independent as the items are: a test set for everything that
        counts rows, such as `hokical.compare`; its methods can be fitted on more. Items
        in which no position counts are left out.

        >>> logits, labels = np.zeros((5, 8, 8, 3)), np.zeros((5, 8, 8), int)
        >>> rows, truth = Dense().draw_positions(logits, labels)
        >>> rows.shape, truth.shape
        ((5, 3), (5,))
        """
        rows = self._flatten((logits, labels, None, mask), per_item)
        return rows.scores, rows.labels

    def save(
        self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None
    ) -> None:
        """Write the fitted calibrator and the options of this wrapper to a JSON file,
        atomically.

        `Dense.load` gives both back. For `hokical.load`, the command line or an export
        it is an ordinary calibrator's file. `metadata` is as in `Calibrator.save`.
        """
        check_mapping("metadata", metadata)
        ignored = self.check_options() or None
        calibrator = deepcopy(self.fitted_calibrator())
        calibrator.forget_examples()
        options = {**self.get_params(deep=False), "ignore_label": ignored}
        del options["calibrator"]
        calibrator.save(path, metadata={**(metadata or {}), "dense": options})

    @classmethod
    def load(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """A fitted `Dense` from a file; options given here replace those in the
        file.
        """
        calibrator = load(path)
        if not isinstance(calibrator, Calibrator):
            raise CalibratorFileError(
                f"{path} must hold a calibrator of logits; got a "
                f"{type(calibrator).__name__}. Read it with `hokical.load`."
            )
        try:
            dense = cls(calibrator, **calibrator.metadata_.get("dense", {}))
            dense.check_options()
        except (TypeError, ValueError) as error:
            raise CalibratorFileError(
                f"{path} has unusable options of Dense: {error}"
            ) from error
        dense.set_params(**options)
        return dense

    @property
    def n_classes_(self) -> int:
        return self.fitted_calibrator().n_classes_

    def __sklearn_is_fitted__(self) -> bool:
        if "calibrator_" in vars(self):
            return True
        return isinstance(self.calibrator, Calibrator) and self.calibrator.is_fitted

    def fitted_calibrator(self) -> Calibrator:
        """The calibrator of the last fit, or the one given if that is fitted
        already.
        """
        calibrator = vars(self).get("calibrator_", self.calibrator)
        if not isinstance(calibrator, Calibrator) or not calibrator.is_fitted:
            raise sklearn_class(NotFittedError)(
                "This Dense instance is not fitted yet. Call `fit` first, or give a "
                "fitted calibrator."
            )
        refuse_groups(calibrator.schema_)
        return calibrator

    def _certified(self, name: str) -> Calibrator:
        calibrator = self.fitted_calibrator()
        if calibrator.predictor_.held_out is None:
            raise ValueError(
                f"`{name}` needs certified items. Call `certify(logits, labels)` "
                "first, with items that nothing was fitted on."
            )
        return calibrator

    def check_options(self) -> tuple[int, ...]:
        """The labels that are ignored; raise for invalid parameters."""
        # The axes of any array.
        check_count("class_axis", self.class_axis, least=-64, most=63)
        if self.max_positions_per_item is not None:
            check_count("max_positions_per_item", self.max_positions_per_item)
        check_count("random_state", self.random_state, least=0)
        labels = np.atleast_1d([] if self.ignore_label is None else self.ignore_label)
        if labels.size and labels.dtype.kind not in "iu":
            raise TypeError(
                f"`ignore_label` must be integers or None; got {self.ignore_label!r}."
            )
        return tuple(labels.tolist())

    def read_positions(
        self, inputs: Sequence[Any], max_per_item: int | None = None
    ) -> Iterator[Rows]:
        """The positions that count of (logits, labels, weights, mask), slab after
        slab.
        """
        ignored = self.check_options()
        n_rows = 0
        for maps in self._open(inputs, ignored):
            if maps.labels is None:
                raise ValueError(
                    "`labels` must be given: the true class of each position, of shape "
                    f"{maps.positions}, or in each batch."
                )
            for rows in maps.read(max_per_item, self.random_state):
                n_rows += rows.n_rows
                yield rows
        if not n_rows:
            raise ValueError(
                "at least one position must count; got none. See `mask`, True where "
                "one counts, and `ignore_label`."
            )

    def source(self, inputs: Sequence[Any], max_per_item: int | None = None) -> Any:
        """Chunks for streams: of an iterator once, of arrays and loaders as often as
        needed.
        """

        def chunks() -> Iterator[tuple[Any, ...]]:
            for rows in self.read_positions(inputs, max_per_item):
                yield rows.scores, rows.labels, rows.weights

        return chunks() if isinstance(inputs[0], Iterator) else chunks

    def _flatten(self, inputs: Sequence[Any], max_per_item: int | None = None) -> Rows:
        """All positions that count, or at most `max_per_item` of each item, on the host."""
        rows = streams.join_chunks(list(self.read_positions(inputs, max_per_item)))
        return replace(rows, scores=to_host(rows.scores))

    def _open(
        self, inputs: Sequence[Any], ignored: tuple[int, ...] = ()
    ) -> Iterator[Maps]:
        """The maps of logits, labels, weights and mask, or of batches in place of
        the logits.
        """
        batches: Iterable[Sequence[Any]] = [inputs]
        if holds_batches(inputs[0]):
            if any(array is not None for array in inputs[1:]):
                raise TypeError(
                    "labels, masks and weights come with the batches: give them as "
                    "(logits, labels, sample_weight) or a mapping."
                )
            batch_source = iterate(inputs[0], "logits")
            batches = (
                streams.split_parts(batch, _BATCH_NAMES, _RULE)
                for batch in batch_source
            )
        first_item = 0
        for batch in batches:
            maps = Maps(batch, self.class_axis, ignored, first_item)
            yield maps
            first_item += maps.positions[0]

    def _predict(self, what: Output, logits: Any, mask: object, fill: float) -> Any:
        predictor = self.fitted_calibrator().predictor_
        return self._each(logits, mask, lambda maps: maps.output(predictor, what, fill))

    def _each(self, logits: Any, mask: object, work: Callable[[Maps], Any]) -> Any:
        """`work` of an array; of batches, an iterator of what it makes of each."""
        self.check_options()
        n_classes = self.n_classes_

        def check_and_work(maps: Maps) -> Any:
            if maps.n_classes != n_classes:
                raise ValueError(
                    f"`logits` must have the {n_classes} classes of the fit on axis "
                    f"{maps.axis}; got shape {maps.shape}. {_GIVE_AXIS}."
                )
            return work(maps)

        results = map(check_and_work, self._open((logits, None, None, mask)))
        return results if holds_batches(logits) else next(results)

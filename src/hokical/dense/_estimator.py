"""`Dense`: any calibrator, for outputs with a prediction per pixel or token."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.storage import CalibratorFileError
from hokical._core.warn import NotFittedError, sklearn_class
from hokical.calibrators._calibrator import Calibrator, with_sets
from hokical.calibrators._catalog import new_calibrator
from hokical.calibrators._checks import refuse_groups
from hokical.calibrators._estimator import Estimator
from hokical.calibrators._loading import load_calibrator
from hokical.dense import _batches as batches
from hokical.dense._items import note_positions
from hokical.dense._positions import DenseBatch, DenseOptions, check_options
from hokical.dense._predicting import AnswerKind, map_batches, predict_batch, select_batch
from hokical.guarantees._sets import PredictionSets
from hokical.io._sources import ChunkSource
from hokical.metrics import brier
from hokical.rules._predicting import Output
from hokical.rules._sets import Kind
from hokical.streams._partition import StreamedPartition

#: Positions of each item that sets are certified with.
_PER_ITEM = 64


class Dense(Estimator):
    """Calibrate outputs that have a prediction at every position: segmentation maps, tokens.

    Logits have any shape, with the classes on one of the axes; labels, masks and confidences have
    the same shape without it. One calibrator is fitted on all positions that count. Arrays are read
    in slabs of about 30 MB, so the memory of a fit does not grow with the number of items (for
    methods that stream; others gather the positions that count).

    Parameters
    ----------
    calibrator : Calibrator or str
        What to fit: a calibrator, which stays as it is, or a name in the registry. One that is
        fitted already predicts without a `fit`.
    class_axis : int
        The axis of the classes: -1 for (n, h, w, classes), 1 for (n, classes, h, w).
    ignore_label : int or several, optional
        Positions with such a label do not count: 255 in many segmentation sets, -100 for tokens.
    max_positions_per_item : int, optional
        Fit on at most this many positions of each item (an entry of the first axis), chosen at
        random from those that count, by the seed `random_state` and the item's number alone. Some
        hundred pixels hold most of what an image has to say.

    Attributes
    ----------
    calibrator_ : the fitted calibrator, for logits (positions, classes) of `n_classes_`
    n_positions_, accuracy_ : of the fit and of the classifier's labels there; None with weights

    Notes
    -----
    Positions of an item are not independent: neighbours are right and wrong together. A fit does
    not mind, but whatever counts examples does: so `calibrator_` does not keep the positions of the
    fit as evidence, bounds and intervals of `hokical.evaluate` are by item, and `certify` counts
    one position per item.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical import Hoki
    >>> from hokical.dense import Dense
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(4, size=(6, 20, 20))
    >>> logits = 3 * (rng.normal(size=(6, 4, 20, 20)) + 2 * np.moveaxis(np.eye(4)[labels], 3, 1))
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
        self, logits: Any, labels: Any = None, *, mask: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn from the positions that count.

        `logits` (n, ..., classes), or with the classes on `class_axis`, are a NumPy, memory-mapped,
        Zarr or HDF5 array or a torch tensor, in any memory order; or batches: a list, a loader, a
        function that returns an iterator, or an iterator for methods that need one pass. A batch is
        (logits, labels), (logits, labels, sample_weight), or a mapping with these names and `mask`;
        batches may differ in shape.

        `labels` (n, ...) are the true classes; `mask` (n, ...) is True where a position counts, and
        logits elsewhere may be anything; `sample_weight` (n, ...) or (n,) says how much each
        position counts, or each position of an item. Batches bring their own.
        """
        calibrator = new_calibrator(self.calibrator, argument="calibrator")
        source = self._source(logits, labels, mask, sample_weight, self.max_positions_per_item)
        calibrator._fit_partition(StreamedPartition(source))
        table = calibrator.kept_.fit_scores
        self.n_positions_ = None if table is None else table.total
        self.accuracy_ = None if table is None else table.accuracy
        self.calibrator_: Calibrator = batches.without_witnesses(calibrator)
        return self

    def predict(self, logits: Any, *, mask: Any = None, fill: int = -1) -> Any:
        """Labels (n, ...), int64; `fill` where the mask is False.

        Of batches, this and the other predictions give an iterator of results, one per batch.
        """
        return self._predict("labels", logits, mask, fill, whole=True)

    def predict_confidence(self, logits: Any, *, mask: Any = None, fill: float = np.nan) -> Any:
        """The probability (n, ...) that each label is right; `fill` where the mask is False.

        Positions whose label is ignored in a fit are predicted like all others: labels are not
        known here.
        """
        return self._predict("confidence", logits, mask, fill)

    def predict_proba(self, logits: Any, *, mask: Any = None, fill: float = np.nan) -> Any:
        """Probabilities in the shape of the logits; they sum to 1 along `class_axis`."""
        return self._predict("proba", logits, mask, fill, of_classes=True)

    def score(
        self, logits: Any, labels: Any = None, *, mask: Any = None, sample_weight: Any = None
    ) -> float:
        """Minus the Brier score of the confidence: larger is better, 0 is perfect."""
        calibrator = self.fitted_calibrator()
        source = self._source(logits, labels, mask, sample_weight, None)

        def chunks() -> Iterator[tuple[Any, ...]]:
            for chunk in source.chunks():
                confidence = to_host(calibrator.predict_confidence(chunk.logits))
                right = to_host(calibrator.predict(chunk.logits)) == chunk.labels
                yield confidence, right, chunk.weights

        return -brier(chunks())

    def certify(self, logits: Any, labels: Any = None, *, mask: Any = None) -> Self:
        """Count held-out positions, so that `predict_or_abstain` and `predict_set` can promise.

        The items are those that neither the classifier nor this calibrator was fitted on. The
        calibrator given at the start stays as it is; `calibrator_` is a copy that has counted: one
        position per item, and for sets up to 64 (one of an iterator's items).
        """
        self._source(logits, labels, mask, None, 1)  # checks that there are labels
        certified = batches.without_witnesses(self.fitted_calibrator())
        certified.certify(*self.draw_positions(logits, labels, mask=mask))
        options = self._options(_PER_ITEM)
        items = list(batches.item_batches(logits, labels, mask, None, options))
        if items:
            noted, hashes = note_positions(certified.rule_, items)
            certified._refuse_rows_of_fit(hashes)
            kept = replace(certified.kept_, held_out_conformity=noted)
            certified.kept_ = kept
        self.calibrator_ = certified
        return self

    def predict_set(
        self,
        logits: Any,
        *,
        coverage: float = 0.9,
        kind: Kind = "smallest",
        mask: Any = None,
        penalty: float = 0.0,
        free_ranks: int = 0,
        allow_empty: bool = False,
    ) -> Any:
        """The classes that each position may have; `members` has the shape of the logits.

        Of a new item at most a share 1 - coverage of the positions misses its true class, on
        average over items (conformal risk control): so often, too, is a position covered that is
        drawn at random from one. Positions where the mask is False have empty sets. `penalty`,
        `free_ranks` and `allow_empty` are as in `Calibrator.predict_set`. Of batches it is an
        iterator of `PredictionSets`.
        """
        calibrator = self.fitted_calibrator()
        if calibrator.kept_.held_out_conformity is None:
            raise ValueError(
                "`predict_set` has no items to go by. Call `certify(logits, labels)` first, with "
                "items that nothing was fitted on."
            )
        asked: dict[str, Any] = {"coverage": coverage, "kind": kind, "penalty": penalty}
        asked |= {"free_ranks": free_ranks, "allow_empty": allow_empty}
        promise = calibrator.predict_set(np.zeros((1, calibrator.n_classes_)), **asked)
        words = (
            f"Of a new item, at least {coverage:.4g} of the positions have their true class in the "
            "set"
        )
        promise = replace(promise, guarantee=calibrator._describe_sets(words, **asked))
        judge = with_sets(calibrator, **asked)

        def one(batch: DenseBatch) -> PredictionSets:
            answer = AnswerKind(False, of_classes=True)
            found = predict_batch(batch, lambda rows: [judge._output("members", rows)], answer)[0]
            sizes = found.sum(batch.layout.axis)
            return replace(promise, members=found, sizes=sizes)

        return self._each(logits, mask, one)

    def draw_positions(
        self,
        logits: Any,
        labels: Any = None,
        *,
        mask: Any = None,
        per_item: int = 1,
        random_state: int | None = None,
    ) -> tuple[Any, Any]:
        """Logits (rows, classes) and labels (rows,) of positions drawn at random from each item.

        One per item are as independent as the items are: a test set for everything that counts
        rows, such as `hokical.compare`; its methods can be fitted on more. Items in which no
        position counts are left out. Without labels the second is None.

        >>> logits, labels = np.zeros((5, 8, 8, 3)), np.zeros((5, 8, 8), int)
        >>> rows, truth = Dense().draw_positions(logits, labels)
        >>> rows.shape, truth.shape
        ((5, 3), (5,))
        """
        options = self._options(per_item, random_state)
        chunks = list(batches.make_source(logits, labels, mask, None, options))
        truth = [chunk.labels for chunk in chunks if chunk.labels is not None]
        rows = np.concatenate([to_host(chunk.logits) for chunk in chunks])
        return rows, np.concatenate(truth) if truth else None

    def predict_or_abstain(
        self, logits: Any, *, risk: float = 0.05, delta: float = 0.1, mask: Any = None
    ) -> Any:
        """Labels, and which of them are sure enough to be wrong at most at the rate `risk`.

        The rate is that of a position drawn at random from a new item, given that it is accepted.
        Arrays of the result have the shape of the positions; nothing is accepted, the label is -1
        and the confidence NaN where the mask is False. It is a `SelectivePrediction`, or of batches
        an iterator of them.
        """
        calibrator = self.fitted_calibrator()
        if calibrator.kept_.held_out_scores is None:
            raise ValueError(
                "`predict_or_abstain` has no positions to go by: those of the fit are not "
                "independent of their neighbours, and prove nothing. Call `certify(logits, "
                "labels)` first, with items that nothing was fitted on."
            )
        rule = partial(calibrator.predict_or_abstain, risk=risk, delta=delta)
        promise = rule(np.zeros((1, calibrator.n_classes_)))  # the same whatever the logits
        return self._each(logits, mask, lambda batch: select_batch(batch, rule, promise))

    def save(self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None) -> None:
        """Write the fitted calibrator and the options of this wrapper to a JSON file, atomically.

        `Dense.load` gives both back. For `hokical.load`, the command line or an export it is an
        ordinary calibrator's file. `metadata` is as in `Calibrator.save`.
        """
        options = self._options(self.max_positions_per_item)
        stored = {
            "class_axis": options.class_axis,
            "ignore_label": options.ignored or None,
            "max_positions_per_item": options.per_item,
            "random_state": options.seed,
        }
        about = {**(metadata or {}), "dense": stored}
        batches.without_witnesses(self.fitted_calibrator()).save(path, metadata=about)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """A fitted `Dense` from a file; options given here replace those in the file."""
        calibrator = load_calibrator(path)
        try:
            dense = cls(calibrator, **calibrator.metadata.get("dense", {}))
            dense._options(dense.max_positions_per_item)
        except (TypeError, ValueError) as error:
            raise CalibratorFileError(f"{path} has unusable options of Dense: {error}") from error
        dense.set_params(**options)
        return dense

    @property
    def n_classes_(self) -> int:
        return self.fitted_calibrator().n_classes_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrator_") or hasattr(self.calibrator, "rule_")

    def fitted_calibrator(self) -> Calibrator:
        """The calibrator of the last fit, or the one given if that is fitted already."""
        found = getattr(self, "calibrator_", self.calibrator)
        if not isinstance(found, Calibrator) or not hasattr(found, "rule_"):
            raise sklearn_class(NotFittedError)(
                f"This {type(self).__name__} instance is not fitted yet. Call `fit` first, or give "
                "a fitted calibrator."
            )
        refuse_groups(found.rule_)
        return found

    def _options(self, per_item: int | None = None, seed: int | None = None) -> DenseOptions:
        seed = self.random_state if seed is None else seed
        return check_options(self.class_axis, self.ignore_label, per_item, seed)

    def _source(
        self, logits: Any, labels: Any, mask: Any, weights: Any, per_item: int | None
    ) -> ChunkSource:
        return batches.check_labelled(
            batches.make_source(logits, labels, mask, weights, self._options(per_item))
        )

    def _predict(self, what: Output, logits: Any, mask: Any, fill: Any, **kind: bool) -> Any:
        calibrator, asked = self.fitted_calibrator(), AnswerKind(fill, **kind)

        def predict_one(batch: DenseBatch) -> Any:
            return predict_batch(batch, lambda rows: [calibrator._output(what, rows)], asked)[0]

        return self._each(logits, mask, predict_one)

    def _each(self, logits: Any, mask: Any, work: Callable[[DenseBatch], Any]) -> Any:
        return map_batches(work, logits, mask, self._options(), self.n_classes_)


def labelled_positions(
    cal: Dense, given: tuple[Any, Any, Any, Any]
) -> tuple[ChunkSource, Iterable[DenseBatch]]:
    """All positions of logits, labels, mask and weights that count, and the batches of items.

    There are none of an iterator, whose items come once, and of rows.
    """
    return cal._source(*given, None), batches.item_batches(*given, cal._options(None))

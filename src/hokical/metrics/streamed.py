"""How each metric is computed from chunks and from Dask arrays: by sums that add up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from hokical.core.arrays import backend_of
from hokical.core.bins import check_count
from hokical.core.reading import to_numpy
from hokical.metrics.binned import classwise_ece, debiased_ece, ece, mce
from hokical.metrics.binned_sums import debiased_root, debiased_square
from hokical.metrics.checks import check_clip, check_norm
from hokical.metrics.chunked import READERS, is_lazy
from hokical.metrics.proper import (
    brier,
    brier_full,
    brier_split,
    log_loss,
    log_loss_full,
    refinement,
    sharpness,
    split_sums,
)
from hokical.metrics.ranking import aurc, auroc, risk_coverage_curve, selective_risk
from hokical.metrics.smooth import ks_error, smooth_ece
from hokical.metrics.summaries import Summary, summarize_sums, summary
from hokical.metrics.sums import FullSums, MetricSums

Metric = Callable[..., Any]
Options = dict[str, Any]

#: The options that sums depend on.
_SUM_OPTIONS: dict[str, Callable[[Any], Any]] = {"n_bins": check_count, "clip": check_clip}


def sum_chunks(make: Metric, data: Any, others: tuple[Any, ...], options: Options) -> Any:
    """The sums `make(...)` of all chunks; of Dask arrays, computed where their blocks are."""
    given = {name: check(options[name]) for name, check in _SUM_OPTIONS.items() if name in options}
    make_if_any = partial(sums_if_any, partial(make, **given))
    backend = backend_of(data)
    if backend is not None and backend.is_lazy:
        found = backend.reduce_rows(make_if_any, plus, (data, *others))
    else:
        if any(other is not None for other in others):
            raise TypeError("chunks hold all that a metric needs; pass nothing beside them.")
        chunks = data() if callable(data) else data
        found = reduce(plus, (make_if_any(*_check_chunk(chunk)) for chunk in chunks), None)
    if found is None:
        raise ValueError("there must be at least one chunk with rows of weight above 0; got none.")
    return found


def sums_if_any(make: Metric, first: Any, second: Any, weight: Any = None) -> Any:
    """The sums of a chunk, or None if it has no rows of weight above 0."""
    if np.shape(first)[:1] == np.shape(second)[:1] == (0,):
        return None
    if weight is None:
        return make(first, second)
    weights = to_numpy(weight, "sample_weight")
    if weights.any():
        return make(first, second, weights)
    make(first, second, np.ones(weights.shape))  # still raises for bad rows
    return None


def plus(sums: Any, others: Any) -> Any:
    """Sums of two chunks, either of which may be None."""
    return others if sums is None else sums if others is None else sums + others


def _check_chunk(chunk: Any) -> tuple[Any, ...]:
    if not isinstance(chunk, (tuple, list)) or len(chunk) not in (2, 3):
        raise TypeError(
            "a chunk must be (confidence, correct) or (confidence, correct, sample_weight), with "
            f"(proba, labels) for `_full` metrics; got {type(chunk).__name__}."
        )
    return tuple(chunk)


def _read_levels(metric: Metric, data: Any, others: tuple[Any, ...], options: Options) -> Any:
    """From counts at levels of confidence; see `levels.py`."""
    rows = sum_chunks(MetricSums.from_examples, data, others, options).rounded_examples()
    return metric(rows.confidence, rows.correct, sample_weight=rows.weight, **options)


def _read_exactly(
    metric: Metric, read: Metric, data: Any, others: tuple[Any, ...], options: Options
) -> Any:
    """From per-bin sums; equal-mass bins need the levels."""
    if options.get("bins", "width") != "width":
        return _read_levels(metric, data, others, options)
    sums = sum_chunks(partial(MetricSums.from_examples, levels=False), data, others, options)
    return read(sums, **_drop(options, "bins", *_SUM_OPTIONS))


def _read_sharpness(data: Any, others: tuple[Any, ...], options: Options) -> Any:
    """Chunks are those of other metrics; a Dask array comes without `correct`, so make one up."""
    columns = (data > 1.0, *others) if is_lazy(data) else others
    make = partial(MetricSums.from_examples, levels=False)
    return sum_chunks(make, data, columns, options).binned.sharpness()


def _read_full(read: Metric, data: Any, others: tuple[Any, ...], options: Options) -> Any:
    """From the sums of (proba, labels)."""
    sums = sum_chunks(FullSums.from_predictions, data, others, options)
    return read(sums, **_drop(options, *_SUM_OPTIONS))


def _read_summary(data: Any, others: tuple[Any, ...], options: Options) -> Summary:
    """Without intervals: resampling would need all rows."""
    if options.pop("n_resamples", 0) != 0:
        raise ValueError(
            "`n_resamples` must be 0 or left out for chunks, as intervals need all rows; the "
            "proven bounds are given."
        )
    beside = sorted(set(options) - {"n_bins", "coverage", "clip", "delta"})
    if beside:
        raise TypeError(
            f"`{beside[0]}` cannot be given with chunks of confidence: there are no intervals, and "
            "for `proba` see `hokical.streams.evaluate(..., full=True)`."
        )
    sums = sum_chunks(MetricSums.from_examples, data, others, options)
    return summarize_sums(sums, **_drop(options, "n_bins"))


def _drop(options: Options, *names: str) -> Options:
    return {name: value for name, value in options.items() if name not in names}


def _debiased_error(sums: MetricSums, squared: bool = False) -> float:
    estimate = debiased_square if squared else debiased_root
    return float(estimate(sums.binned.gap, sums.binned.weight, sums.binned.correct))


def _classwise_error(sums: FullSums, bins: str = "width", norm: float = 1) -> float:
    if bins != "width":
        raise ValueError(
            f'`bins` must be "width" for chunks, as equal-mass bins need all rows; got {bins!r}.'
        )
    return sums.classwise_ece(check_norm(norm))


_EXACT: dict[Metric, Metric] = {
    ece: lambda sums, norm=1: sums.binned.ece(norm=norm),
    mce: lambda sums: sums.binned.mce(),
    debiased_ece: _debiased_error,
    brier_split: lambda sums: split_sums(sums.binned),
    refinement: lambda sums: split_sums(sums.binned).refinement,
    brier: lambda sums: sums.binned.brier(),
    log_loss: MetricSums.log_loss,
}
_FULL: dict[Metric, Metric] = {
    brier_full: FullSums.brier,
    log_loss_full: FullSums.log_loss,
    classwise_ece: _classwise_error,
}
_ORDERED = (auroc, aurc, selective_risk, risk_coverage_curve, ks_error, smooth_ece)

READERS.update(
    {metric.__name__: partial(_read_exactly, metric, read) for metric, read in _EXACT.items()}
    | {metric.__name__: partial(_read_full, read) for metric, read in _FULL.items()}
    | {metric.__name__: partial(_read_levels, metric) for metric in _ORDERED}
    | {sharpness.__name__: _read_sharpness, summary.__name__: _read_summary}
)

"""How each metric is computed from chunks and from Dask arrays: by sums that add up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, cast

import numpy as np

from hokical.bins import check_count
from hokical.logits import to_numpy
from hokical.metrics.binned import BinnedSums, debiased_square
from hokical.metrics.checks import check_norm
from hokical.metrics.chunked import READERS, Reader, is_dask
from hokical.metrics.proper import check_clip, split_sums
from hokical.metrics.summaries import Summary, summarize_sums
from hokical.metrics.sums import FullSums, MetricSums


def summed(make: Callable[..., Any], data: Any, others: tuple[Any, ...] = ()) -> Any:
    """The sums `make(...)` of all chunks; of Dask arrays, computed where their blocks are."""
    make_if_any = partial(sums_if_any, make)
    if is_dask(data):
        from hokical.integrations.dask import reduce_arrays

        found = reduce_arrays(make_if_any, plus, (data, *others))
    else:
        if any(other is not None for other in others):
            raise TypeError("chunks hold all that a metric needs; give nothing beside them.")
        chunks = data() if callable(data) else data
        found = reduce(plus, (make_if_any(*_checked(chunk)) for chunk in chunks), None)
    if found is None:
        raise ValueError("there must be at least one chunk with rows that count; got none.")
    return found


def sums_if_any(make: Callable[..., Any], first: Any, second: Any, weight: Any = None) -> Any:
    """The sums of a chunk, or None if it has no rows, or none of a weight above 0."""
    if np.shape(first)[:1] == np.shape(second)[:1] == (0,):
        return None
    if weight is None:
        return make(first, second)
    weights = to_numpy(weight, "sample_weight")
    if weights.any():
        return make(first, second, weights)
    make(first, second, np.ones(weights.shape))  # refuses what arrays in memory would
    return None


def plus(sums: Any, others: Any) -> Any:
    """Sums of two chunks, either of which may be None."""
    return others if sums is None else sums if others is None else sums + others


def _checked(chunk: Any) -> tuple[Any, ...]:
    if not isinstance(chunk, (tuple, list)) or len(chunk) not in (2, 3):
        raise TypeError(
            "a chunk must be (confidence, correct) or (confidence, correct, sample_weight), with "
            f"(proba, labels) for `_full` metrics; got {type(chunk).__name__}."
        )
    return tuple(chunk)


def _sum_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that sums depend on, checked."""
    checks: dict[str, Callable[[Any], Any]] = {"n_bins": check_count, "clip": check_clip}
    return {name: check(options[name]) for name, check in checks.items() if name in options}


def _top(read: Callable[..., Any], *, levels: bool = False) -> Reader:
    """`read(metric, sums, **options)` from the sums of (confidence, correct)."""

    def reader(
        metric: Callable[..., Any], data: Any, others: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        make = partial(MetricSums.from_examples, levels=levels, **_sum_options(options))
        return read(metric, summed(make, data, others), **options)

    return reader


def _full(read: Callable[..., Any]) -> Reader:
    """`read(sums, **options)` from the sums of (proba, labels)."""

    def reader(
        metric: Callable[..., Any], data: Any, others: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        make = partial(FullSums.from_predictions, **_sum_options(options))
        return read(summed(make, data, others), **options)

    return reader


def _from_levels(metric: Callable[..., Any], sums: MetricSums, **options: Any) -> Any:
    """From counts at levels of confidence; see `levels.py`."""
    confidence, correct, weight = sums.rounded_examples()
    return metric(confidence, correct, sample_weight=weight, **options)


_by_levels = _top(_from_levels, levels=True)


def _binned(read: Callable[..., Any]) -> Reader:
    """Exact for bins of equal width; equal-mass bins are read from the levels."""

    def exact(
        metric: Any, sums: MetricSums, bins: str = "width", n_bins: int = 15, **options: Any
    ) -> Any:
        return read(sums.binned, **options)

    by_width = _top(exact)

    def either(
        metric: Callable[..., Any], data: Any, others: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        reader = by_width if options.get("bins", "width") == "width" else _by_levels
        return reader(metric, data, others, options)

    return either


def _sharpness(
    metric: Callable[..., Any], data: Any, others: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Chunks are those of the other metrics; beside a Dask array nothing need be right or wrong."""
    columns = (data > 1.0, *others) if is_dask(data) else others
    return _top(lambda _, sums: sums.binned.sharpness())(metric, data, columns, options)


def _debiased(sums: BinnedSums, squared: bool = False) -> float:
    square = debiased_square(sums.gap, sums.weight, sums.correct)
    return float(square) if squared else sums.debiased_ece()


def _classwise(sums: FullSums, *, bins: str = "width", norm: float = 1, n_bins: int = 15) -> float:
    if bins != "width":
        raise ValueError(
            f'`bins` must be "width" for chunks, as equal-mass bins need all rows; got {bins!r}.'
        )
    return sums.classwise_ece(check_norm(norm))


def _summary(
    metric: Callable[..., Any], data: Any, others: tuple[Any, ...], options: dict[str, Any]
) -> Summary:
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
    return cast(Summary, _top(_summarized, levels=True)(metric, data, others, options))


def _summarized(metric: Any, sums: MetricSums, n_bins: int = 15, **options: Any) -> Summary:
    return summarize_sums(sums, **options)


READERS.update(
    ece=_binned(lambda sums, norm=1: sums.ece(norm=norm)),
    mce=_binned(lambda sums: sums.mce()),
    debiased_ece=_binned(_debiased),
    brier_split=_binned(split_sums),
    refinement=_binned(lambda sums: split_sums(sums).refinement),
    brier=_top(lambda metric, sums: sums.binned.brier()),
    sharpness=_sharpness,
    log_loss=_top(lambda metric, sums, clip=0.0: sums.log_loss / sums.binned.total_weight),
    auroc=_by_levels,
    aurc=_by_levels,
    selective_risk=_by_levels,
    risk_coverage_curve=_by_levels,
    ks_error=_by_levels,
    smooth_ece=_by_levels,
    summary=_summary,
    brier_full=_full(lambda sums: sums.brier()),
    log_loss_full=_full(lambda sums, clip=0.0: sums.log_loss()),
    classwise_ece=_full(_classwise),
)

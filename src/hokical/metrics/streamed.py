"""How each metric is computed from chunks and from Dask arrays: by sums that add up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from operator import add
from typing import Any

from hokical.bins import check_count
from hokical.metrics.binned import BinnedSums, debiased_square
from hokical.metrics.checks import check_norm
from hokical.metrics.chunked import READERS, Reader, is_dask
from hokical.metrics.proper import check_clip, split_sums
from hokical.metrics.summaries import Summary, summarize_sums
from hokical.metrics.sums import FullSums, MetricSums


def summed(make: Callable[..., Any], data: Any, others: tuple[Any, ...] = ()) -> Any:
    """The sums `make(...)` of all chunks; of Dask arrays, computed where their blocks are."""
    if is_dask(data):
        from hokical.integrations.dask import reduce_arrays

        return reduce_arrays(make, add, (data, *others))
    if any(other is not None for other in others):
        raise TypeError("chunks hold all that a metric needs; give nothing beside them.")
    parts = (make(*_checked(chunk)) for chunk in data)
    first = next(parts, None)
    if first is None:
        raise ValueError("there must be at least one chunk; got none.")
    return reduce(add, parts, first)


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


def _top(read: Callable[..., Any]) -> Reader:
    """`read(metric, sums, **options)` from the sums of (confidence, correct)."""

    def reader(
        metric: Callable[..., Any], data: Any, others: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        make = partial(MetricSums.from_examples, **_sum_options(options))
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


def _by_levels(metric: Callable[..., Any], sums: MetricSums, **options: Any) -> Any:
    """From counts at levels of confidence; see `sums.py`."""
    confidence, correct, weight = sums.rounded_examples()
    return metric(confidence, correct, sample_weight=weight, **options)


def _binned(read: Callable[..., Any]) -> Reader:
    """Exact for bins of equal width; equal-mass bins are read from the levels."""

    def either(
        metric: Callable[..., Any],
        sums: MetricSums,
        *,
        bins: str = "width",
        n_bins: int = 15,
        **options: Any,
    ) -> Any:
        if bins == "width":
            return read(sums.binned, **options)
        return _by_levels(metric, sums, n_bins=n_bins, bins=bins, **options)

    return _top(either)


def _debiased(sums: BinnedSums, squared: bool = False) -> float:
    square = debiased_square(sums.gap, sums.weight, sums.correct)
    return float(square) if squared else sums.debiased_ece()


def _classwise(sums: FullSums, *, bins: str = "width", norm: float = 1, n_bins: int = 15) -> float:
    if bins != "width":
        raise ValueError(
            f'`bins` must be "width" for chunks, as equal-mass bins need all rows; got {bins!r}.'
        )
    return sums.classwise_ece(check_norm(norm))


def _summary(metric: Any, sums: MetricSums, n_bins: int = 15, **options: Any) -> Summary:
    """Without intervals: resampling would need all rows."""
    kept = {name: options[name] for name in ("coverage", "clip", "delta") if name in options}
    beside = sorted(set(options) - set(kept) - {"n_resamples", "seed", "level", "interval"})
    if beside:
        raise TypeError(
            f"`{beside[0]}` cannot be given with chunks of confidence; see "
            "`hokical.streams.evaluate(..., full=True)`."
        )
    return summarize_sums(sums, **kept)


READERS.update(
    ece=_binned(lambda sums, norm=1: sums.ece(norm=norm)),
    mce=_binned(lambda sums: sums.mce()),
    debiased_ece=_binned(_debiased),
    brier_split=_binned(split_sums),
    refinement=_binned(lambda sums: split_sums(sums).refinement),
    brier=_top(lambda metric, sums: sums.binned.brier()),
    sharpness=_top(lambda metric, sums: sums.binned.sharpness()),
    log_loss=_top(lambda metric, sums, clip=0.0: sums.log_loss / sums.binned.total_weight),
    auroc=_top(_by_levels),
    aurc=_top(_by_levels),
    selective_risk=_top(_by_levels),
    risk_coverage_curve=_top(_by_levels),
    ks_error=_top(_by_levels),
    smooth_ece=_top(_by_levels),
    summary=_top(_summary),
    brier_full=_full(lambda sums: sums.brier()),
    log_loss_full=_full(lambda sums, clip=0.0: sums.log_loss()),
    classwise_ece=_full(_classwise),
)

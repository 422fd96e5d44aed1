"""Fit ReCal in separate processes, in parallel with the training."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from hokical_paper.making.export import read_manifest
from hokical_paper.making.recal_run import add_recal, fit_recal, views_path
from hokical_paper.making.reporting import Reporter


class RecalPool:
    """Fits ReCal to exported pairs; only the process that owns the pool writes files.

    Parameters
    ----------
    out : folder with `suite/` and `views/`
    reporter : reports every fit
    workers : number of processes; 0 fits in this process
    """

    def __init__(self, out: Path, reporter: Reporter, workers: int = 0) -> None:
        self.out = out
        self.reporter = reporter
        self.failed: list[str] = []
        self._fits: dict[str, Future[dict[str, Any]]] = {}
        self._pool: ProcessPoolExecutor | None = None
        if workers:
            # A forked child would inherit the CUDA context, which it must not use.
            self._pool = ProcessPoolExecutor(
                workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_use_threads,
                initargs=(max(1, (os.cpu_count() or 1) // workers),),
            )

    def submit_missing(self, names: list[str]) -> None:
        """Fit those of the named pairs that have zoomed-out logits but no ReCal yet."""
        for entry in read_manifest(self.out / "suite")["pairs"]:
            name = entry["name"]
            is_missing = entry["recal"] is None
            if name in names and is_missing and views_path(self.out, name).exists():
                self.submit(name)

    def submit(self, name: str) -> None:
        """Fit a pair, unless it is being fitted."""
        if name in self._fits:
            return
        task = (self.out / "suite", views_path(self.out, name), name)
        if self._pool is not None:
            self._fits[name] = self._pool.submit(fit_recal, *task)
            return
        self._fits[name] = Future()
        try:
            self._fits[name].set_result(fit_recal(*task))
        except Exception as error:
            self._fits[name].set_exception(error)

    def collect(self, *, wait: bool = False) -> None:
        """Add finished fits to the suite; with `wait`, wait for all of them."""
        names = {fit: name for name, fit in self._fits.items()}
        for fit in (
            as_completed(names) if wait else [fit for fit in names if fit.done()]
        ):
            self._finish(names[fit], fit)

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _finish(self, name: str, fit: Future[dict[str, Any]]) -> None:
        try:
            result = fit.result()
            add_recal(self.out / "suite", name, result)
        except Exception as error:
            self.failed.append(name)
            self.reporter.note(f"{name}: ReCal failed, {type(error).__name__}: {error}")
        else:
            seconds = result["fit_seconds"]
            ending = result["ending"]
            self.reporter.note(f"{name}: ReCal {ending} in {seconds:.1f} s")
        del self._fits[name]


def _use_threads(count: int) -> None:
    os.environ["HOKICAL_NUM_THREADS"] = str(count)

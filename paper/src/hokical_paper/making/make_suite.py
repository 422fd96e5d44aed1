"""Train networks and write the logit suite: the commands `hokical paper train` and
`export`.

Finished pairs are skipped and interrupted ones continue from their last checkpoint, so
the same command can be run again at any time.
"""

from __future__ import annotations

import traceback
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from hokical.io import DataFileError
from hokical_paper.making.datasets import is_available, load_images
from hokical_paper.making.datasets.images import DataSet
from hokical_paper.making.datasets.synthetic import synthetic_images
from hokical_paper.making.export import find_entry
from hokical_paper.making.jobs import PairJob, Settings
from hokical_paper.making.lanes import run_in_lanes
from hokical_paper.making.recal_pool import RecalPool
from hokical_paper.making.recipes import Recipe
from hokical_paper.making.reporting import Reporter, make_reporter
from hokical_paper.making.training import Work


class SuiteMaker:
    """Makes pairs, each as soon as its data set has been read.

    Parameters
    ----------
    recipes : list of Recipe
        The pairs to make, in this order.
    data : Path or None
        Folder with the data sets; None for synthetic images.
    settings, reporter
    recal : RecalPool, optional
        Fits ReCal to the exported pairs.
    """

    def __init__(
        self,
        recipes: list[Recipe],
        data: Path | None,
        settings: Settings,
        reporter: Reporter,
        *,
        recal: RecalPool | None = None,
    ) -> None:
        self.data = data
        self.settings = settings
        self.reporter = reporter
        self.recal = recal
        self.failed: list[str] = []
        self._done = [recipe.name for recipe in recipes if self._is_done(recipe)]
        missing = [recipe for recipe in recipes if recipe.name not in self._done]
        self._waiting = [recipe for recipe in missing if self._has_data(recipe)]
        self._loads: dict[str, Future[DataSet]] = {}
        self._loader = ThreadPoolExecutor(1)

    def run(self, n_lanes: int = 1) -> list[str]:
        """Make all pairs; returns the names of those that failed."""
        if self.recal is not None:
            self.recal.submit_missing(self._done)
        try:
            run_in_lanes(
                self._next_job,
                n_lanes,
                torch.device(self.settings.device),
                every_round=self._collect_fits,
            )
            if self.recal is not None:
                self.recal.collect(wait=True)
                self.failed += self.recal.failed
        finally:
            self._loader.shutdown(cancel_futures=True)
            if self.recal is not None:
                self.recal.close()
        return self.failed

    def _collect_fits(self) -> None:
        """Store finished ReCal fits at once: the trainings may take hours."""
        if self.recal is not None:
            self.recal.collect()

    def _is_done(self, recipe: Recipe) -> bool:
        """Whether the suite has the pair, made with this recipe."""
        entry = (
            find_entry(self.settings.suite, recipe.name)
            if self.settings.export
            else None
        )
        if entry is None:
            return False
        files = [self.settings.suite / name for name in entry["files"]]
        done = is_made_by(entry, recipe) and all(path.is_file() for path in files)
        state = (
            "already in the suite" if done else "in the suite, but with another recipe"
        )
        self.reporter.note(f"{recipe.name}: {state}")
        return done

    def _has_data(self, recipe: Recipe) -> bool:
        if self.data is None or is_available(recipe.dataset, self.data):
            return True
        self.failed.append(recipe.name)
        self.reporter.note(
            f"{recipe.name}: skipped, no {recipe.dataset} in {self.data}"
        )
        return False

    def _next_job(self) -> Work | None:
        """The job of the first pair whose data has been read; None if there is none
        yet.
        """
        for recipe in self._waiting:
            if self._is_loaded(recipe.dataset):
                self._waiting.remove(recipe)
                return self._run_pair(recipe)
        if not self._waiting:
            raise StopIteration
        return None

    def _is_loaded(self, name: str) -> bool:
        if name not in self._loads:
            self._loads[name] = self._loader.submit(self._load, name)
        return self._loads[name].done()

    def _load(self, name: str) -> DataSet:
        if self.data is None:
            return synthetic_images(name, channels=1 if name == "mnist" else 3)
        return load_images(name, self.data)

    def _run_pair(self, recipe: Recipe) -> Work:
        """The job of a pair; an error in it does not stop the other pairs."""
        self.reporter.note(f"{recipe.name}: starts")
        try:
            data = self._loads[recipe.dataset].result()
            yield from PairJob(recipe, data, self.settings, self.reporter).run()
            if self.settings.export and self.recal is not None:
                self.recal.submit(recipe.name)
        except DataFileError as error:  # its message is sufficient
            self._fail(recipe, str(error))
        except Exception as error:
            where = traceback.format_exc(limit=-4)
            self._fail(recipe, f"{type(error).__name__}: {error}\n{where}")

    def _fail(self, recipe: Recipe, reason: str) -> None:
        self.failed.append(recipe.name)
        self.reporter.note(f"{recipe.name}: failed, {reason}")


def is_made_by(entry: dict[str, Any], recipe: Recipe) -> bool:
    """Whether a manifest's entry was made with this recipe: training, split and
    size.
    """
    training = entry.get("training") or {}
    split = entry.get("split") or {}
    return (
        all(training.get(key) == value for key, value in recipe.facts().items())
        and (split.get("val"), split.get("seed")) == (recipe.n_val, recipe.split_seed)
        and entry.get("quick", False) == recipe.small
    )


def make_suite(
    recipes: list[Recipe],
    data: Path | None,
    settings: Settings,
    *,
    n_lanes: int = 1,
    recal_workers: int | None = 0,
    reporter: Reporter | None = None,
) -> list[str]:
    """Make the pairs; returns the names of those that failed.

    `data` must be None for small recipes, and only for them. `recal_workers` processes
    fit ReCal in parallel; 0 fits it between trainings, None skips it.
    """
    mixed = [recipe.name for recipe in recipes if recipe.small != (data is None)]
    if mixed:
        raise ValueError(
            "`recipes` must be small for synthetic images (`data` None) and full for "
            f"real images; got {mixed[0]} with data {data}. Use `make_quick(recipe)` "
            "for a small one."
        )
    reporter = reporter or make_reporter(settings.out / "make_suite.log")
    recal = None
    if recal_workers is not None:
        recal = RecalPool(settings.out, reporter, recal_workers)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *rest: reporter.note(
            f"Warning: {message}"
        )
        try:
            return SuiteMaker(recipes, data, settings, reporter, recal=recal).run(
                n_lanes
            )
        finally:
            reporter.close()

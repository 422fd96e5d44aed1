"""Train pairs and write the logit suite: what `hokical paper train` and `export` do.

Pairs that are done are skipped, begun ones go on from their last checkpoint, so the same work may
be started again at any time.
"""

from __future__ import annotations

import traceback
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from hokical.files.errors import DataFileError
from hokical.paper.making.datasets import available, load_images
from hokical.paper.making.datasets.images import DataSet
from hokical.paper.making.datasets.synthetic import synthetic_images
from hokical.paper.making.export import find_entry
from hokical.paper.making.jobs import PairJob, Settings
from hokical.paper.making.lanes import run_in_lanes
from hokical.paper.making.recal_pool import RecalPool
from hokical.paper.making.recipes import Recipe
from hokical.paper.making.reporting import Reporter, make_reporter
from hokical.paper.making.training import Work


class SuiteMaker:
    """Gives out the work on pairs as their data is read.

    Parameters
    ----------
    recipes : list of Recipe
        The pairs to make, in this order.
    data : Path or None
        Folder with the data sets; None for small synthetic ones.
    settings, reporter
    recal : RecalPool, optional
        Where to fit ReCal to the pairs that were exported.
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
        self.data, self.settings, self.reporter, self.recal = data, settings, reporter, recal
        self.failed: list[str] = []
        self._done = [recipe.name for recipe in recipes if self._is_done(recipe)]
        others = [recipe for recipe in recipes if recipe.name not in self._done]
        self._waiting = [recipe for recipe in others if self._has_data(recipe)]
        self._loads: dict[str, Future[DataSet]] = {}
        self._loader = ThreadPoolExecutor(1)

    def run(self, n_lanes: int = 1) -> list[str]:
        """Do all of it, and give the names of the pairs that could not be made."""
        if self.recal is not None:
            self.recal.submit_missing(self._done)
        try:
            run_in_lanes(
                self._next_job, n_lanes, torch.device(self.settings.device),
                every_round=self._keep_fits,
            )  # fmt: skip
            if self.recal is not None:
                self.recal.collect(wait=True)
                self.failed += self.recal.failed
        finally:
            self._loader.shutdown(cancel_futures=True)
            if self.recal is not None:
                self.recal.close()
        return self.failed

    def _keep_fits(self) -> None:
        """ReCal fits go into the suite as soon as they are done: trainings may go on for hours."""
        if self.recal is not None:
            self.recal.collect()

    def _is_done(self, recipe: Recipe) -> bool:
        """Whether the suite has the pair as this recipe makes it, and not as another did."""
        entry = find_entry(self.settings.suite, recipe.name) if self.settings.export else None
        if entry is None:
            return False
        files = [self.settings.suite / name for name in entry["files"]]
        done = is_made_by(entry, recipe) and all(path.is_file() for path in files)
        state = "is in the suite already" if done else "the one in the suite was made otherwise"
        self.reporter.note(f"{recipe.name}: {state}")
        return done

    def _has_data(self, recipe: Recipe) -> bool:
        if self.data is None or available(recipe.dataset, self.data):
            return True
        self.failed.append(recipe.name)
        self.reporter.note(f"{recipe.name}: left out, no {recipe.dataset} in {self.data}")
        return False

    def _next_job(self) -> Work | None:
        """The work on the first pair whose data is read; None while all are being read."""
        for recipe in self._waiting:
            if self._is_loaded(recipe.dataset):
                self._waiting.remove(recipe)
                return self._guarded(recipe)
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

    def _guarded(self, recipe: Recipe) -> Work:
        """The work on a pair; what goes wrong in it stops no other pair."""
        self.reporter.note(f"{recipe.name}: begins")
        try:
            data = self._loads[recipe.dataset].result()
            yield from PairJob(recipe, data, self.settings, self.reporter).run()
            if self.settings.export and self.recal is not None:
                self.recal.submit(recipe.name)
        except DataFileError as error:  # says all there is to know in one line
            self._fail(recipe, str(error))
        except Exception as error:
            where = traceback.format_exc(limit=-4)
            self._fail(recipe, f"{type(error).__name__}: {error}\n{where}")

    def _fail(self, recipe: Recipe, reason: str) -> None:
        self.failed.append(recipe.name)
        self.reporter.note(f"{recipe.name}: failed, {reason}")


def is_made_by(entry: dict[str, Any], recipe: Recipe) -> bool:
    """Whether a manifest's entry has the training, the split and the size of this recipe."""
    training, split = entry.get("training") or {}, entry.get("split") or {}
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
    """Make the pairs, and give the names of those that could not be made.

    `data` is None for small recipes and only for them. `recal_workers` processes fit ReCal
    meanwhile; 0 fits it between trainings, None leaves it out.
    """
    mixed = [recipe.name for recipe in recipes if recipe.small != (data is None)]
    if mixed:
        raise ValueError(
            f"`recipes` must be small ones for synthetic images (`data` None) and full ones for "
            f"real images; got {mixed[0]} with data {data}. `quick(recipe)` makes one small."
        )
    reporter = reporter or make_reporter(settings.out / "make_suite.log")
    recal = None
    if recal_workers is not None:
        recal = RecalPool(settings.out, reporter, recal_workers)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *rest: reporter.note(f"Warning: {message}")
        try:
            return SuiteMaker(recipes, data, settings, reporter, recal=recal).run(n_lanes)
        finally:
            reporter.close()

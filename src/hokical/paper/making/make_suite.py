"""Train every pair and write the logit suite: `python -m hokical.paper.making.make_suite`.

Needs NumPy and PyTorch; ReCal needs scikit-learn as well. Pairs that are done are skipped, begun
ones go on from their last checkpoint, so the same command may be started again at any time.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch

from hokical.paper.making.datasets import available, load_images
from hokical.paper.making.datasets.images import DataSet
from hokical.paper.making.datasets.synthetic import synthetic_images
from hokical.paper.making.export import find_entry
from hokical.paper.making.jobs import PairJob, Settings
from hokical.paper.making.lanes import run_in_lanes
from hokical.paper.making.recal_pool import RecalPool
from hokical.paper.making.recipes import Recipe, choose_recipes, quick
from hokical.paper.making.reporting import Reporter, make_reporter
from hokical.paper.making.training import Work


class SuiteMaker:
    """Gives out the work on pairs as their data arrives.

    Parameters
    ----------
    recipes : list of Recipe
        The pairs to make, in this order.
    data : Path or None
        Folder with the data sets; None for small synthetic ones.
    settings, reporter
    recal : RecalPool, optional
        Where to fit ReCal to the pairs that were exported.
    wait_seconds : float
        How long to wait for data sets that are still being copied into `data`. If not 0, a data set
        counts as complete once a file `<name>.complete` lies beside it.
    """

    def __init__(
        self,
        recipes: list[Recipe],
        data: Path | None,
        settings: Settings,
        reporter: Reporter,
        *,
        recal: RecalPool | None = None,
        wait_seconds: float = 0.0,
    ) -> None:
        self.data, self.settings, self.reporter, self.recal = data, settings, reporter, recal
        self.failed: list[str] = []
        self._waiting = [recipe for recipe in recipes if not self._is_done(recipe)]
        self._deadline = time.monotonic() + wait_seconds
        self._needs_marker = wait_seconds > 0.0
        self._loads: dict[str, Future[DataSet]] = {}
        self._loader = ThreadPoolExecutor(1)

    def run(self, n_lanes: int = 1) -> list[str]:
        """Do all of it, and give the names of the pairs that could not be made."""
        if self.recal is not None:
            self.recal.submit_missing()
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
        done = self.settings.export and find_entry(self.settings.suite, recipe.name) is not None
        if done:
            self.reporter.note(f"{recipe.name}: is in the suite already")
        return done

    def _next_job(self) -> Work | None:
        """The work on the first pair whose data is there; None while data is awaited."""
        for recipe in self._waiting:
            if self._is_loaded(recipe.dataset):
                self._waiting.remove(recipe)
                return self._guarded(recipe)
        is_loading = any(not load.done() for load in self._loads.values())
        if not is_loading and time.monotonic() > self._deadline:
            for recipe in self._waiting:
                self.reporter.note(f"{recipe.name}: left out, no data in {self.data}")
            self.failed += [recipe.name for recipe in self._waiting]
            raise StopIteration
        return None

    def _is_loaded(self, name: str) -> bool:
        if name not in self._loads and self._is_complete(name):
            self._loads[name] = self._loader.submit(self._load, name)
        return name in self._loads and self._loads[name].done()

    def _is_complete(self, name: str) -> bool:
        if self.data is None:
            return True
        marked = not self._needs_marker or (self.data / f"{name}.complete").exists()
        return marked and available(name, self.data)

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
        except Exception as error:
            self.failed.append(recipe.name)
            where = traceback.format_exc(limit=-4)
            self.reporter.note(f"{recipe.name}: failed, {type(error).__name__}: {error}\n{where}")


def make_suite(
    recipes: list[Recipe],
    data: Path | None,
    settings: Settings,
    *,
    n_lanes: int = 1,
    recal_workers: int | None = 0,
    wait_seconds: float = 0.0,
    reporter: Reporter | None = None,
) -> list[str]:
    """Make the pairs, and give the names of those that could not be made.

    `recal_workers` processes fit ReCal meanwhile; 0 fits it between trainings, None leaves it out.
    """
    reporter = reporter or make_reporter(settings.out / "make_suite.log")
    recal = None
    if recal_workers is not None:
        recal = RecalPool(settings.out, reporter, recal_workers)
    maker = SuiteMaker(recipes, data, settings, reporter, recal=recal, wait_seconds=wait_seconds)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *rest: reporter.note(f"Warning: {message}")
        try:
            return maker.run(n_lanes)
        finally:
            reporter.close()


def main(arguments: list[str] | None = None) -> int:
    """The program; its exit code is 1 if a pair could not be made."""
    given = _parser().parse_args(arguments)
    if given.quick == (given.data is not None):
        _parser().error("give either --data DIR or --quick")
    recipes = choose_recipes(given.pairs.split(",") if given.pairs else None)
    recipes = [recipe.but(epochs=given.epochs, batch_size=given.batch_size) for recipe in recipes]
    settings = Settings(
        out=given.out,
        device=given.device,
        use_graph=not given.no_graph,
        precision=torch.float32 if given.full_precision else None,
        checkpoint_every=given.checkpoint_every,
        evaluate_every=given.evaluate_every,
    )
    failed = make_suite(
        [quick(recipe) for recipe in recipes] if given.quick else recipes,
        given.data,
        settings,
        n_lanes=given.lanes,
        recal_workers=None if given.no_recal else given.recal_workers,
        wait_seconds=given.wait,
    )
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hokical.paper.making.make_suite")
    add, device = parser.add_argument, "cuda" if torch.cuda.is_available() else "cpu"
    add("--data", type=Path, help="folder with the data sets")
    add("--out", type=Path, required=True, help="folder for suite/, checkpoints/ and views/")
    add("--pairs", help="names such as cifar10_resnet110,mnist_lenet5; all by default")
    add("--quick", action="store_true", help="small networks on a small synthetic set")
    add("--device", default=device)
    add("--lanes", type=int, default=1, help="trainings side by side on one device")
    add("--wait", type=float, default=0.0, metavar="SECONDS",
        help="wait for data sets until DATA/<name>.complete is there")  # fmt: skip
    add("--epochs", type=int, help="instead of each recipe's own")
    add("--batch-size", type=int, help="instead of each recipe's own")
    add("--no-graph", action="store_true", help="do not record training steps as CUDA graphs")
    add("--full-precision", action="store_true", help="convolutions in float32")
    add("--checkpoint-every", type=int, default=20, metavar="EPOCHS")
    add("--evaluate-every", type=int, default=10, metavar="EPOCHS")
    add("--no-recal", action="store_true", help="keep the zoomed-out logits for later instead")
    add("--recal-workers", type=int, default=0, help="processes for ReCal; 0: in this one")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Training states as .npz files of plain numbers, written completely or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.io import DataFileError
from hokical_paper.core.files import replace_file, report_damage
from hokical_paper.making.recipes import Recipe

_ARRAYS = ("weights", "momentum", "statistics", "losses")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a training after some epochs.

    weights, momentum : (n,) float32, as `FlatWeights` has them
    statistics : (m,) float32, running means and variances of batch normalisation
    losses : (epochs,) float64, mean training loss of each epoch so far
    seconds : time spent training so far
    """

    weights: NDArray[np.float32]
    momentum: NDArray[np.float32]
    statistics: NDArray[np.float32]
    losses: NDArray[np.float64]
    seconds: float

    @property
    def epoch(self) -> int:
        """The number of finished epochs."""
        return int(self.losses.size)


def checkpoint_path(folder: Path, recipe: Recipe) -> Path:
    return folder / f"{recipe.name}.checkpoint.npz"


def save_checkpoint(path: Path, state: Checkpoint, recipe: Recipe) -> None:
    """Write a state together with its recipe."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {key: getattr(state, key) for key in _ARRAYS}
    with replace_file(path) as stream:
        np.savez(
            stream, recipe=json.dumps(asdict(recipe)), seconds=state.seconds, **arrays
        )


def load_checkpoint(path: Path, recipe: Recipe) -> Checkpoint | None:
    """The state saved for this recipe; None if there is no file."""
    if not path.exists():
        return None
    try:
        with report_damage(path, "a training checkpoint"):
            stored, state = _read(path)
    except DataFileError as error:
        raise DataFileError(
            path,
            "is a damaged or truncated checkpoint.",
            "Delete it to train from the start.",
        ) from error
    for key, wanted in asdict(recipe).items():
        if stored.get(key) != wanted:
            raise DataFileError(
                path,
                f"was written with {key} = {stored.get(key)!r}, but this training has "
                f"{wanted!r}.",
                "Delete the file to train from the start, or use the old value.",
            )
    return state


def _read(path: Path) -> tuple[dict[str, Any], Checkpoint]:
    """The recipe and the state in a file."""
    with open(path, "rb") as stream:
        file = np.load(stream)
        arrays = {key: file[key] for key in _ARRAYS}
        return json.loads(str(file["recipe"])), Checkpoint(
            **arrays, seconds=float(file["seconds"])
        )

"""`hokical select`: which noise suits a validation set."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from hokical.cli.data import load_examples
from hokical.cli.options import Json, Labels, Part, Seed, Split, Validation
from hokical.cli.show import new_table, options_checked, show_json, show_table, stdout

if TYPE_CHECKING:
    from hokical.noise import Noise
    from hokical.selection import NoiseSelection, Trial

_SHOWN = 5


class Search(StrEnum):
    """How settings are found: by refining the width, or by walking the paper's grid."""

    exact = "exact"
    paper = "paper"


def select(
    val: Validation,
    search: Annotated[Search, typer.Option(help="Refine the width, or walk the paper's grid.")] = (
        Search.exact
    ),
    families: Annotated[
        str, typer.Option(help="Noise families with commas between; gumbel is the third.")
    ] = "gaussian,uniform",
    draws: Annotated[
        int | None, typer.Option(min=1, help="For the paper's grid: sample instead of integrate.")
    ] = None,
    seed: Seed = 0,
    labels: Labels = None,
    split: Split = Part.val,
    as_json: Json = False,
) -> None:
    """Find the noise that tells examples apart best, for `fit --noise`."""
    from hokical.selection import select_noise

    names = [name.strip() for name in families.split(",") if name.strip()]
    examples = load_examples(val, split, labels)
    with options_checked():
        found = select_noise(
            *examples.pair,
            search="exact" if search is Search.exact else "paper",
            families=names,
            draws=draws,
            random_state=seed,
        )
    if as_json:
        show_json(_as_dict(found))
        return
    _show(found, val)


def noise_option(noise: Noise) -> str:
    """The noise as `fit --noise` reads it.

    >>> from hokical.noise import Uniform
    >>> noise_option(Uniform(-2, 4))
    'uniform:-2,4'
    """
    numbers = [f"{value:.15g}" for name, value in noise.to_dict().items() if name != "family"]
    return f"{noise.family}:{','.join(numbers)}"


def _show(found: NoiseSelection, source: Path) -> None:
    table = new_table(("noise", "spread", "right if kept", "right if lost"))
    for trial in _ranked(found)[:_SHOWN]:
        style = "bold" if trial == found.best else None
        table.add_row(noise_option(trial.noise), *_numbers(trial), style=style)
    show_table(
        f"{source.name}: the best of {len(found.trials)} settings",
        table,
        "Spread: how far confidences differ. Right: where noise keeps the label, or not.",
    )
    # One line however narrow the terminal, to be copied whole.
    command = f"hokical fit {quote(str(source))} --noise {noise_option(found.noise)} -o cal.json"
    stdout().print(Text(f"Use it: {command}"), soft_wrap=True)


def _ranked(found: NoiseSelection) -> list[Trial]:
    """The best first; a search on fewer rows, which comes before the final one, is left out."""
    trials = {t.noise: t for t in found.trials if t.n_examples == found.best.n_examples}
    return sorted(trials.values(), key=lambda trial: -trial.sigma_hat)


def _numbers(trial: Trial) -> list[str]:
    return [f"{trial.sigma_hat:.4f}", f"{trial.alpha:.4f}", f"{trial.beta:.4f}"]


def _as_dict(found: NoiseSelection) -> dict[str, Any]:
    return {
        "noise": noise_option(found.noise),
        "best": _trial_dict(found.best),
        "trials": [_trial_dict(trial) for trial in found.trials],
    }


def _trial_dict(trial: Trial) -> dict[str, Any]:
    return {
        **trial.noise.to_dict(),
        "alpha": trial.alpha,
        "beta": trial.beta,
        "sigma_hat": trial.sigma_hat,
        "n_examples": trial.n_examples,
    }

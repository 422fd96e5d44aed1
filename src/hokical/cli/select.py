"""`hokical select`: which noise suits a validation set."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from rich.text import Text

import hokical
from hokical.cli.data import choose_scores
from hokical.cli.inputs import load_examples
from hokical.cli.options import BEYOND, MAPS, Input, Json, Seed, Validation, reads, text
from hokical.cli.show import check_options, new_table, show_json, show_table, stdout

_SHOWN = 5
#: How settings are found: by refining the width, or on the paper's grid.
Search = StrEnum("Search", ["exact", "paper"])


@reads(without=(*MAPS, *BEYOND, "groups"))
def select(
    val: Validation,
    given: Input,
    search: Annotated[Search, text("Refine the width, or use the paper's grid.")] = (Search.exact),
    families: Annotated[
        str, text("Noise families, comma-separated; gumbel is the third.")
    ] = "gaussian,uniform",
    draws: Annotated[
        int | None, text("For the paper's grid: sample instead of integrate.", min=1)
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Find the noise that separates examples best, for `fit --noise`."""
    names = [name.strip() for name in families.split(",") if name.strip()]
    examples = load_examples(val, given, choose_scores(given))
    with check_options():
        found = hokical.select_noise(
            *examples.pair,
            search="exact" if search is Search.exact else "paper",
            families=names,
            draws=draws,
            random_state=seed,
        )
    if as_json:
        trials = [_trial_dict(trial) for trial in found.trials]
        best = {"noise": noise_option(found.noise), "best": _trial_dict(found.best)}
        show_json(best | {"trials": trials})
        return
    _show(found, val, given.classes)


def noise_option(noise: hokical.stability._noise.Noise) -> str:
    """The noise as `fit --noise` reads it.

    >>> from hokical.stability._noise import Uniform
    >>> noise_option(Uniform(-2, 4))
    'uniform:-2,4'
    """
    numbers = [f"{value:.15g}" for name, value in noise.to_dict().items() if name != "family"]
    return f"{noise.family}:{','.join(numbers)}"


def _show(
    found: hokical._fitting.noise_selection.NoiseSelection, source: Path, classes: str | None
) -> None:
    table = new_table(("noise", "spread", "right if kept", "right if lost"))
    # Without the trials of a first search on fewer rows.
    trials = {t.noise: t for t in found.trials if t.n_examples == found.best.n_examples}
    for trial in sorted(trials.values(), key=lambda trial: -trial.sigma_hat)[:_SHOWN]:
        style = "bold" if trial == found.best else None
        numbers = (f"{value:.4f}" for value in (trial.sigma_hat, trial.alpha, trial.beta))
        table.add_row(noise_option(trial.noise), *numbers, style=style)
    show_table(
        f"{source.name}: the best of {len(found.trials)} settings",
        table,
        "Spread: how far confidences differ. Right: where noise keeps the label, or not.",
    )
    # One line however narrow the terminal, so that it can be copied.
    command = f"hokical fit {quote(str(source))} --noise {noise_option(found.noise)} -o cal.json"
    command += f" --classes {quote(classes)}" if classes else ""
    stdout().print(Text(f"Use it: {command}"), soft_wrap=True)


def _trial_dict(trial: hokical._fitting.noise_selection.Trial) -> dict[str, Any]:
    names = ("alpha", "beta", "sigma_hat", "n_examples")
    return {**trial.noise.to_dict(), **{name: getattr(trial, name) for name in names}}

"""`hokical paper calarena`: our methods on the splits of a public benchmark."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hokical_paper.core.commands import Json, say, show_json


class Score(StrEnum):
    """What its results have: of all classes, the lower the better."""

    log_loss = "log_loss"
    brier = "brier"


def calarena(
    file: Annotated[
        Path, typer.Argument(help="A benchmark's .h5 file, such as cv-multiclass.h5.")
    ],
    published: Annotated[
        Path | None,
        typer.Option(help="Its folder of results, such as results/cv-multiclass."),
    ] = None,
    methods: Annotated[
        str, typer.Option("--methods", "-m", help="Methods, with commas between them.")
    ] = "uncalibrated,temps,ets,structured,auto",
    subject: Annotated[
        str, typer.Option(help="The method the others are set against.")
    ] = "auto",
    score: Annotated[Score, typer.Option(help="log_loss or brier.")] = Score.log_loss,
    cache: Annotated[Path, typer.Option(help="Where outcomes are kept.")] = Path(
        ".cache/study"
    ),
    as_json: Json = False,
) -> None:
    """Fit methods on CalArena's experiments; set them beside its results.

    Its files are at huggingface.co/datasets/probkit/CalArena, its results in
    the repository probkit/CalArena. Prints the tables of `hokical paper
    study`; rows that begin with CalArena are the published ones, of methods
    that have a result on every experiment.

    Example: hokical paper calarena cv-multiclass.h5 -m uncalibrated,temps,auto
    """
    from dataclasses import asdict

    from hokical_paper.study.calarena import read_benchmark, read_published
    from hokical_paper.study.outcomes import run_study
    from hokical_paper.study.tables import summarise

    names = [name.strip() for name in methods.split(",") if name.strip()]
    experiments = read_benchmark(file)
    benchmark = [] if published is None else read_published(published, experiments)
    outcomes = run_study(
        experiments, list(dict.fromkeys([*names, subject])), cache, say
    )
    groups = summarise([*outcomes, *benchmark], subject=subject, score=score.value)
    if as_json:
        show_json([asdict(group) for group in groups])
        return
    for group in groups:
        typer.echo(group.to_markdown())

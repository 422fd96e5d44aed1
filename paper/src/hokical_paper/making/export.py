"""Write the logit suite: a compressed file for each pair, and a manifest of all
pairs.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.io import DataFileError
from hokical_paper.core.files import replace_file, report_damage, write_text_atomically
from hokical_paper.suite.manifest import FORMAT, MANIFEST

#: In bytes. Larger pairs are split in two, so that a committed suite has no huge files.
LARGEST_FILE = 5_000_000
_DATA_SET_ORDER = ("mnist", "cifar10", "cifar100", "imagenet")

Arrays = dict[str, NDArray[Any]]


def write_pair(folder: Path, name: str, arrays: Arrays) -> dict[str, str]:
    """Write a pair's arrays; returns the SHA-256 of each file by name.

    The file is `<name>.npz`, or `<name>_val.npz` and `<name>_test.npz` if it would be
    larger than LARGEST_FILE.
    """
    folder.mkdir(parents=True, exist_ok=True)
    whole = _write(folder / f"{name}.npz", arrays)
    if whole.stat().st_size <= LARGEST_FILE:
        return {whole.name: _sha256(whole)}
    whole.unlink()
    validation = {key: array for key, array in arrays.items() if key.startswith("val_")}
    remaining = {key: array for key, array in arrays.items() if key not in validation}
    paths = [
        _write(folder / f"{name}_val.npz", validation),
        _write(folder / f"{name}_test.npz", remaining),
    ]
    return {path.name: _sha256(path) for path in paths}


def read_pair(folder: Path, files: dict[str, str]) -> Arrays:
    """All arrays in a pair's files."""
    arrays: Arrays = {}
    for name in files:
        with np.load(folder / name) as file:
            arrays |= {key: file[key] for key in file}
    return arrays


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder; an empty one if there is no file."""
    path = folder / MANIFEST
    if not path.exists():
        return {"format": FORMAT, "pairs": []}
    with report_damage(path, "the manifest of a logit suite"):
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if manifest.get("format") != FORMAT:
        raise DataFileError(
            path, f"expected format {FORMAT}; found {manifest.get('format')!r}."
        )
    return manifest


def find_entry(folder: Path, name: str) -> dict[str, Any] | None:
    """The manifest's entry for a pair, or None."""
    return next(
        (entry for entry in read_manifest(folder)["pairs"] if entry["name"] == name),
        None,
    )


def add_entry(folder: Path, entry: dict[str, Any]) -> None:
    """Add a pair's entry to the manifest; it replaces an older one."""
    manifest = read_manifest(folder)
    entries = [old for old in manifest["pairs"] if old["name"] != entry["name"]]
    manifest["pairs"] = sorted([*entries, entry], key=_sort_key)
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomically(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")


def _sort_key(entry: dict[str, Any]) -> tuple[int, str, str]:
    """Sort key: the paper's data sets in its order, then others; networks by name."""
    is_known = entry["dataset"] in _DATA_SET_ORDER
    position = (
        _DATA_SET_ORDER.index(entry["dataset"]) if is_known else len(_DATA_SET_ORDER)
    )
    return position, entry["dataset"], entry["network"]


def _write(path: Path, arrays: Arrays) -> Path:
    with replace_file(path) as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    return path


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

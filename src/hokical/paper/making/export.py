"""The logit suite, written: one compact file for each pair, and a manifest of all."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.files.errors import DataFileError, damage_reported
from hokical.storage import replacing, write_text_atomically

FORMAT = 1
MANIFEST = "manifest.json"
#: In bytes; a pair that takes more is cut in two, so that a committed suite has no huge files.
LARGEST_FILE = 5_000_000
_DATA_SET_ORDER = ("mnist", "cifar10", "cifar100", "imagenet")

Arrays = dict[str, NDArray[Any]]


def write_pair(folder: Path, name: str, arrays: Arrays) -> dict[str, str]:
    """Write a pair's arrays and give the SHA-256 of each file made.

    One file `<name>.npz`; where that would be larger than LARGEST_FILE, `<name>_val.npz` and
    `<name>_test.npz`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    whole = _write(folder / f"{name}.npz", arrays)
    if whole.stat().st_size <= LARGEST_FILE:
        return {whole.name: _sha256(whole)}
    whole.unlink()
    validation = {key: array for key, array in arrays.items() if key.startswith("val_")}
    rest = {key: array for key, array in arrays.items() if key not in validation}
    paths = [
        _write(folder / f"{name}_val.npz", validation),
        _write(folder / f"{name}_test.npz", rest),
    ]
    return {path.name: _sha256(path) for path in paths}


def read_pair(folder: Path, files: dict[str, str]) -> Arrays:
    """The arrays of a pair's files, merged; used where a pair is completed later."""
    arrays: Arrays = {}
    for name in files:
        with np.load(folder / name) as file:
            arrays |= {key: file[key] for key in file}
    return arrays


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, or an empty one."""
    path = folder / MANIFEST
    if not path.exists():
        return {"format": FORMAT, "pairs": []}
    with damage_reported(path, "the manifest of a logit suite"):
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if manifest.get("format") != FORMAT:
        raise DataFileError(path, f"has format {manifest.get('format')!r}; expected {FORMAT}.")
    return manifest


def find_entry(folder: Path, name: str) -> dict[str, Any] | None:
    """The manifest's entry of a pair, if it has one."""
    return next((entry for entry in read_manifest(folder)["pairs"] if entry["name"] == name), None)


def add_entry(folder: Path, entry: dict[str, Any]) -> None:
    """Put a pair's entry into the manifest, in the place of an older one."""
    manifest = read_manifest(folder)
    others = [old for old in manifest["pairs"] if old["name"] != entry["name"]]
    manifest["pairs"] = sorted([*others, entry], key=_place)
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomically(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")


def _place(entry: dict[str, Any]) -> tuple[int, str]:
    """Data sets in the order of the paper's tables, and their networks by name."""
    return _DATA_SET_ORDER.index(entry["dataset"]), entry["network"]


def _write(path: Path, arrays: Arrays) -> Path:
    with replacing(path) as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    return path


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

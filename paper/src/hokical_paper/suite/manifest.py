"""The logit suite: validation and test logits of every network, with a manifest.

A suite is a folder with a `manifest.json` and one or more `.npz` files per pair of data
set and network. The manifest has the SHA-256 of every file, which is checked when the
file is read. A pair with `top_k` in its entry has the best probabilities of each row
instead of all logits.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.io import DataFileError
from hokical_paper.core.files import report_damage
from hokical_paper.suite.pair_data import PairData, build_pair_data

FORMAT = 1
MANIFEST = "manifest.json"
#: Environment variable with the folder, used without `--suite`.
VARIABLE = "HOKICAL_SUITE"

_NEEDED = ("name", "dataset", "network", "title", "dataset_title", "n_classes", "files")


@dataclass(frozen=True, eq=False)
class Pair:
    """One network on one data set: its entry in the manifest, and the folder with
    its files.
    """

    folder: Path
    entry: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.entry["name"])

    @property
    def dataset(self) -> str:
        return str(self.entry["dataset"])

    @property
    def network(self) -> str:
        return str(self.entry["network"])

    @property
    def dataset_title(self) -> str:
        return str(self.entry["dataset_title"])

    @property
    def title(self) -> str:
        return str(self.entry["title"])

    @property
    def n_classes(self) -> int:
        return int(self.entry["n_classes"])

    @property
    def top_k(self) -> int | None:
        """How many classes of each row are known; None if all are."""
        return self.entry.get("top_k")

    @property
    def is_quick(self) -> bool:
        """Whether it is a small network on synthetic images, made with `--quick`."""
        return bool(self.entry.get("quick", False))

    @property
    def recal(self) -> Mapping[str, Any] | None:
        """Facts about the ReCal fit, or None if ReCal was not fitted."""
        return self.entry.get("recal")

    @property
    def has_views(self) -> bool:
        """Whether the pair says which transformed images keep their label."""
        return self.entry.get("zoom_scales") is not None

    @property
    def digest(self) -> str:
        """SHA-256 of the names and checksums of all files."""
        lines = sorted(f"{name} {sha}" for name, sha in self.entry["files"].items())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def load(self) -> PairData:
        """Read the pair's files and check each against its SHA-256."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, sha in self.entry["files"].items():
            arrays |= _read_arrays(self.folder / name, sha)
        return build_pair_data(
            self.folder / f"{self.name}.npz", arrays, self.n_classes, self.top_k
        )


@dataclass(frozen=True, eq=False)
class Suite:
    """All pairs of a folder, in the order of its manifest."""

    folder: Path
    pairs: tuple[Pair, ...]

    def __getitem__(self, name: str) -> Pair:
        for pair in self.pairs:
            if pair.name == name:
                return pair
        raise KeyError(f"no pair {name!r} in {self.folder}; it has {self.names}.")

    @property
    def names(self) -> list[str]:
        return [pair.name for pair in self.pairs]

    @property
    def datasets(self) -> dict[str, list[Pair]]:
        """Pairs by the title of their data set."""
        by_title: dict[str, list[Pair]] = {}
        for pair in self.pairs:
            by_title.setdefault(pair.dataset_title, []).append(pair)
        return by_title

    @property
    def caution(self) -> str:
        """A warning if some pairs were made with `--quick`; else empty."""
        quick = [pair.name for pair in self.pairs if pair.is_quick]
        if not quick:
            return ""
        return (
            f"{len(quick)} of {len(self.pairs)} pairs were made with --quick "
            f"({', '.join(quick)}): small networks on synthetic images, not comparable "
            "with the paper."
        )

    def only(self, names: list[str]) -> Suite:
        """The suite with these pairs only, in the manifest's order."""
        for name in names:
            self[name]  # raises KeyError for an unknown name
        return Suite(
            self.folder, tuple(pair for pair in self.pairs if pair.name in names)
        )


def find_suite(folder: str | os.PathLike[str] | None = None) -> Path:
    """The given folder, else HOKICAL_SUITE, else ./suite, else that of the source
    checkout.
    """
    wanted = folder or os.environ.get(VARIABLE)
    folders = [Path(wanted)] if wanted else [Path("suite"), _checkout() / "suite"]
    for candidate in folders:
        if (candidate / MANIFEST).is_file():
            return candidate
    tried = " or ".join(str(candidate) for candidate in folders)
    raise DataFileError(
        folders[0],
        f"no logit suite here: looked for {MANIFEST} in {tried}.",
        "The suite is the folder `suite` of hokical's source repository and is not "
        "installed: clone the repository and pass the folder with --suite, or set "
        f"{VARIABLE}.",
    )


def open_suite(folder: str | os.PathLike[str] | None = None) -> Suite:
    """Read a suite's manifest; arrays are read when a pair is loaded.

    >>> open_suite("nowhere")
    Traceback (most recent call last):
    ...
    hokical.io.tables.DataFileError: nowhere: no logit suite here: looked for manifest.json in...
    """
    directory = find_suite(folder)
    path = directory / MANIFEST
    with report_damage(path, "the manifest of a logit suite"):
        document = json.loads(path.read_text(encoding="utf-8"))
        entries = [_check_entry(path, entry) for entry in _entries(path, document)]
    names = [entry["name"] for entry in entries]
    if len(set(names)) != len(names):
        raise DataFileError(
            path, f"names must be unique; got {names}.", "Rename one of the pairs."
        )
    return Suite(directory, tuple(Pair(directory, entry) for entry in entries))


def _checkout() -> Path:
    """The repository, if this file is `paper/src/hokical_paper/suite/manifest.py` in it."""
    return Path(__file__).resolve().parents[4]


def _entries(path: Path, document: Any) -> list[Any]:
    version = document.get("format") if isinstance(document, dict) else None
    if version != FORMAT:
        raise DataFileError(
            path,
            f"expected a suite of format {FORMAT}; found {version!r}.",
            "Export it again.",
        )
    pairs = document.get("pairs")
    if not isinstance(pairs, list) or not pairs:
        raise DataFileError(
            path, "expected at least one pair; found none.", "Export some."
        )
    return pairs


def _check_entry(path: Path, entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise DataFileError(
            path, f"a pair must be an object; got {entry!r}.", "Export it again."
        )
    missing = [key for key in _NEEDED if key not in entry]
    name = entry.get("name", "?")
    if missing:
        raise DataFileError(path, f"pair {name!r} lacks {missing}.", "Export it again.")
    for key, rule, is_right in _RULES:
        if not is_right(entry[key]):
            raise DataFileError(
                path,
                f"`{key}` of pair {name!r} must be {rule}; got {entry[key]!r}.",
                "Export it again.",
            )
    for file in entry["files"]:
        if Path(file).name != file:  # files are next to the manifest, nowhere else
            raise DataFileError(
                path, f"file names must not contain a folder; got {file!r}."
            )
    return dict(entry)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_class_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 2


def _are_files(value: Any) -> bool:
    return (
        isinstance(value, dict) and bool(value) and all(map(_is_text, value.values()))
    )


#: The rule for each value of an entry, in words and as a function.
_RULES: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    *((key, "text", _is_text) for key in _NEEDED[:5]),
    ("n_classes", "an integer of at least 2", _is_class_count),
    ("files", "an object with the SHA-256 of each file", _are_files),
)


def _read_arrays(path: Path, sha: str) -> dict[str, NDArray[Any]]:
    """The arrays of one file, if it matches its SHA-256; nothing is unpickled."""
    if not path.is_file():
        raise DataFileError(
            path, "is missing from the suite.", "Copy or export it again."
        )
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != sha:
        raise DataFileError(
            path,
            f"does not match the manifest: its SHA-256 is {digest}, not {sha}.",
            "Copy or export it again.",
        )
    with report_damage(path, "an .npz file of plain arrays"), np.load(path) as file:
        return {key: file[key] for key in file.files}

"""Logit sets, seeded splits and kept results for tools/study_profile.py."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Data = tuple[np.ndarray, np.ndarray]
Scores = dict[str, float]


@dataclass(frozen=True, eq=False)
class LogitSet:
    """Logits and labels of one network: what its file holds as val (or None), and as test."""

    name: str
    val: Data | None
    test: Data

    @property
    def pooled(self) -> Data:
        if self.val is None:
            return self.test
        return tuple(np.concatenate(pair) for pair in zip(self.val, self.test, strict=True))

    def split(self, seed: int, n_val: int) -> tuple[Data, Data]:
        """`n_val` random examples to learn from, and the rest."""
        logits, labels = self.pooled
        rows = np.random.default_rng([seed, n_val]).permutation(len(labels))
        val, test = rows[:n_val], rows[n_val:]
        return (logits[val], labels[val]), (logits[test], labels[test])


def read_sets(folders: list[Path]) -> list[LogitSet]:
    """Every .npz with `test_logits` and `test_labels`, and perhaps `val_*`.

    Files NAME_val.npz and NAME_test.npz are parts of one set.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.npz")):
        with np.load(path) as file:
            keys = [key for key in file if key.endswith(("_logits", "_labels"))]
            name = path.stem.removesuffix("_val").removesuffix("_test")
            found.setdefault(name, {}).update({key: file[key] for key in keys})
    return [_as_set(name, parts) for name, parts in found.items() if "test_logits" in parts]


def _as_set(name: str, parts: dict[str, np.ndarray]) -> LogitSet:
    test, *val = [
        (parts[f"{part}_logits"], parts[f"{part}_labels"].ravel().astype(np.int64))
        for part in ("test", "val")
        if f"{part}_logits" in parts
    ]
    return LogitSet(name, val[0] if val else None, test)


class Kept:
    """Results as lines of JSON: what was computed once is not computed again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.scores: dict[tuple[Any, ...], Scores] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            entry = json.loads(line)
            self.scores[tuple(entry["key"])] = entry["scores"]
        except (ValueError, KeyError, TypeError):  # a line that was cut off
            return

    def get(self, key: tuple[Any, ...], compute: Callable[[], Scores]) -> Scores:
        """The scores under a key, computed and written down if they are new."""
        if key not in self.scores:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # degenerate splits say so; here only scores count
                scores = compute()
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "scores": scores}) + "\n")
            self.scores[key] = scores
        return self.scores[key]


Method = Callable[[Data, Data], Scores]


def _measure(method: Method, item: LogitSet, seed: int, n_val: int) -> Scores:
    return method(*item.split(seed, n_val))


@dataclass(frozen=True)
class Plan:
    """How many splits, how large, and what is too slow for all of them."""

    splits: int
    slow_splits: int
    limit: float  # seconds of a fit from which only `slow_splits` are made

    def run(
        self,
        kept: Kept,
        table: str,
        sets: list[LogitSet],
        n_val: int | None,
        methods: dict[str, Method],
    ) -> dict[str, dict[str, list[Scores]]]:
        """Scores by set and method, one entry per split; n_val None is 5000, or half the set."""
        results: dict[str, dict[str, list[Scores]]] = {}
        for item in sets:
            size = len(item.pooled[1])
            n = min(5000, size // 2) if n_val is None else n_val
            for name, seed in self._units(methods):
                done = results.setdefault(item.name, {}).setdefault(name, [])
                if self._too_slow(done, seed):
                    continue
                key = (table, item.name, size, n, name, seed)
                done.append(kept.get(key, partial(_measure, methods[name], item, seed, n)))
            print(f"{table}: {item.name}, n = {n} done", flush=True)
        return results

    def _units(self, methods: dict[str, Method]) -> Iterator[tuple[str, int]]:
        for seed in range(self.splits):
            for name in methods:
                yield name, seed

    def _too_slow(self, done: list[Scores], seed: int) -> bool:
        return seed >= self.slow_splits and max(one["seconds"] for one in done) > self.limit

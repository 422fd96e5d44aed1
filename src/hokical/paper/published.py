"""The numbers that the paper reports, as data.

Source: Jang, Ivanov, Lee, Weimer, "Confidence Calibration Using Logits Transformations", 2021:
Table 1 (selected noise), its main table of ECE with 15 bins and that of learning times, and the
supplement's tables of ECE with other numbers of bins and with another initialisation. ECEs are
fractions, accuracies percent, times seconds on the authors' machine.

The headers of the main table's last four baselines are rotated in print. Set beside the
supplement's tables for 10 and 30 bins, what is printed under ETS, IRM, IROvA-TS and ReCal belongs
to IRM, IROvA-TS, ReCal and ETS. Here the columns are mended; `MENDED` tells what stood over each.
"""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files

from hokical.paper.suite import Pair

#: Column of `ece_15_bins` here -> header over it in print.
MENDED = {"ets": "recal", "irm": "ets", "irova_ts": "irm", "recal": "irova_ts"}
#: Numbers of bins for which the paper reports the ECE.
BIN_COUNTS = (5, 10, 15, 30, 50, 100)
#: The pairs on which the paper finds Hoki's ECE lowest, and all of its pairs.
CLAIM = (8, 15)

_DATASETS = {"mnist": "MNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100", "imagenet": "ImageNet"}
_NETWORKS = {
    "lenet5": "LeNet 5",
    "densenet40": "DenseNet 40",
    "resnet110": "ResNet 110",
    "resnet110_sd": "ResNet 110 SD",
    "wrn28_10": "WRN 28-10",
    "densenet161": "DenseNet 161",
    "mobilenet_v2": "MobileNet V2",
    "resnet152": "ResNet 152",
    "wrn101_2": "WRN 101-2",
}

Row = dict[str, str]


def table_names() -> list[str]:
    """The tables there are.

    >>> table_names()[:2]
    ['ece_100_bins', 'ece_10_bins']
    """
    folder = files("hokical.paper") / "published"
    return sorted(path.name[:-4] for path in folder.iterdir() if path.name.endswith(".csv"))


def published_row(table: str, dataset: str, network: str) -> Row:
    """A row of a table by column; empty where the paper has no such pair.

    Parameters
    ----------
    table : str
        One of `table_names()`.
    dataset, network : str
        As in a suite's manifest.

    Examples
    --------
    >>> published_row("ece_15_bins", "cifar10", "resnet110")["hoki"]
    '0.0071'
    >>> published_row("ece_15_bins", "imagenet", "efficientnet_lite0")
    {}
    """
    key = (_DATASETS.get(dataset, dataset), _NETWORKS.get(network, network))
    return _rows(table).get(key, {})


def published_number(table: str, dataset: str, network: str, column: str) -> float | None:
    """A number of a table, or None where the paper has none.

    >>> published_number("learning_time_s", "mnist", "lenet5", "hoki")
    0.53
    """
    text = published_row(table, dataset, network).get(column)
    return None if text is None else float(text)


def row_beside(pair: Pair, table: str) -> Row:
    """The paper's row for a pair of ours; empty for quick ones, which are not its networks."""
    return {} if pair.is_quick else published_row(table, pair.dataset, pair.network)


def number_beside(pair: Pair, table: str, column: str) -> float | None:
    """The paper's number for a pair of ours, or None."""
    text = row_beside(pair, table).get(column)
    return None if text is None else float(text)


@lru_cache
def _rows(table: str) -> dict[tuple[str, str], Row]:
    if table not in table_names():
        raise ValueError(f"`table` must be one of {table_names()}; got {table!r}.")
    text = (files("hokical.paper") / "published" / f"{table}.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(row.pop("dataset"), row.pop("model")): row for row in rows}

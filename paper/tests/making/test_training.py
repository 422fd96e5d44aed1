"""Training: augmentation and optimiser against plain twins, resuming, lanes, what is
learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from hokical.io import DataFileError  # noqa: E402
from hokical_paper.making.augment import (  # noqa: E402
    SHIFT,
    Feed,
    Normalisation,
    draw_gates,
    draw_plan,
)
from hokical_paper.making.checkpoints import load_checkpoint, save_checkpoint  # noqa: E402
from hokical_paper.making.datasets.images import LabelledImages  # noqa: E402
from hokical_paper.making.datasets.synthetic import synthetic_images  # noqa: E402
from hokical_paper.making.lanes import run_in_lanes  # noqa: E402
from hokical_paper.making.networks import make_network  # noqa: E402
from hokical_paper.making.recipes import RECIPES, Recipe, choose_recipes, make_quick  # noqa: E402
from hokical_paper.making.training import Trainer, Work, learning_rates  # noqa: E402
from hokical_paper.making.weights import FlatWeights  # noqa: E402
from paper.tests.conftest import run_alone  # noqa: E402

CPU = torch.device("cpu")
RECIPE = Recipe(
    "cifar10", "resnet110_sd", 3, batch_size=16, warmup_epochs=1, small=True
)


@pytest.fixture(scope="module")
def pictures() -> LabelledImages:
    return synthetic_images("cifar10", n_train=70, n_test=10).train


def make_trainer(
    pictures: LabelledImages, recipe: Recipe = RECIPE, **options: object
) -> Trainer:
    network = make_network(recipe.network, 10, seed=recipe.seed, small=recipe.small)
    return Trainer(network, pictures, recipe, device=CPU, **options)


def crop_by_loops(image: np.ndarray, top: int, left: int, mirrored: bool) -> np.ndarray:
    """The obvious way: move pixel by pixel, black from outside."""
    side = image.shape[0]
    margin = (32 + 2 * SHIFT - side) // 2
    out = np.zeros((32, 32, image.shape[2]))
    for row in range(32):
        for column in range(32):
            y, x = row + top - margin, column + left - margin
            if 0 <= y < side and 0 <= x < side:
                out[row, 31 - column if mirrored else column] = image[y, x]
    return out


@pytest.mark.parametrize(("side", "channels"), [(32, 3), (28, 1)])
def test_batches_are_what_plain_loops_give(side: int, channels: int) -> None:
    images = np.random.default_rng(0).integers(
        0, 256, (9, side, side, channels), np.uint8
    )
    data = LabelledImages(images, np.arange(9))
    scale = Normalisation.from_images(images)
    feed = Feed(data, scale, 4, CPU, torch.float32)
    plan = draw_plan(9, augment=True, seed=3, epoch=2)
    feed.begin(plan)
    for start in (0, 4):
        batch, labels = feed.batch()
        assert labels.tolist() == plan[0, start : start + 4].tolist()
        for got, (index, top, left, mirrored) in zip(
            batch, plan.T[start:], strict=False
        ):
            twin = crop_by_loops(images[index], top, left, bool(mirrored))
            twin = (twin - np.array(scale.mean)) / np.array(scale.deviation)
            np.testing.assert_allclose(got.permute(1, 2, 0), twin, atol=1e-5)


def test_normalisation_is_mean_and_deviation(pictures: LabelledImages) -> None:
    scale = Normalisation.from_images(pictures.images)
    np.testing.assert_allclose(scale.mean, pictures.images.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(
        scale.deviation, pictures.images.std((0, 1, 2)), rtol=1e-12
    )


def test_plans_cover_all_examples_and_differ_by_epoch() -> None:
    plan = draw_plan(5000, augment=True, seed=0, epoch=0)
    assert sorted(plan[0]) == list(range(5000))
    for row in plan[1:3]:
        assert set(row.tolist()) == set(range(2 * SHIFT + 1))
        assert abs(row.mean() - SHIFT) < 0.2
    assert abs(plan[3].mean() - 0.5) < 0.03
    assert np.array_equal(plan, draw_plan(5000, augment=True, seed=0, epoch=0))
    assert not np.array_equal(
        plan[0], draw_plan(5000, augment=True, seed=0, epoch=1)[0]
    )
    still = draw_plan(50, augment=False, seed=0, epoch=0)
    assert (still[1:3] == SHIFT).all()
    assert (still[3] == 0).all()


def test_gates_open_as_often_as_they_should() -> None:
    survival = np.array([1.0, 0.75, 0.5])
    gates = draw_gates(survival, 4000, seed=0, epoch=0)
    assert set(np.unique(gates)) == {0.0, 1.0}
    np.testing.assert_allclose(gates.mean(axis=0), survival, atol=0.03)


def test_updates_are_those_of_torch() -> None:
    ours, theirs = (make_network("densenet40", 5, seed=2, small=True) for _ in range(2))
    flat = FlatWeights(ours)
    optimiser = torch.optim.SGD(
        theirs.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2
    )
    generator = torch.Generator().manual_seed(0)
    for step in range(3):
        images = torch.randn(6, 3, 32, 32, generator=generator)
        labels = torch.arange(6) % 5
        gradients = torch.autograd.grad(
            F.cross_entropy(ours(images), labels), flat.parameters
        )
        rate = torch.tensor(0.1 / (step + 1))
        with torch.no_grad():
            flat.update(gradients, rate, momentum=0.9, weight_decay=1e-2)
        optimiser.param_groups[0]["lr"] = 0.1 / (step + 1)
        optimiser.zero_grad()
        F.cross_entropy(theirs(images), labels).backward()
        optimiser.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-5)


def test_half_precision_touches_convolutions_alone() -> None:
    network = make_network("resnet110", 10, small=True)
    whole = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    flat = FlatWeights(network, torch.bfloat16)
    assert flat.values.dtype == torch.float32
    assert flat.values.sum().item() == pytest.approx(whole.sum().item(), rel=1e-4)
    kinds = {(p.dim() == 4, p.dtype) for p in network.parameters()}
    assert kinds == {(True, torch.bfloat16), (False, torch.float32)}
    with torch.no_grad():
        flat.values.zero_()
        flat.refresh()
    assert all(not p.any() for p in network.parameters())


def test_half_precision_learns_the_same_up_to_rounding(
    pictures: LabelledImages,
) -> None:
    recipe = RECIPE.with_changes(network="lenet5", epochs=1, batch_size=2)
    few = pictures.take(np.arange(4))
    exact, half = (
        make_trainer(few, recipe, dtype=kind)
        for kind in (torch.float32, torch.bfloat16)
    )
    for trainer in (exact, half):
        run_alone(trainer.run(), CPU)
    assert exact.losses != half.losses
    np.testing.assert_allclose(exact.losses, half.losses, rtol=0.02)


def test_rates_rise_then_fall() -> None:
    recipe = Recipe("cifar10", "lenet5", 10, learning_rate=0.4, warmup_epochs=2)
    rates = learning_rates(recipe, 5).numpy()
    assert rates.shape == (50,)
    np.testing.assert_allclose(rates[:10], 0.04 * np.arange(1, 11), rtol=1e-6)
    assert rates[10] == pytest.approx(0.4)
    assert rates[30] == pytest.approx(0.2)
    assert (np.diff(rates[10:]) < 0).all()
    assert rates[-1] < 0.001
    assert np.isfinite(learning_rates(recipe.with_changes(epochs=1), 3).numpy()).all()


def test_a_broken_training_resumes_bit_for_bit(
    pictures: LabelledImages, tmp_path: Path
) -> None:
    unbroken = make_trainer(pictures)
    run_alone(unbroken.run(), CPU)

    path = tmp_path / "state.npz"

    def save_once(trainer: Trainer) -> Work:
        if trainer.epoch == 1:
            save_checkpoint(path, trainer.state(), RECIPE)
        yield "launched"

    work = make_trainer(pictures).run(save_once)
    while not path.exists():
        next(work)
    next(work)  # what is done after the checkpoint is lost
    second = make_trainer(pictures)
    state = load_checkpoint(path, RECIPE)
    assert state is not None
    assert state.epoch == 1
    second.restore(state)
    run_alone(second.run(), CPU)

    assert second.losses == unbroken.losses
    for key in ("weights", "momentum", "statistics"):
        np.testing.assert_array_equal(
            getattr(second.state(), key), getattr(unbroken.state(), key)
        )


def test_checkpoints_belong_to_a_recipe(
    pictures: LabelledImages, tmp_path: Path
) -> None:
    path = tmp_path / "state.npz"
    assert load_checkpoint(path, RECIPE) is None
    save_checkpoint(path, make_trainer(pictures).state(), RECIPE)
    with pytest.raises(
        DataFileError, match=r"learning_rate = 0.1, but this training has 0.2"
    ):
        load_checkpoint(path, RECIPE.with_changes(learning_rate=0.2))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(
        DataFileError, match=r"truncated checkpoint\. Delete it to train from the start"
    ):
        load_checkpoint(path, RECIPE)


def test_training_learns() -> None:
    data = synthetic_images("cifar10", n_train=150, n_test=10).train
    recipe = Recipe(
        "cifar10",
        "resnet110",
        6,
        batch_size=25,
        learning_rate=0.1,
        augment=False,
        small=True,
    )
    trainer = make_trainer(data, recipe)
    run_alone(trainer.run(), CPU)
    assert trainer.losses[-1] < 0.5 * trainer.losses[0]
    assert not torch.cuda.is_available() or trainer._graph is None


def test_a_loss_that_explodes_is_said(pictures: LabelledImages) -> None:
    trainer = make_trainer(
        pictures, RECIPE.with_changes(learning_rate=1e30, warmup_epochs=0)
    )
    with pytest.raises(
        FloatingPointError, match=r"cifar10_resnet110_sd is .*learning_rate"
    ):
        run_alone(trainer.run(), CPU)


def test_too_few_examples_for_a_batch(pictures: LabelledImages) -> None:
    with pytest.raises(
        ValueError, match=r"at most the number of training examples, 70; got 128"
    ):
        make_trainer(pictures, RECIPE.with_changes(batch_size=128))


def test_lanes_take_turns_and_do_everything() -> None:
    diary: list[str] = []

    def job(name: str, pieces: int) -> Work:
        for piece in range(pieces):
            diary.append(f"{name}{piece}")
            yield "drain" if piece == 1 else "launched"

    jobs: Iterator[Work | None] = iter([job("a", 3), job("b", 2), None, job("c", 1)])
    rounds: list[int] = []  # how much was done before each
    run_in_lanes(
        lambda: next(jobs), 2, CPU, every_round=lambda: rounds.append(len(diary))
    )
    assert sorted(diary) == ["a0", "a1", "a2", "b0", "b1", "c0"]
    assert diary.index("b0") < diary.index("a2")
    assert rounds[:2] == [0, 2]
    with pytest.raises(ValueError, match="at least 1; got 0"):
        run_in_lanes(lambda: None, 0, CPU)


def test_results_do_not_depend_on_lanes(pictures: LabelledImages) -> None:
    alone = make_trainer(pictures)
    run_alone(alone.run(), CPU)
    pair = [make_trainer(pictures), make_trainer(pictures, RECIPE.with_changes(seed=1))]
    works = iter([trainer.run() for trainer in pair])
    run_in_lanes(lambda: next(works), 2, CPU)
    assert pair[0].losses == alone.losses
    assert pair[1].losses != alone.losses


def test_recipes_are_the_eleven_pairs() -> None:
    assert len(RECIPES) == 11
    assert [recipe.name for recipe in choose_recipes(["cifar100_lenet5"])] == [
        "cifar100_lenet5"
    ]
    assert all(make_quick(recipe).small for recipe in choose_recipes())
    assert RECIPES["mnist_lenet5"].n_val == 10_000
    with pytest.raises(ValueError, match=r"`names` must be among .*got 'cifar10_vgg'"):
        choose_recipes(["cifar10_vgg"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["resnet110_sd", "densenet40", "lenet5"])
def test_graphs_do_what_single_launches_do(pictures: LabelledImages, name: str) -> None:
    recipe = RECIPE.with_changes(network=name, epochs=2)
    losses = []
    for use_graph in (False, True):
        network = make_network(name, 10, small=True)
        trainer = Trainer(
            network, pictures, recipe, device=torch.device("cuda"), use_graph=use_graph
        )
        run_alone(trainer.run(), torch.device("cuda"))
        losses.append(trainer.losses)
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.02)

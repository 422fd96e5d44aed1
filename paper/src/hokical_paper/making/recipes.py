"""How the network of each of the eleven pairs is trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from hokical_paper.making.datasets.known import DATA_SETS


@dataclass(frozen=True)
class Recipe:
    """A pair and its training: SGD with Nesterov momentum, linear warm-up, cosine decay
    to 0.

    `augment` shifts each training image by up to 4 pixels and mirrors half of them.
    """

    dataset: str
    network: str
    epochs: int
    batch_size: int = 128
    learning_rate: float = 0.1
    weight_decay: float = 1e-4
    momentum: float = 0.9
    warmup_epochs: int = 5
    augment: bool = True
    seed: int = 0
    split_seed: int = 0
    n_val: int = 5000
    small: bool = False

    @property
    def name(self) -> str:
        """The name of the pair and of its files."""
        return f"{self.dataset}_{self.network}"

    def with_changes(self, **changes: Any) -> Recipe:
        """The same recipe with some values changed; None leaves a value unchanged."""
        return replace(
            self, **{key: value for key, value in changes.items() if value is not None}
        )

    def facts(self) -> dict[str, Any]:
        """The facts about the training for the manifest."""
        elsewhere = ("dataset", "network", "split_seed", "n_val", "small")
        return {
            key: value for key, value in asdict(self).items() if key not in elsewhere
        }


#: Longest first, so that parallel lanes end at about the same time.
_ALL = (
    Recipe("cifar10", "wrn28_10", 40, weight_decay=5e-4),
    Recipe("cifar10", "densenet40", 48),
    Recipe("cifar10", "resnet110", 64, batch_size=256, learning_rate=0.2),
    Recipe("cifar10", "resnet110_sd", 64, batch_size=256, learning_rate=0.2),
    Recipe("cifar10", "lenet5", 60, learning_rate=0.05),
    Recipe(
        "mnist",
        "lenet5",
        20,
        learning_rate=0.05,
        warmup_epochs=1,
        augment=False,
        n_val=10_000,
    ),
    Recipe("cifar100", "wrn28_10", 56, weight_decay=5e-4),
    Recipe("cifar100", "densenet40", 48),
    Recipe("cifar100", "resnet110", 80, batch_size=256, learning_rate=0.2),
    Recipe("cifar100", "resnet110_sd", 80, batch_size=256, learning_rate=0.2),
    Recipe("cifar100", "lenet5", 60, learning_rate=0.05),
)

RECIPES = {recipe.name: recipe for recipe in _ALL}


def choose_recipes(names: list[str] | None = None) -> list[Recipe]:
    """The recipes of the named pairs; default: all.

    >>> [recipe.epochs for recipe in choose_recipes(["mnist_lenet5"])]
    [20]
    """
    unknown = [name for name in names or [] if name not in RECIPES]
    if unknown:
        raise ValueError(
            f"`names` must be among {', '.join(RECIPES)}; got {unknown[0]!r}."
        )
    return [RECIPES[name] for name in names or RECIPES]


def make_quick(recipe: Recipe) -> Recipe:
    """A recipe that takes seconds: a smaller network of the same kind, 100
    validation examples.
    """
    return recipe.with_changes(
        epochs=2,
        batch_size=50,
        learning_rate=0.05,
        warmup_epochs=1,
        n_val=100,
        small=True,
    )


def dataset_title(name: str) -> str:
    return DATA_SETS[name].title

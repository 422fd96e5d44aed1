"""The automatic choice: the simplest method that is good enough on held-out data."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hokical.calibrators.base import BaseCalibrator, Fit
from hokical.calibrators.ets import EnsembleTemperatureScaling
from hokical.calibrators.hoki import Hoki
from hokical.calibrators.profile import StabilityProfile
from hokical.calibrators.temps import TemperatureScaling
from hokical.core.bins import check_count
from hokical.core.portable import uniform_draws
from hokical.core.types import FloatArray, IntArray
from hokical.fitting.partitions import Block, InMemory, Partition
from hokical.rules.answering import answer
from hokical.stability.api import draw_seed

#: The candidates, the simplest first: ordered by the number of learned parameters.
CANDIDATES: dict[str, type[BaseCalibrator]] = {
    kind.name: kind
    for kind in (TemperatureScaling, EnsembleTemperatureScaling, StabilityProfile, Hoki)
}
#: With fewer examples than this, or fewer mistakes than folds, held-out losses say nothing.
_FEWEST_EXAMPLES = 50


@dataclass(frozen=True)
class Candidate:
    """A method's held-out log loss, and its difference from the best one's."""

    name: str
    log_loss: float
    behind: float  # mean over examples of its loss minus the best method's
    standard_error: float  # of `behind`

    @property
    def good_enough(self) -> bool:
        """Within one standard error of the best."""
        return self.behind <= self.standard_error


class AutoCalibrator(BaseCalibrator):
    """Choose among temps, ets, profile and hoki, and fit the chosen method on all examples.

    Each candidate is cross-validated by the log loss of its confidence, so every example is scored
    by a calibrator that has not seen it. The simplest candidate within one standard error of the
    best is chosen; the standard error is that of the paired differences. Labels are never changed.

    `hokical.auto(logits, labels)` creates one and fits it.

    Parameters
    ----------
    candidates : sequence of {"temps", "ets", "profile", "hoki"}, optional
        Methods to choose from; None means all four. The order does not matter: temps counts as
        the simplest, then ets, profile and hoki.
    cv : int
        Number of folds, at least 2.
    random_state : int, RandomState, Generator or None
        Seed of the folds. An int gives the same folds on every machine.

    Attributes
    ----------
    chosen_ : the name of the chosen method
    reason_ : why, in words
    candidates_ : tuple of Candidate, the simplest first; empty if there was nothing to compare
    calibrator_ : the chosen method, fitted on all examples; attributes of its rule, such as
        `temperature_`, are available here too
    converged_ : whether its fit converged

    Examples
    --------
    >>> import numpy as np
    >>> from hokical import AutoCalibrator
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(2000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = AutoCalibrator().fit(3 * logits, labels)
    >>> cal.chosen_
    'temps'
    """

    name = "auto"  # type: ignore[misc]
    preserves_labels = True
    accepts_top_k = True
    needs_views = False
    title = "Automatic choice"
    reference = (
        "One-standard-error rule: Breiman, Friedman, Olshen, Stone: Classification and Regression "
        "Trees, 1984, doi:10.1201/9781315139470"
    )
    cost = "three fits of each candidate, then one of the chosen"

    candidates_: tuple[Candidate, ...]
    calibrator_: BaseCalibrator

    def __init__(
        self,
        *,
        candidates: Sequence[str] | None = None,
        cv: int = 3,
        random_state: Any = 0,
    ) -> None:
        self.candidates = candidates
        self.cv = cv
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_candidates(self.candidates)
        check_count(self.cv, name="cv", least=2)

    def _fit(self, examples: Partition) -> Fit:
        names = check_candidates(self.candidates)
        block = examples.gather(type(self).__name__).without_weightless()
        found = _find_obvious(names, block.correct, int(self.cv))
        compared: tuple[Candidate, ...] = ()
        if found is None:
            fold = assign_folds(block.correct, int(self.cv), draw_seed(self.random_state))
            losses = {name: held_out_losses(CANDIDATES[name](), block, fold) for name in names}
            compared = rank(losses, block.weights)
            found = choose(compared)
        chosen, reason = found
        calibrator = CANDIDATES[chosen]().fit_partition(InMemory(block))
        report = {
            "chosen": chosen,
            "reason": reason,
            "candidates": [asdict(candidate) for candidate in compared],
            "converged": bool(getattr(calibrator, "converged_", True)),
            "chosen_parameters": calibrator.get_params(deep=False),
            "chosen_report": calibrator._report,
        }
        passing = {"candidates": compared, "calibrator": calibrator}
        return Fit(calibrator.rule_, report, passing, calibrator.neighbours_)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The estimator of a document from `read_calibrator`, with the chosen one in it."""
        estimator = super().from_document(document)
        report = document["report"]
        estimator.candidates_ = tuple(Candidate(**stored) for stored in report["candidates"])
        inner = {"parameters": report["chosen_parameters"], "report": report["chosen_report"]}
        kind = CANDIDATES[check_candidates([report["chosen"]])[0]]
        estimator.calibrator_ = kind.from_document({**document, **inner})
        return estimator


def auto(
    logits: Any, labels: Any = None, sample_weight: Any = None, **options: Any
) -> AutoCalibrator:
    """Choose a method on validation logits and labels, and fit it.

    Parameters
    ----------
    logits : array of shape (n, classes), or TopK
    labels : array-like of shape (n,)
    sample_weight : array-like of shape (n,), optional
    options
        Of `AutoCalibrator`: `candidates`, `cv`, `random_state`.

    Examples
    --------
    >>> import hokical
    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (logits, labels) = demo_logits()
    >>> cal = hokical.auto(val_logits, val_labels)
    >>> cal.reason_.startswith(f"{cal.chosen_} was chosen: ")
    True
    """
    return AutoCalibrator(**options).fit(logits, labels, sample_weight)


def check_candidates(candidates: Sequence[str] | None) -> list[str]:
    """Names of candidates, the simplest first."""
    known = list(CANDIDATES)
    if candidates is None:
        return known
    if isinstance(candidates, str) or not isinstance(candidates, Sequence) or not candidates:
        raise ValueError(
            f"`candidates` must be a sequence of names out of {known}; got {candidates!r}."
        )
    for name in candidates:
        if name not in CANDIDATES:
            raise ValueError(f"`candidates` must be out of {known}; got {name!r}.")
    return [name for name in known if name in candidates]


def assign_folds(correct: NDArray[np.bool_], n_folds: int, seed: int) -> IntArray:
    """The fold of each example, (n,), stratified by right and wrong answers."""
    shuffled = np.argsort(uniform_draws(seed, (correct.size, 1))[:, 0], kind="stable")
    order = shuffled[np.argsort(correct[shuffled], kind="stable")]
    fold = np.empty(correct.size, np.int64)
    fold[order] = np.arange(correct.size) % n_folds
    return fold


def held_out_losses(calibrator: BaseCalibrator, block: Block, fold: IntArray) -> FloatArray:
    """Log loss of each example, (n,), by a fit on the other folds.

    Probabilities are clipped at 1/(2n): a method that has seen no mistake may say 1, and a sample
    of n cannot tell that from 1 - 1/(2n).
    """
    least = 0.5 / block.n_rows
    losses = np.empty(block.n_rows)
    for k in range(int(fold.max()) + 1):
        unseen = np.flatnonzero(fold == k)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the final fit, on all examples, warns itself
            rule = calibrator._fit(InMemory(block.take(np.flatnonzero(fold != k)))).rule
        data = block.logits.take(unseen)
        confidence = data.on_host(answer(rule, "confidence", data))
        chance = np.where(block.correct[unseen], confidence, 1.0 - confidence)
        losses[unseen] = -np.log(np.clip(chance, least, 1.0 - least))
    return losses


def rank(losses: dict[str, FloatArray], weights: FloatArray | None) -> tuple[Candidate, ...]:
    """Mean losses, and paired differences to the best, in the given order."""
    share = np.ones(len(next(iter(losses.values())))) if weights is None else weights
    share = share / share.sum()
    means = {name: float(np.sum(share * loss)) for name, loss in losses.items()}
    best = min(means, key=lambda name: means[name])
    return tuple(
        Candidate(name, means[name], *_paired(loss - losses[best], share))
        for name, loss in losses.items()
    )


def choose(candidates: Sequence[Candidate]) -> tuple[str, str]:
    """The simplest candidate that is good enough, and why it was chosen."""
    best = min(candidates, key=lambda candidate: candidate.log_loss)
    chosen = next(candidate for candidate in candidates if candidate.good_enough)
    scores = ", ".join(f"{c.name} {c.log_loss:.4f}" for c in candidates)
    held_out = f"held-out log loss: {scores}"
    if chosen is best:
        return chosen.name, (
            f"{chosen.name} was chosen: it has the lowest held-out log loss, and nothing simpler "
            f"is within one standard error of it ({held_out})."
        )
    return chosen.name, (
        f"{chosen.name} was chosen: it is the simplest within one standard error of the best, "
        f"{best.name} ({chosen.behind:.5f} behind, standard error {chosen.standard_error:.5f}; "
        f"{held_out})."
    )


def _find_obvious(
    names: list[str], correct: NDArray[np.bool_], n_folds: int
) -> tuple[str, str] | None:
    """The choice and its reason where methods cannot be compared, else None."""
    wrong = int(correct.size - correct.sum())
    if len(names) == 1:
        return names[0], f"{names[0]} was chosen: it is the only candidate."
    if wrong == 0 and "profile" in names:
        return "profile", (
            "profile was chosen: without a mistake to learn from, it alone keeps the classifier's "
            "own confidence."
        )
    if correct.size < _FEWEST_EXAMPLES or min(wrong, correct.size - wrong) < n_folds:
        return names[0], (
            f"{names[0]} was chosen, the simplest: {correct.size} examples with {wrong} mistakes "
            f"are too few to compare methods on (at least {_FEWEST_EXAMPLES}, and {n_folds} right "
            "and wrong)."
        )
    return None


def _paired(gaps: FloatArray, share: FloatArray) -> tuple[float, float]:
    """Weighted mean of differences, and its standard error."""
    mean = float(np.sum(share * gaps))
    return mean, float(np.sqrt(np.sum((share * (gaps - mean)) ** 2)))

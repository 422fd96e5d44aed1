"""The default that chooses for itself: the simplest method that is good enough on held-out data."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._portable import uniform_draws
from hokical.bins import check_count
from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.ets import EnsembleTemperatureScaling
from hokical.calibrators.hoki import Hoki
from hokical.calibrators.profile import StabilityProfile
from hokical.calibrators.temps import TemperatureScaling
from hokical.logits import Logits
from hokical.stability.api import draw_seed
from hokical.topk import TopK

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: What can be chosen, the simplest first: by how many numbers each learns.
CANDIDATES: dict[str, type[BaseCalibrator]] = {
    kind.name: kind
    for kind in (TemperatureScaling, EnsembleTemperatureScaling, StabilityProfile, Hoki)
}
#: Fewer examples than this, or fewer mistakes than folds, and held-out losses say nothing.
_FEWEST_EXAMPLES = 50


@dataclass(frozen=True)
class Candidate:
    """A method's held-out log loss, and how much worse it is than the best one's."""

    name: str
    log_loss: float
    behind: float  # mean over examples of its loss minus the best method's
    standard_error: float  # of `behind`

    @property
    def good_enough(self) -> bool:
        """Within one standard error of the best."""
        return self.behind <= self.standard_error


class Calibrator(BaseCalibrator):
    """Choose among temps, ets, profile and hoki, and fit the one chosen on everything.

    Each candidate is fitted on all folds but one and measured on that one by the log loss of its
    confidence, so that every example is judged by a calibrator that has not seen it. The simplest
    candidate within one standard error of the best is taken; the standard error is that of the
    paired difference, example by example. Labels are never changed.

    `hokical.auto(logits, labels)` makes one and fits it.

    Parameters
    ----------
    candidates : sequence of {"temps", "ets", "profile", "hoki"}, optional
        What to choose from; None takes all four. The order does not matter: temps counts as the
        simplest, then ets, profile and hoki.
    n_folds : int
        Number of folds, at least 2.
    random_state : int, RandomState, Generator or None
        Which examples share a fold. An int gives the same folds on every machine.

    Attributes
    ----------
    chosen_ : the name of the method chosen
    reason_ : why, in words
    candidates_ : tuple of Candidate, the simplest first; empty where there was nothing to compare
    calibrator_ : the chosen method, fitted on all examples

    Examples
    --------
    >>> import numpy as np
    >>> from hokical import Calibrator
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(2000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = Calibrator().fit(3 * logits, labels)
    >>> cal.chosen_
    'temps'
    """

    candidates_: tuple[Candidate, ...]

    name = "auto"
    reference = "One-standard-error rule: Breiman, Friedman, Olshen, Stone, 1984"
    cost = "five fits of each candidate, then one of the chosen"
    accepts_top_k = True

    def __init__(
        self,
        *,
        candidates: Sequence[str] | None = None,
        n_folds: int = 5,
        random_state: Any = 0,
    ) -> None:
        self.candidates = candidates
        self.n_folds = n_folds
        self.random_state = random_state

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        names = check_candidates(self.candidates)
        n_folds = check_count(self.n_folds, name="n_folds", least=2)
        if weights is not None and not weights.all():
            counted = np.flatnonzero(weights)
            logits, labels, weights = logits.take(counted), labels[counted], weights[counted]
        correct = logits.labels == labels
        too_little = _too_little(names, correct, n_folds)
        self.candidates_ = ()
        if too_little:
            self.chosen_, self.reason_ = too_little
        else:
            fold = assign_folds(correct, n_folds, draw_seed(self.random_state))
            losses = {
                name: held_out_losses(CANDIDATES[name](), logits, labels, weights, fold)
                for name in names
            }
            self.candidates_ = rank(losses, weights)
            self.chosen_, self.reason_ = choose(self.candidates_)
        self.calibrator_ = CANDIDATES[self.chosen_]().fit(logits, labels, weights)

    def _confidence(self, logits: Logits) -> FloatArray:
        return self.calibrator_._confidence(logits)

    def _confidence_bounds(self, logits: TopK) -> tuple[FloatArray, FloatArray]:
        return self.calibrator_._confidence_bounds(logits)

    def _proba(self, logits: Logits) -> FloatArray:
        return self.calibrator_._proba(logits)

    @property
    def converged_(self) -> bool:
        """Whether the chosen method's own fit did."""
        return bool(getattr(self.calibrator_, "converged_", True))

    def _state(self) -> dict[str, Any]:
        return {
            "chosen": self.chosen_,
            "reason": self.reason_,
            "candidates": [asdict(candidate) for candidate in self.candidates_],
            "parameters": self.calibrator_.get_params(deep=False),
            "state": self.calibrator_._state(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.chosen_ = check_candidates([state["chosen"]])[0]
        self.reason_ = str(state["reason"])
        self.candidates_ = tuple(Candidate(**stored) for stored in state["candidates"])
        self.calibrator_ = CANDIDATES[self.chosen_](**state["parameters"])
        self.calibrator_._remember_classes(self.n_classes_)
        self.calibrator_._restore(state["state"])


def auto(logits: Any, labels: Any = None, sample_weight: Any = None, **options: Any) -> Calibrator:
    """A calibrator that was chosen by, and fitted on, validation logits and labels.

    Parameters
    ----------
    logits : array-like of shape (n, classes)
    labels : array-like of shape (n,)
        Left out where `logits` are chunks that bring theirs.
    sample_weight : array-like of shape (n,), optional
    options
        Of `Calibrator`: `candidates`, `n_folds`, `random_state`.

    Examples
    --------
    >>> import hokical
    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (logits, labels) = demo_logits()
    >>> cal = hokical.auto(val_logits, val_labels)
    >>> cal.reason_.startswith(f"{cal.chosen_} was chosen: ")
    True
    """
    return Calibrator(**options).fit(logits, labels, sample_weight)


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
    """The fold of each example, (n,): right and wrong answers are spread evenly over the folds."""
    shuffled = np.argsort(uniform_draws(seed, (correct.size, 1))[:, 0], kind="stable")
    order = shuffled[np.argsort(correct[shuffled], kind="stable")]
    fold = np.empty(correct.size, np.int64)
    fold[order] = np.arange(correct.size) % n_folds
    return fold


def held_out_losses(
    calibrator: BaseCalibrator,
    logits: Logits,
    labels: IntArray,
    weights: FloatArray | None,
    fold: IntArray,
) -> FloatArray:
    """-log of the chance given to what happened, (n,), each from a fit on the other folds.

    Certainty is taken for one part in two n: a method that has seen no mistake may say 1, and no
    sample of n can tell that from 1 - 1/(2n).
    """
    least = 0.5 / labels.size
    losses = np.empty(labels.size)
    for k in range(int(fold.max()) + 1):
        seen, unseen = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        data = logits.take(unseen)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit that counts is made again, on everything
            calibrator.fit(logits.take(seen), labels[seen], _part(weights, seen))
            confidence = calibrator.predict_confidence(data)
        right = data.labels == labels[unseen]
        chance = np.where(right, confidence, 1.0 - confidence)
        losses[unseen] = -np.log(np.clip(chance, least, 1.0 - least))
    return losses


def rank(losses: dict[str, FloatArray], weights: FloatArray | None) -> tuple[Candidate, ...]:
    """Mean losses, and paired differences to the best, in the order given."""
    share = np.ones(len(next(iter(losses.values())))) if weights is None else weights
    share = share / share.sum()
    means = {name: float(np.sum(share * loss)) for name, loss in losses.items()}
    best = min(means, key=lambda name: means[name])
    return tuple(
        Candidate(name, means[name], *_paired(loss - losses[best], share))
        for name, loss in losses.items()
    )


def choose(candidates: Sequence[Candidate]) -> tuple[str, str]:
    """The simplest candidate that is good enough, and why it was taken."""
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


def _too_little(
    names: list[str], correct: NDArray[np.bool_], n_folds: int
) -> tuple[str, str] | None:
    """What to take, and why, where nothing can be compared."""
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


def _part(weights: FloatArray | None, rows: IntArray) -> FloatArray | None:
    return None if weights is None else weights[rows]


def _paired(gaps: FloatArray, share: FloatArray) -> tuple[float, float]:
    """Weighted mean of differences, and its standard error."""
    mean = float(np.sum(share * gaps))
    return mean, float(np.sqrt(np.sum((share * (gaps - mean)) ** 2)))

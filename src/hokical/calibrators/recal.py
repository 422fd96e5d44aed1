"""ReCal: recursive calibration by lossy label-invariant transformations (Jang et al., 2020)."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from hokical._portable import uniform_draws
from hokical._tensors import is_tensor, predicts_tensors
from hokical._warnings import warn_user
from hokical.bins import check_count
from hokical.calibrators._recal_steps import N_GROUPS, Recursion, ScaledLogits, reaction_groups
from hokical.calibrators.base import BaseCalibrator, warn_about_impossible_truths
from hokical.calibrators.temps import settle_ties
from hokical.logits import Logits, as_logits
from hokical.stability.api import draw_seed
from hokical.streams.dispatch import as_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class ReCal(BaseCalibrator):
    """Calibrate groups of examples that react alike to a transformation of the input.

    Beside the logits it needs those of the same inputs under transformations that lose information
    but keep the label (the paper zooms images out, 20 scales in [0.1, 0.9]). One step: pick a
    transformation at random; put every example into one of four groups, by whether the transformed
    input gets another label or the same and whether the probability of the original label rose;
    fit a temperature per group by maximum likelihood; shrink it towards 1 by the group's share of
    the examples, 1 - share + share * temperature; if the calibration error (ECE) of all examples
    got worse, take 1 for all four, and a group whose own ECE got worse keeps 1; then apply the
    temperatures, to the original and to that transformation, by the same groups. Steps repeat until
    the ECE moves by less than `tolerance`. Prediction replays the recorded steps. Labels are never
    changed.

    A temperature here *multiplies* log-probabilities, so above 1 is sharper. Before that,
    probabilities below 1e-16 are raised to it.

    Parameters
    ----------
    n_iterations : int
        Most steps.
    n_bins : int
        Equal-width confidence bins of the ECE.
    tolerance : float
        Stop when a step moves the ECE by less.
    stop_when_worse : bool
        Whether a step that was undone as a whole, because it made the ECE worse, ends the recursion
        too: it moved the ECE by 0. By default the next transformation is tried.
    random_state : int, RandomState or None
        Seed of the choice of transformations. An int gives the same choice on every machine.

    Attributes
    ----------
    transformations_ : (n_iterations_,), the transformation of each step
    temperatures_ : (n_iterations_, 4), of the groups: label changed and probability rose, changed
        and did not rise, label kept and rose, kept and did not rise
    ece_ : (n_iterations_ + 1,), on the validation set, before the first step and after each
    n_transforms_ : how many transformations there are
    n_iterations_, converged_ : how the recursion ended
    ending_ : "converged" (a step moved the ECE by less than `tolerance`), "exhausted" (every
        transformation would make the ECE worse) or "limit" (`n_iterations` reached)

    Notes
    -----
    Where the authors' code and the description differ, this follows the description, with one
    exception that is an option (`stop_when_worse`, below). The code
    searches temperatures without bounds, from 100 starts between 0.1 and 10, and so can return a
    negative one, which turns labels round, or none for a group without mistakes; here the search
    has one start and stays in [0.1, 10] (the loss is convex, so nothing is lost inside). The code
    compares the first step with an ECE of 1 instead of the ECE before it, so that it never stops
    there. Its bins are open on the left, those of this library on the right.

    A step that was undone as a whole moves the ECE by 0. Read to the letter the description stops
    there, mostly after a few steps; that is `stop_when_worse=True`. By default, as in the authors'
    code, the next transformation is tried. One that failed is not computed again before another
    step has changed the confidences, and when all have failed the recursion ends ("exhausted").

    A class that a row masks (-inf) keeps probability 0. Examples whose true class is masked do not
    count for temperatures. Memory: two numbers per example and transformation.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.calibrators.recal import ReCal
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(4000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> zoomed = 3 * logits + rng.normal(size=(4, 4000, 5))
    >>> cal = ReCal(random_state=0)
    >>> cal = cal.fit(3 * logits[:2000], labels[:2000], transformed=zoomed[:, :2000])
    >>> confidence = cal.predict_confidence(3 * logits[2000:], transformed=zoomed[:, 2000:])
    >>> right = cal.predict(3 * logits[2000:]) == labels[2000:]
    >>> bool(abs(confidence.mean() - right.mean()) < 0.05)
    True
    """

    name = "recal"
    needs_transformed = True
    reference = (
        "Jang, Lee, Weimer: Improving Classifier Confidence Using Lossy Label-Invariant "
        "Transformations, 2020"
    )
    cost = "the logits of all transformed inputs, then about ten softmax passes per step"

    def __init__(
        self,
        *,
        n_iterations: int = 200,
        n_bins: int = 15,
        tolerance: float = 1e-6,
        stop_when_worse: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.n_iterations = n_iterations
        self.n_bins = n_bins
        self.tolerance = tolerance
        self.stop_when_worse = stop_when_worse
        self.random_state = random_state

    def fit(
        self, logits: Any, labels: Any = None, sample_weight: Any = None, *, transformed: Any = None
    ) -> Self:
        """Learn from validation logits and labels.

        Parameters
        ----------
        logits : array-like of shape (n, classes)
            Or chunks of (logits, labels), as other methods take them; they are gathered.
        labels : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        transformed : array-like of shape (n_transforms, n, classes)
            The logits of the same inputs under each transformation.
        """
        blocks = as_blocks(logits, labels, sample_weight)
        if blocks is not None:
            logits, labels, sample_weight = blocks.gather(type(self).__name__)
        data, truth, weights = self._checked_examples(logits, labels, sample_weight)
        self._check_parameters()
        views = _as_views(transformed, data)
        weights = np.ones(data.n_rows) if weights is None else weights
        warn_about_impossible_truths(data, truth, weights)
        self._forget_classes()
        self._learn(data, views, truth, weights)
        self._keep_fit_scores(data, truth, weights)
        self._remember_classes(data.n_classes)
        return self

    @predicts_tensors
    def predict_confidence(self, logits: Any, *, transformed: Any = None) -> FloatArray:
        """The chance (n,) that each label is right, given `transformed` as in `fit`."""
        return self._replay(self._checked_logits(logits), transformed).confidence

    def _confidence_given(self, logits: Logits, transformed: Any) -> FloatArray:
        return self._replay(logits, transformed).confidence

    @predicts_tensors
    def predict_proba(self, logits: Any, *, transformed: Any = None) -> FloatArray:
        """Probabilities (n, classes), given `transformed` as in `fit`; rows sum to 1."""
        data = self._checked_logits(logits)
        return settle_ties(self._replay(data, transformed).distribution(), data.labels)

    def score(
        self, logits: Any, labels: Any, sample_weight: Any = None, *, transformed: Any = None
    ) -> float:
        """Minus the Brier score of the confidence: larger is better, 0 is perfect."""
        data, truth, weights = self._checked_examples(logits, labels, sample_weight)
        confidence = self.predict_confidence(data, transformed=transformed)
        return -float(np.average((confidence - (data.labels == truth)) ** 2, weights=weights))

    def _check_parameters(self) -> None:
        check_count(self.n_bins)
        check_count(self.n_iterations, name="n_iterations")
        if not isinstance(self.stop_when_worse, (bool, np.bool_)):
            raise ValueError(
                f"`stop_when_worse` must be True or False; got {self.stop_when_worse!r}."
            )
        if not isinstance(self.tolerance, Real) or not float(self.tolerance) >= 0.0:
            raise ValueError(
                f"`tolerance` must be a number of at least 0; got {self.tolerance!r}. "
                "The paper uses 1e-6."
            )

    def _learn(
        self, logits: Logits, views: list[Logits], labels: IntArray, weights: FloatArray
    ) -> None:
        picks = _pick_transformations(draw_seed(self.random_state), self.n_iterations, len(views))
        recursion = Recursion(logits, views, labels, weights, self.n_bins)
        self.ending_ = recursion.run(picks, self.tolerance, self.stop_when_worse)
        self.transformations_ = np.array(recursion.transformations, np.int64)
        self.temperatures_ = np.array(recursion.temperatures).reshape(-1, N_GROUPS)
        self.ece_ = np.array(recursion.ece)
        self._settle(len(views))
        if not self.converged_:
            warn_user(
                f"ReCal did not converge in {self.n_iterations} iterations: some transformations "
                "are untried since the last step, or still move the calibration error by more "
                f"than `tolerance`, {self.tolerance:g}. Raise `n_iterations` or `tolerance`.",
                ConvergenceWarning,
            )

    def _settle(self, n_transforms: int) -> None:
        self.n_transforms_ = n_transforms
        self.n_iterations_ = int(self.transformations_.size)
        self.converged_ = self.ending_ != "limit"

    def _replay(self, logits: Logits, transformed: Any) -> ScaledLogits:
        """The logits after all recorded steps."""
        views = _as_views(transformed, logits, self.n_transforms_)
        current = ScaledLogits.start(logits)
        others = [ScaledLogits.start(view) for view in views]
        for chosen, temperatures in zip(self.transformations_, self.temperatures_, strict=True):
            if (temperatures != 1.0).any():
                per_row = temperatures[reaction_groups(current, others[chosen])]
                current, others[chosen] = current.times(per_row), others[chosen].times(per_row)
        return current

    def _state(self) -> dict[str, Any]:
        return {
            "n_transforms": self.n_transforms_,
            "transformations": self.transformations_,
            "temperatures": self.temperatures_,
            "ece": self.ece_,
            "ending": self.ending_,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.transformations_, self.temperatures_ = state["transformations"], state["temperatures"]
        self.ece_, self.ending_ = state["ece"], state["ending"]
        if self.temperatures_.shape != (self.transformations_.size, N_GROUPS):
            raise ValueError(f"temperatures have shape {self.temperatures_.shape}")
        if not ((self.temperatures_ > 0.0) & np.isfinite(self.temperatures_)).all():
            raise ValueError("temperatures must be finite and above 0")
        self._settle(int(state["n_transforms"]))


def _pick_transformations(seed: int, n_picks: int, n_transforms: int) -> IntArray:
    """The transformation of each step, (n_picks,), the same on every machine."""
    uniform = uniform_draws(seed, (n_picks, 1))[:, 0]
    return np.asarray((uniform * n_transforms).astype(np.int64))


def _as_views(transformed: Any, logits: Logits, n_transforms: int | None = None) -> list[Logits]:
    """Check `transformed` against the logits and cut it into one `Logits` per transformation."""
    wanted = "n_transforms" if n_transforms is None else n_transforms
    rule = (
        f"`transformed` must have shape ({wanted}, {logits.n_rows}, {logits.n_classes}): the "
        "logits of the same inputs under each transformation, in the order used in `fit`"
    )
    if transformed is None:
        raise ValueError(f"ReCal needs `transformed`. {rule}.")
    as_it_is = isinstance(transformed, np.ndarray) or is_tensor(transformed)
    array = transformed if as_it_is else np.asarray(transformed)
    shape = tuple(array.shape)
    fits = len(shape) == 3 and shape[0] > 0 and shape[1:] == (logits.n_rows, logits.n_classes)
    if not fits or (n_transforms is not None and shape[0] != n_transforms):
        raise ValueError(f"{rule}; got shape {shape}.")
    return [as_logits(view, name=f"transformed[{i}]") for i, view in enumerate(array)]

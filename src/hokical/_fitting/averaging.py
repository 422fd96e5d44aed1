"""Few classes: three candidates, averaged with weights of least held-out log loss (stacking)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.parallel import one_blas_thread
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
from hokical._fitting.newton import least_log_loss
from hokical._fitting.structured import (
    STRENGTH,
    StructuredFit,
    fit_structured,
    scores_left_out,
    structured_objective,
)
from hokical._fitting.temperature import choose_base, sharpen_without_each
from hokical.rules._auto import PARTS, AutoRule, Average, ClassScaling, as_log_proba, as_scores
from hokical.rules._probabilities import LEAST, add_floor, softmax, uncalibrated
from hokical.rules._row_correction import RowCorrection
from hokical.rules._structured import mix_evenly

#: Candidates are weighed, and rows corrected, on rows of at most about this many logits, at least
#: this many rows: few numbers are chosen, and known well enough by then.
WEIGHED_SIZE, WEIGHED_ROWS = 1 << 17, 2500
#: The weights begin with examples that speak for structured scaling of two classes; or, of more,
#: for temperature scaling, by the class beyond two, and at most.
FOR_STRUCTURED, FOR_TEMPERATURE, MOST_FOR_TEMPERATURE = 2.0, 0.25, 6.0
#: The probability that other candidates give to such an example.
_UNLIKELY = 1e-9
#: Candidates with less weight are left out.
LEAST_WEIGHT = 0.01
#: The fit ends with a Newton step that promises no more than this in mean log loss; less where that
#: is below the second, down to 1 %. About a hundredth of it is left.
TOLERANCE, SMALL_LOSS, MAX_ITER = 1e-4, 0.1, 200


@dataclass(frozen=True, eq=False)
class BaseFit:
    """What the default fits before its row correction: the `base` of its rule, behind a `floor`.

    `held_out` are its scores of `examples` by a fit without each. `shares` and held-out log
    `losses` are of its candidates, by name.
    """

    base: Average | ClassScaling
    floor: float
    examples: Examples
    held_out: Logits
    shares: dict[str, float]
    losses: dict[str, float]
    converged: bool

    def scores(self, logits: Logits, correction: RowCorrection | None = None) -> Logits:
        """The scores of a block, as logits; after a correction."""
        here = AutoRule(self.base, correction, keep_labels=False).on_device_of(logits)
        found = here.base.logits(add_floor(logits, self.floor) if self.floor > 0.0 else logits)
        return found if here.correction is None else as_scores(here.correction.scores(found), found)


def fit_average(examples: Examples) -> BaseFit:
    """Fit structured scaling and the weights of the candidates."""
    base = choose_base(examples)
    tol = TOLERANCE * min(max(base.temperature.value / SMALL_LOSS, 0.01), 1.0)
    fit = fit_structured(base, cross_terms=True, tol=tol, max_iter=MAX_ITER)
    some, parts = _hold_out(examples, fit)
    logits = some.logits
    truth = logits.from_host(some.labels)[:, None]
    own = [logits.to_host(logits.xp.take_along_axis(part, truth, axis=1)) for part in parts]
    true = np.maximum(np.concatenate(own, axis=1), LEAST)
    weights = _best_weights(true, some.share, _prior(examples.n_classes) / some.effective_size)
    shares = dict(zip(PARTS, weights.tolist(), strict=True))
    mixed = sum(part * share for part, share in zip(parts, shares.values(), strict=True))
    losses = dict(zip(PARTS, (-some.share @ np.log(true)).tolist(), strict=True))
    losses["average"] = float(-some.share @ np.log(true @ weights))
    return BaseFit(
        Average(weights, fit.rule),
        0.0,
        some,
        as_log_proba(mixed, logits),
        {name: share for name, share in shares.items() if share > 0.0},
        losses,
        fit.minimum.converged,
    )


def _prior(n_classes: int) -> FloatArray:
    """Examples (3,) that speak for one of `PARTS` before any is seen."""
    if n_classes == 2:
        return np.array([0.0, 0.0, FOR_STRUCTURED])
    return np.array([0.0, min(FOR_TEMPERATURE * (n_classes - 2.0), MOST_FOR_TEMPERATURE), 0.0])


def _best_weights(true: FloatArray, share: FloatArray, prior: FloatArray) -> FloatArray:
    """The weights (3,) of least log loss, small ones left out.

    `true` (n, 3) are the candidates' probabilities of the true classes, `share` (n,) sums to 1,
    and `prior` (3,) are more examples, each for one candidate alone.
    """
    biased = np.flatnonzero(prior)
    true = np.vstack([true, np.maximum(np.eye(len(PARTS)), _UNLIKELY)[biased]])
    share = np.append(share, prior[biased])
    found = least_log_loss(true, share / share.sum())
    found = np.where(found < LEAST_WEIGHT, 0.0, found)
    return np.asarray(found / found.sum())


def weighing_step(logits: Logits) -> int:
    """One of how many rows each is enough to weigh candidates."""
    return min(logits.n_rows * logits.n_columns // WEIGHED_SIZE, logits.n_rows // WEIGHED_ROWS)


def _hold_out(examples: Examples, fit: StructuredFit) -> tuple[Examples, tuple[Array, ...]]:
    """Some examples, and the probabilities (n, classes) of `PARTS` fitted on all others.

    Where only some rows are used, their curvature is taken for that of all. The floor, and the
    temperature inside structured scaling, stay those of the whole.
    """
    logits, temperature = examples.logits, fit.rule.temperature
    step = weighing_step(logits)
    some, floored, point = examples, fit.base.examples, fit.minimum.point
    with one_blas_thread():
        if step >= 2:
            some, floored = examples.every(step), floored.every(step)
            strength = STRENGTH / examples.effective_size
            objective = structured_objective(floored, temperature, True, strength)
            point = objective.evaluate(fit.minimum.x)
        part = some.n_rows / examples.n_rows
        scores = floored.logits.xp.concat(scores_left_out(point, fit.minimum.x, part), axis=0)
    sharper = logits.from_host(sharpen_without_each(floored, temperature, part) / temperature)
    even = 1.0 / examples.effective_size
    return some, (
        uncalibrated(some.logits),
        softmax(floored.logits.margins * -sharper[:, None], some.logits),
        mix_evenly(softmax(scores, some.logits), even, some.logits),
    )

"""The link of the stability profile: logistic regression that shrinks towards an
offset.

The log-odds of being right are modelled as offset + x . b with a penalty on all of b,
at several strengths. Each strength is judged by its leave-one-out log loss, in closed
form from the leverages at its optimum, and the answer is an average of all, the offset
alone among them, by weights

    exp(-(sum of the leave-one-out losses + price * standard error of its gain over the
    offset)).

An average changes little where a choice of the best would jump; and what the added
columns gain must exceed its own standard error to count. That error is itself known
badly where mistakes are few: the price is 1 + 20/m, m the number of mistakes (or of
right answers, if those are fewer). Where the offset alone has more than half of the
weight, it gets all of it: what is not worth more than chance is left out whole. So with
few examples the offset is what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hokical_paper.core import one_blas_thread
from hokical_paper.core.fitting import BinaryTerms, binary_losses, minimize_dense
from hokical_paper.types import BoolArray, FloatArray

#: In units of one example's information about a standardised column: from none left to
#: hardly any.
PENALTIES = (1000.0, 100.0, 10.0, 1.0, 0.1)
#: With this many mistakes the price of a standard error is 2.
_FEW_MISTAKES = 20.0
#: Columns that vary by less than this share of their size hold rounding, not
#: information.
_FLAT = 1e-9
#: The drop that is expected of the last step of a search.
_TOLERANCE = 5e-10


@dataclass(frozen=True, eq=False)
class LinkCandidate:
    """One strength: its coefficients (p,), and the leave-one-out losses (n,)."""

    penalty: float
    coef: FloatArray
    losses: FloatArray
    converged: bool
    n_iter: int


@dataclass(frozen=True, eq=False)
class LinkFit:
    """The averaged link: log-odds = offset + intercept + columns @ coef, and what it
    is made of.
    """

    intercept: float
    coef: FloatArray
    penalties: FloatArray  # (K,), inf first: the offset alone
    shares: FloatArray  # (K,), what each counts in the average; they sum to 1
    loo_losses: FloatArray  # (K,), mean leave-one-out log loss in nats
    converged: bool
    n_iter: int


def fit_link(
    columns: FloatArray,
    offset: FloatArray,
    correct: BoolArray,
    counts: FloatArray,
    *,
    penalties: tuple[float, ...] = PENALTIES,
    max_iter: int = 200,
) -> LinkFit:
    """Fit and average over the strengths; `columns` (n, p), `offset` and `counts` (n,),
    all finite.

    `penalties` fall from candidate to candidate; inf, the offset alone, is always tried
    first, unless one strength alone is given.
    """
    centre, scale = _standardisation(columns, counts)
    features = np.column_stack([np.ones(correct.size), (columns - centre) * scale])
    with one_blas_thread():
        terms = BinaryTerms(features, correct, offset, counts)
        candidates = _candidates(terms, penalties, max_iter)
    price = error_price(correct, counts)
    shares = weigh_candidates(
        [candidate.losses for candidate in candidates], counts, price
    )
    standard = np.sum(
        [s * c.coef for s, c in zip(shares, candidates, strict=True)], axis=0
    )
    coef = standard[1:] * scale
    means = [float(np.sum(counts * c.losses) / counts.sum()) for c in candidates]
    return LinkFit(
        intercept=float(standard[0] - np.sum(coef * centre)),
        coef=coef,
        penalties=np.array([candidate.penalty for candidate in candidates]),
        shares=shares,
        loo_losses=np.array(means),
        converged=all(candidate.converged for candidate in candidates),
        n_iter=sum(candidate.n_iter for candidate in candidates),
    )


def _standardisation(
    columns: FloatArray, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Weighted means (p,), and 1 over the standard deviations, 0 for columns that do
    not vary.
    """
    share = counts / counts.sum()
    centre = np.sum(share[:, None] * columns, axis=0)
    deviation = np.sqrt(np.sum(share[:, None] * (columns - centre) ** 2, axis=0))
    varies = deviation > _FLAT * np.maximum(1.0, np.abs(centre))
    return centre, np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)


def _candidates(
    terms: BinaryTerms, penalties: tuple[float, ...], max_iter: int
) -> list[LinkCandidate]:
    """One candidate per strength, each search starting where the one before ended."""
    coef = np.zeros(terms.n_features)
    alone = LinkCandidate(
        np.inf, coef, binary_losses(terms.offset, terms.hits), True, 0
    )
    if penalties == (np.inf,):
        return [alone]
    candidates = [] if len(penalties) == 1 else [alone]
    for penalty in penalties:
        if penalty < np.inf:
            evaluate = partial(terms.ridge, penalty=penalty)
            best = minimize_dense(evaluate, coef, max_iter, tol=_TOLERANCE)
            coef = best.x
            losses = _losses_left_out(terms, coef, penalty)
            candidates.append(
                LinkCandidate(penalty, coef, losses, best.converged, best.n_iter)
            )
    return candidates


def _losses_left_out(
    terms: BinaryTerms, coef: FloatArray, penalty: float
) -> FloatArray:
    """Log loss (n,) of each example by the fit without it, at the optimum of
    `terms.ridge`.

    An example that counts more than once has the others left; one that counts less is
    left out by what it counts.
    """
    _, _, hessian = terms.ridge(coef, penalty)
    inverse = np.asarray(np.linalg.inv(hessian * terms.weights.sum()), np.float64)
    once = replace(terms, weights=np.minimum(terms.weights, 1.0))
    scores = terms.offset + terms.features @ coef
    cell = np.zeros(scores.size, np.int64)
    return once.losses(once.leave_out(scores, slice(None), inverse[None], cell))


def error_price(correct: BoolArray, counts: FloatArray) -> float:
    """How many standard errors a gain is charged; inf if all are right or all are
    wrong.
    """
    rarer = min(float(counts[correct].sum()), float(counts[~correct].sum()))
    return 1.0 + _FEW_MISTAKES / rarer if rarer > 0.0 else np.inf


def weigh_candidates(
    losses: list[FloatArray], counts: FloatArray, price: float
) -> FloatArray:
    """What each candidate counts, (K,): the first, the offset alone, pays no
    standard error.
    """
    costs = [0.0]
    for loss in losses[1:]:
        gain = loss - losses[0]
        mean = np.sum(counts * gain) / counts.sum()
        error = np.sqrt(np.sum(counts * (gain - mean) ** 2))
        costs.append(
            float(np.sum(counts * gain) + price * error) if price < np.inf else np.inf
        )
    shares = np.exp(np.min(costs) - np.array(costs))
    shares /= shares.sum()
    if len(losses) > 1 and shares[0] > 0.5:
        shares = np.eye(len(losses))[0]
    return np.asarray(shares)

"""The link of the stability profile: logistic regression that shrinks towards an offset.

The log-odds of being right are modelled as offset + x . b with a penalty on all of b, at several
strengths. Each strength is judged by its leave-one-out log loss, in closed form from the leverages
at its optimum, and the answer is an average of all, the offset alone among them, by weights

    exp(-(sum of the leave-one-out losses + price * standard error of its gain over the offset)).

An average changes little where a choice of the best would jump; and what the added columns gain
must exceed its own standard error to count. That error is itself known badly where mistakes are
few: the price is 1 + 20/m, m the number of mistakes (or of right answers, if those are fewer).
Where the offset alone has more than half of the weight, it gets all of it: what is not worth more
than chance is left out whole. So with few examples the offset is what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from hokical._core.types import BoolArray, FloatArray
from hokical._fitting.newton import minimize_dense

#: In units of one example's information about a standardised column: from none left to hardly any.
PENALTIES = (1000.0, 100.0, 10.0, 1.0, 0.1)
#: With this many mistakes the price of a standard error is 2.
_FEW_MISTAKES = 20.0
#: Columns that vary by less than this share of their size hold rounding, not information.
_FLAT = 1e-9
#: The drop that the last step of a search promises.
_TOLERANCE = 5e-10
#: Products of this many examples run on one thread, whatever BLAS does with more.
_SMALL = 2048


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
    """The averaged link: log-odds = offset + intercept + columns @ coef, and what it is made of."""

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
    """Fit and average over the strengths; `columns` (n, p), `offset` and `counts` (n,), all finite.

    `penalties` fall from candidate to candidate; inf, the offset alone, is always tried first,
    unless one strength alone is given.
    """
    centre, scale = _standardisation(columns, counts)
    problem = _Problem(
        np.vstack([np.ones(correct.size), ((columns - centre) * scale).T]),
        offset,
        np.where(correct, 1.0, -1.0),
        counts,
    )
    candidates = _candidates(problem, penalties, max_iter)
    price = error_price(correct, counts)
    shares = weigh_candidates([candidate.losses for candidate in candidates], counts, price)
    standard = np.sum([s * c.coef for s, c in zip(shares, candidates, strict=True)], axis=0)
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


def _standardisation(columns: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted means (p,), and 1 over the standard deviations, 0 for columns that do not vary."""
    share = counts / counts.sum()
    centre = np.sum(share[:, None] * columns, axis=0)
    deviation = np.sqrt(np.sum(share[:, None] * (columns - centre) ** 2, axis=0))
    varies = deviation > _FLAT * np.maximum(1.0, np.abs(centre))
    return centre, np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Standardised columns as rows (p, n), the first all ones; what to add; -1/1; counts (n,)."""

    columns: FloatArray
    offset: FloatArray
    signs: FloatArray
    counts: FloatArray

    def at(self, coef: FloatArray) -> _LinkPoint:
        """What is known at `coef` (p,); kept until another is asked about.

        One strength's search ends where its leave-one-out losses are asked for and the next begins.
        """
        key = coef.tobytes()
        if key not in self._kept:
            self._kept.clear()
            self._kept[key] = self._evaluate(coef)
        return self._kept[key]

    @cached_property
    def _kept(self) -> dict[bytes, _LinkPoint]:
        return {}

    def _evaluate(self, coef: FloatArray) -> _LinkPoint:
        from scipy.special import expit

        # einsum, not matmul: the order of BLAS's sums depends on its threads, but for small blocks.
        log_odds = self.offset + np.einsum("p,pn->n", coef, self.columns)
        likely = expit(self.signs * log_odds)
        with np.errstate(divide="ignore"):  # a step too far costs infinitely much
            loss = -np.sum(self.counts * np.log(likely))
        slope = np.einsum("pn,n->p", self.columns, self.counts * self.signs * (likely - 1.0))
        weighted = self.columns * (self.counts * likely * (1.0 - likely))
        cuts = [slice(start, start + _SMALL) for start in range(0, likely.size, _SMALL)]
        curvature = np.sum([weighted[:, cut] @ self.columns[:, cut].T for cut in cuts], axis=0)
        return _LinkPoint(log_odds, likely, float(loss), slope, curvature)

    def evaluate(self, coef: FloatArray, penalty: float) -> tuple[float, FloatArray, FloatArray]:
        """Penalised log loss per unit of weight, its gradient (p,) and Hessian (p, p)."""
        here, total = self.at(coef), self.counts.sum()
        value = here.loss + 0.5 * penalty * float(np.sum(coef * coef))
        hessian = here.curvature + penalty * np.eye(coef.size)
        return value / total, (here.slope + penalty * coef) / total, hessian / total

    def leave_one_out(self, coef: FloatArray, penalty: float) -> FloatArray:
        """Log loss of each example by a fit without it, one Newton step from the optimum, (n,).

        An example that counts more than once has the others left; one that counts less is left
        out by what it counts.
        """
        here = self.at(coef)
        inverse = np.linalg.inv(here.curvature + penalty * np.eye(coef.size))
        reach = np.einsum("pn,pn->n", self.columns, inverse @ self.columns)
        reach *= np.minimum(self.counts, 1.0)
        left = np.maximum(1.0 - here.likely * (1.0 - here.likely) * reach, 1e-6)
        moved = self.signs * (1.0 - here.likely) * reach / left
        return log_losses(here.log_odds - moved, self.signs)


@dataclass(frozen=True, eq=False)
class _LinkPoint:
    """Log-odds (n,), the probability of what happened (n,), and sums of log losses without penalty."""

    log_odds: FloatArray
    likely: FloatArray
    loss: float
    slope: FloatArray
    curvature: FloatArray


def log_losses(log_odds: FloatArray, signs: FloatArray) -> FloatArray:
    """-log of the probability given to what happened, (n,); signs are 1 for right and -1 for wrong."""
    from scipy.special import log_expit

    return np.asarray(-log_expit(signs * log_odds))


def _candidates(
    problem: _Problem, penalties: tuple[float, ...], max_iter: int
) -> list[LinkCandidate]:
    """One candidate per strength, each search starting where the one before ended."""
    coef = np.zeros(problem.columns.shape[0])
    alone = LinkCandidate(np.inf, coef, log_losses(problem.offset, problem.signs), True, 0)
    if penalties == (np.inf,):
        return [alone]
    found = [] if len(penalties) == 1 else [alone]
    for penalty in penalties:
        if penalty < np.inf:
            evaluate = partial(problem.evaluate, penalty=penalty)
            best = minimize_dense(evaluate, coef, max_iter, tol=_TOLERANCE)
            coef = best.x
            losses = problem.leave_one_out(coef, penalty)
            found.append(LinkCandidate(penalty, coef, losses, best.converged, best.n_iter))
    return found


def error_price(correct: BoolArray, counts: FloatArray) -> float:
    """How many standard errors a gain is charged; inf if all are right or all are wrong."""
    rarer = min(float(counts[correct].sum()), float(counts[~correct].sum()))
    return 1.0 + _FEW_MISTAKES / rarer if rarer > 0.0 else np.inf


def weigh_candidates(losses: list[FloatArray], counts: FloatArray, price: float) -> FloatArray:
    """What each candidate counts, (K,): the first, the offset alone, pays no standard error."""
    costs = [0.0]
    for loss in losses[1:]:
        gain = loss - losses[0]
        mean = np.sum(counts * gain) / counts.sum()
        error = np.sqrt(np.sum(counts * (gain - mean) ** 2))
        costs.append(float(np.sum(counts * gain) + price * error) if price < np.inf else np.inf)
    shares = np.exp(np.min(costs) - np.array(costs))
    shares /= shares.sum()
    if len(losses) > 1 and shares[0] > 0.5:
        shares = np.eye(len(losses))[0]
    return np.asarray(shares)

"""What `ms_odir` and `dir_odir` share: objective, solver, choice of penalties, estimator.

Both give softmax(W x + b) and minimise

    mean log loss + lambda * mean(squared off-diagonals of W) + mu * mean(squared b)

(Kull et al., 2019). In here the features carry a last column of ones and are multiplied by the
inverse temperature that suits them, so W and b are one matrix `coef` (classes, classes + 1) whose
natural value is the identity, and the penalty is a matrix of the same shape.

The diagonal of W is not penalised in the paper, so a class nobody has, or examples that are all
right, would send it to infinity. A ridge of DIAGONAL_RIDGE around the temperature-scaled identity
makes the optimum exist and be unique; it is far too small to show where the data say anything.

The solver is Newton's method with conjugate gradients: the Hessian is only ever multiplied, by two
products of (n, classes) with (classes, classes). Nothing is larger than about seven (n, classes)
and a dozen (classes, classes) float64 arrays.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from hokical.calibrators.base import Calibrator
from hokical.logits import Logits
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Weight of mean((diagonal - temperature-scaled 1)^2), in units of that 1.
DIAGONAL_RIDGE = 1e-6

#: Half decades; a path ends early, so the small ones cost only where they are useful.
QUICK_LAMBDAS = tuple(10.0 ** (k / 2) for k in range(12, -5, -1))
#: The first keeps the bias out while lambda is chosen.
QUICK_MUS = (10.0, 1.0, 0.1, 0.01, 0.001)

#: A path of falling penalties ends after this many settings without a better score.
PATIENCE = 2
#: Scores need not be exact to be compared: the solver's tolerance while cross-validating.
SEARCH_TOL = 1e-6
#: Most conjugate-gradient steps for one Newton step.
MAX_CG_STEPS = 250

#: Rows are cut into at most this many blocks, each of at least that many numbers.
MAX_BLOCKS = 8
MIN_BLOCK_SIZE = 1 << 15


@dataclass(frozen=True, eq=False)
class Examples:
    """What a fit sees.

    `inputs` (n, classes + 1) scaled features and a column of ones, `masked` (n, classes) True for
    impossible classes or None without any, `labels` (n,), `weights` (n,) that sum to 1.
    """

    inputs: FloatArray
    masked: BoolArray | None
    labels: IntArray
    weights: FloatArray

    @property
    def n_classes(self) -> int:
        return int(self.inputs.shape[1]) - 1

    def take(self, rows: BoolArray) -> Examples:
        """Some of the rows, with weights that sum to 1 again."""
        weights = self.weights[rows]
        masked = None if self.masked is None else self.masked[rows]
        return Examples(self.inputs[rows], masked, self.labels[rows], weights / weights.sum())


@dataclass(frozen=True, eq=False)
class Point:
    """A `coef` (classes, classes + 1), its scores and probabilities (n, classes), its objective."""

    coef: FloatArray
    scores: FloatArray
    value: float
    proba: FloatArray


@dataclass(frozen=True, eq=False)
class Fit:
    """A minimum: `coef` (classes, classes + 1) and how the solver got there."""

    coef: FloatArray
    n_iterations: int
    converged: bool


@dataclass(frozen=True, eq=False)
class Trial:
    """One cross-validated setting; `coefs` are its fits, one per fold, to start the next from."""

    strength: tuple[float, float]
    log_loss: float
    converged: bool
    coefs: list[FloatArray]


# Objective ------------------------------------------------------------------------------------


def identity(n_classes: int) -> FloatArray:
    """The `coef` (classes, classes + 1) of temperature scaling: W = 1, b = 0."""
    return np.eye(n_classes, n_classes + 1)


def penalty_matrix(n_classes: int, strength: tuple[float, float], scale: float) -> FloatArray:
    """R (classes, classes + 1) with penalty = sum(R * (coef - identity)^2) / 2.

    `strength` is (lambda, mu) for the user's W = scale * coef, so lambda is multiplied by scale^2.
    """
    off_diagonal, bias = strength
    matrix = np.empty((n_classes, n_classes + 1))
    matrix[:] = 2.0 * off_diagonal * scale**2 / (n_classes * (n_classes - 1))
    np.fill_diagonal(matrix, 2.0 * DIAGONAL_RIDGE / n_classes)
    matrix[:, -1] = 2.0 * bias / n_classes
    return matrix


def block_rows(n_rows: int, n_classes: int) -> int:
    """Rows per block: few blocks, for each has a (classes, classes) sum, and none tiny."""
    return max(-(-n_rows // MAX_BLOCKS), MIN_BLOCK_SIZE // n_classes, 1)


def sum_over_blocks(examples: Examples, work: Callable[[slice], FloatArray]) -> FloatArray:
    """The sum of `work(rows)` over blocks of rows, in their order: threads change no bit of it."""
    n_rows = examples.inputs.shape[0]
    step = block_rows(n_rows, examples.n_classes)
    parts: dict[int, FloatArray] = {}

    def keep(rows: slice) -> None:
        parts[rows.start] = work(rows)

    for_row_blocks(keep, n_rows, step)
    total = parts[0]
    for start in range(step, n_rows, step):
        total += parts[start]
    return total


def linear_scores(examples: Examples, coef: FloatArray) -> FloatArray:
    """Scores (n, classes) of a `coef` (classes, classes + 1)."""
    out = np.empty((examples.inputs.shape[0], examples.n_classes))

    def work(rows: slice) -> None:
        np.matmul(examples.inputs[rows], coef.T, out=out[rows])

    for_row_blocks(work, out.shape[0], block_rows(*out.shape))
    return out


def softmax_in_place(scores: FloatArray, masked: BoolArray | None, labels: IntArray) -> FloatArray:
    """Turn scores (n, classes) into probabilities; returns the log loss (n,) of each row."""
    loss = np.empty(scores.shape[0])

    def work(rows: slice) -> None:
        part = scores[rows]
        if masked is not None:
            part[masked[rows]] = -np.inf
        part -= part.max(axis=1, keepdims=True)
        own = part[np.arange(part.shape[0]), labels[rows]]
        np.exp(part, out=part)
        total = part.sum(axis=1)
        part /= total[:, None]
        loss[rows] = np.log(total) - own

    for_row_blocks(work, scores.shape[0], block_rows(*scores.shape))
    return loss


def point_at(
    examples: Examples, penalty: FloatArray, coef: FloatArray, scores: FloatArray
) -> Point:
    """The objective, penalised mean log loss, at `coef` with its scores (n, classes)."""
    proba = scores.copy()
    loss = softmax_in_place(proba, examples.masked, examples.labels)
    away = coef - identity(examples.n_classes)
    value = float(examples.weights @ loss + 0.5 * np.vdot(penalty * away, away))
    return Point(coef, scores, value, proba)


def gradient(
    examples: Examples, penalty: FloatArray, coef: FloatArray, proba: FloatArray
) -> FloatArray:
    """Derivative (classes, classes + 1) of the objective: (P - Y)' X and the penalty's."""

    def work(rows: slice) -> FloatArray:
        residual = proba[rows].copy()
        residual[np.arange(residual.shape[0]), examples.labels[rows]] -= 1.0
        residual *= examples.weights[rows, None]
        return np.asarray(residual.T @ examples.inputs[rows])

    slope = sum_over_blocks(examples, work)
    slope += penalty * (coef - identity(examples.n_classes))
    return slope


def curvature_along(
    examples: Examples, penalty: FloatArray, proba: FloatArray, direction: FloatArray
) -> FloatArray:
    """The Hessian times `direction`, (classes, classes + 1), by two matrix products."""

    def work(rows: slice) -> FloatArray:
        chance = proba[rows]
        change = examples.inputs[rows] @ direction.T
        change -= np.einsum("ij,ij->i", change, chance)[:, None]
        change *= chance
        change *= examples.weights[rows, None]
        return np.asarray(change.T @ examples.inputs[rows])

    product = sum_over_blocks(examples, work)
    product += penalty * direction
    return product


class Preconditioner:
    """An easy stand-in for the Hessian: for each class a diagonal plus one outer product.

    The examples that matter to a class look alike, so their mean carries most of the curvature
    and the diagonal is left with the variance about it.
    """

    def __init__(self, examples: Examples, penalty: FloatArray, proba: FloatArray) -> None:
        def moments(rows: slice) -> FloatArray:
            inputs = examples.inputs[rows]
            variance = proba[rows] * (1.0 - proba[rows])
            variance *= examples.weights[rows, None]
            return np.stack([variance.T @ inputs, variance.T @ np.square(inputs)])

        first, second = sum_over_blocks(examples, moments)
        total = np.maximum(first[:, -1:], np.finfo(np.float64).tiny)  # the last input is 1
        self._diagonal = np.maximum(second - first**2 / total, 0.0) + penalty
        mean = first / np.sqrt(total)
        self._mean = mean / self._diagonal
        self._share = 1.0 + np.einsum("ij,ij->i", mean, self._mean)[:, None]

    def solve(self, slope: FloatArray) -> FloatArray:
        """The inverse times `slope` (classes, classes + 1), by the Sherman-Morrison formula."""
        along = np.einsum("ij,ij->i", self._mean, slope)[:, None]
        return np.asarray(slope / self._diagonal - self._mean * (along / self._share))


# Solver ---------------------------------------------------------------------------------------


def minimise(
    examples: Examples, penalty: FloatArray, start: FloatArray, *, tol: float, max_iterations: int
) -> Fit:
    """The minimum of the objective from `start`, by Newton steps with a line search.

    Converged means that a Newton step, solved to its accuracy, promised less than `tol`.
    """
    point = point_at(examples, penalty, start, linear_scores(examples, start))
    for step in range(1, max_iterations + 1):
        slope = gradient(examples, penalty, point.coef, point.proba)
        direction, solved = newton_direction(examples, penalty, point.proba, slope)
        promise = -0.5 * float(np.vdot(slope, direction))
        lower = lower_point(examples, penalty, point, direction, promise)
        if lower is None:
            return Fit(point.coef, step, False)
        if solved and promise <= tol:
            return Fit(lower.coef, step, True)
        point = lower
    return Fit(point.coef, max_iterations, False)


def lower_point(
    examples: Examples, penalty: FloatArray, point: Point, direction: FloatArray, promise: float
) -> Point | None:
    """The first of whole, half, quarter ... steps that lowers the objective enough, if any."""
    change = linear_scores(examples, direction)
    # What rounding may add when there is hardly anything left to gain.
    slack = 1e-14 * max(1.0, abs(point.value))
    for halvings in range(40):
        length = 0.5**halvings
        coef = point.coef + length * direction
        trial = point_at(examples, penalty, coef, point.scores + length * change)
        if trial.value <= point.value - 1e-4 * length * promise + slack:
            return trial
    return None


def newton_direction(
    examples: Examples, penalty: FloatArray, proba: FloatArray, slope: FloatArray
) -> tuple[FloatArray, bool]:
    """Minus inverse Hessian times `slope` by conjugate gradients, and whether they got there.

    The accuracy asked for grows as the slope falls, which keeps Newton's fast ending. Sizes are
    measured by the preconditioner: large and tiny penalties stand side by side here.
    """
    nearly = Preconditioner(examples, penalty, proba)
    direction = np.zeros_like(slope)
    residual = -slope
    search = nearly.solve(residual)
    size = first = float(np.vdot(residual, search))
    wanted = first * min(0.25, first**0.5)
    for _ in range(MAX_CG_STEPS):
        if size <= wanted:
            return direction, True
        product = curvature_along(examples, penalty, proba, search)
        length = size / float(np.vdot(search, product))
        direction += length * search
        residual -= length * product
        scaled = nearly.solve(residual)
        size, before = float(np.vdot(residual, scaled)), size
        search = scaled + (size / before) * search
    return direction, size <= wanted


def inverse_temperature(examples: Examples) -> float:
    """The multiplier of the features with the least log loss; the place to start from.

    A ridge on the size of the scores keeps it finite where every example is right.
    """
    features = examples.inputs[:, :-1]
    unit = float(np.abs(features).mean())
    if unit == 0.0:
        return 1.0

    def loss(log_size: float) -> float:
        scores = features * (np.exp(log_size) / unit)
        rows = softmax_in_place(scores, examples.masked, examples.labels)
        return float(examples.weights @ rows) + DIAGONAL_RIDGE * float(np.exp(2 * log_size))

    found = minimize_scalar(loss, bounds=(-7.0, 7.0), method="bounded", options={"xatol": 1e-3})
    return float(np.exp(found.x) / unit)


def has_no_finite_minimum(examples: Examples, coef: FloatArray) -> bool:
    """Whether the diagonal alone gets every example right, so that a larger one is always better.

    True proves that only DIAGONAL_RIDGE holds the fit.
    """
    scores = examples.inputs[:, :-1] * np.diag(coef)
    if examples.masked is not None:
        scores[examples.masked] = -np.inf
    rows = np.arange(scores.shape[0])
    own = scores[rows, examples.labels]
    scores[rows, examples.labels] = -np.inf
    return bool((own > scores.max(axis=1)).all())


# Choice of the penalties ----------------------------------------------------------------------


def distinct_examples(logits: Logits, labels: IntArray) -> IntArray:
    """A number (n,) per example, the same for copies, counted by first appearance.

    Rows are compared relative to their top and in float32, so neither a shift of the row nor the
    precision it was stored in tells copies apart.
    """
    numbers: dict[bytes, int] = {}
    out = np.empty(logits.n_rows, np.int64)
    for rows in logits.row_blocks():
        with np.errstate(over="ignore"):
            below = logits.margins(rows).astype(np.float32)
        for row, example, label in zip(
            range(rows.start, rows.stop), below, labels[rows], strict=True
        ):
            key = hashlib.blake2b(example.tobytes(), digest_size=16, salt=label.tobytes()).digest()
            out[row] = numbers.setdefault(key, len(numbers))
    return out


def fold_numbers(logits: Logits, labels: IntArray, n_folds: int, random_state: Any) -> IntArray:
    """The fold (n,) of every example: each class spread evenly, copies together.

    Weight 2 and a repeated row give the same folds, and so does renumbering the classes: these are
    taken in the order in which a shuffle meets them.
    """
    group = distinct_examples(logits, labels)
    n_groups = int(group.max()) + 1
    group_label = np.empty(n_groups, np.int64)
    group_label[group] = labels
    shuffled = check_random_state(random_state).permutation(n_groups)
    _, met, which = np.unique(group_label[shuffled], return_index=True, return_inverse=True)
    by_class = shuffled[np.argsort(met[which], kind="stable")]
    fold = np.empty(n_groups, np.int64)
    fold[by_class] = np.arange(n_groups) % n_folds
    return np.asarray(fold[group])


class PenaltySearch:
    """Cross-validated log loss along paths of falling penalties, with warm starts.

    `trials` holds what was tried, in order.
    """

    def __init__(
        self, examples: Examples, folds: IntArray, scale: float, max_iterations: int
    ) -> None:
        self.examples = examples
        self.folds = folds
        self.scale = scale
        self.max_iterations = max_iterations
        self.trials: list[Trial] = []

    def walk(self, path: Sequence[tuple[float, float]], start: Trial | None = None) -> Trial:
        """Try the settings in order until they stop helping; the best of them and of `start`."""
        best = last = start
        worse = 0
        for strength in path:
            last = self._try(strength, last)
            if best is None or last.log_loss < best.log_loss:
                best, worse = last, 0
            else:
                worse += 1
            if worse >= PATIENCE:
                break
        assert best is not None
        return best

    def _try(self, strength: tuple[float, float], near: Trial | None) -> Trial:
        n_classes = self.examples.n_classes
        penalty = penalty_matrix(n_classes, strength, self.scale)
        total, converged = 0.0, True
        coefs: list[FloatArray] = []
        for fold in np.unique(self.folds):
            start = identity(n_classes) if near is None else near.coefs[len(coefs)]
            fit = minimise(
                self.examples.take(self.folds != fold),
                penalty,
                start,
                tol=SEARCH_TOL,
                max_iterations=self.max_iterations,
            )
            coefs.append(fit.coef)
            converged &= fit.converged
            total += self._held_out_loss(self.folds == fold, fit.coef)
        self.trials.append(Trial(strength, total, converged, []))
        return Trial(strength, total, converged, coefs)

    def _held_out_loss(self, rows: BoolArray, coef: FloatArray) -> float:
        """The rows' part of the mean log loss over all examples."""
        part = self.examples.take(rows)
        loss = softmax_in_place(linear_scores(part, coef), part.masked, part.labels)
        return float(self.examples.weights[rows] @ loss)


def paper_grid(n_classes: int) -> tuple[list[float], list[float]]:
    """Lambdas and mus of the authors' published experiments.

    Powers of ten up to 10^6 from 10^-5 (at most 10 classes) or 10^-2, and for lambda also a half
    and a quarter of each.
    """
    powers = [10.0**k for k in range(-5 if n_classes <= 10 else -2, 7)]
    return [power * part for power in powers for part in (1.0, 0.5, 0.25)], powers


# Estimator ------------------------------------------------------------------------------------


class ODIRCalibrator(Calibrator):
    """Base of `MatrixScalingODIR` and `DirichletODIR`, which say what the features are."""

    preserves_labels = False

    weight_: FloatArray
    bias_: FloatArray

    def __init__(
        self,
        *,
        lambdas: Literal["quick", "paper"] | float | Sequence[float] = "quick",
        mus: float | Sequence[float] | None = None,
        cv: int = 3,
        tol: float = 1e-10,
        max_iterations: int = 100,
        random_state: Any = 0,
    ) -> None:
        self.lambdas = lambdas
        self.mus = mus
        self.cv = cv
        self.tol = tol
        self.max_iterations = max_iterations
        self.random_state = random_state

    def _row_offset(self, below: FloatArray) -> FloatArray:
        """What to subtract (rows, 1) from logits relative to their top to get the features."""
        raise TypeError(f"{type(self).__name__} does not say what its features are.")

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        self._check_parameters()
        logits, labels, weights = _usable(logits, labels, weights)
        examples, scale = self._prepare(logits, labels, weights)
        # Blocks of rows run on our threads. BLAS with threads of its own would do other sums, and
        # on a busy machine its threads wait for each other most of the time.
        with threadpool_limits(1, user_api="blas"):
            strength = self._choose(logits, examples, scale)
            penalty = penalty_matrix(examples.n_classes, strength, scale)
            start = identity(examples.n_classes)
            fit = minimise(
                examples, penalty, start, tol=self.tol, max_iterations=self.max_iterations
            )
        unbounded = has_no_finite_minimum(examples, fit.coef)
        self.weight_ = np.ascontiguousarray(scale * fit.coef[:, :-1])
        self.bias_ = fit.coef[:, -1].copy()
        self.lambda_, self.mu_ = strength
        self.n_iterations_ = fit.n_iterations
        self.converged_ = fit.converged and not unbounded
        if not self.converged_:
            message = _not_converged_message(type(self).__name__, unbounded, self.max_iterations)
            warnings.warn(message, ConvergenceWarning, stacklevel=3)

    def _check_parameters(self) -> None:
        _check_strengths(self.lambdas, "lambdas", ("quick", "paper"))
        if self.mus is not None:
            _check_strengths(self.mus, "mus", ())
        _check_count(self.cv, "cv", 2)
        _check_count(self.max_iterations, "max_iterations", 1)
        if not isinstance(self.tol, Real) or not 0.0 < float(self.tol) < np.inf:
            raise ValueError(f"`tol` must be a finite number above 0; got {self.tol!r}.")

    def _prepare(
        self, logits: Logits, labels: IntArray, weights: FloatArray
    ) -> tuple[Examples, float]:
        """The examples with features multiplied by their inverse temperature, and that number."""
        inputs = np.ones((logits.n_rows, logits.n_classes + 1))
        masked = np.zeros(logits.values.shape, np.bool_)
        for rows in logits.row_blocks():
            inputs[rows, :-1], masked[rows] = self._features(logits, rows)
        examples = Examples(
            inputs, masked if masked.any() else None, labels, weights / weights.sum()
        )
        scale = inverse_temperature(examples)
        inputs[:, :-1] *= scale
        return examples, scale

    def _features(self, logits: Logits, rows: slice) -> tuple[FloatArray, BoolArray]:
        """Features (rows, classes), all finite, and which classes are impossible.

        An impossible class counts as the least likely of the possible ones: it must say something
        finite to the others, and its own probability is set to 0 anyway.
        """
        below = -logits.margins(rows)
        features = below - self._row_offset(below)
        masked = below == -np.inf
        if masked.any():
            least = np.min(features, axis=1, keepdims=True, where=~masked, initial=np.inf)
            features = np.where(masked, least, features)
        return features, masked

    def _choose(self, logits: Logits, examples: Examples, scale: float) -> tuple[float, float]:
        """(lambda, mu) with the least cross-validated log loss; a single setting is not scored."""
        lambdas, mus = self._grid(examples.n_classes)
        trials: list[Trial] = []
        strength = (lambdas[0], lambdas[0] if mus is None else mus[0])
        if len(lambdas) > 1 or (mus is not None and len(mus) > 1):
            folds = fold_numbers(logits, examples.labels, self.cv, self.random_state)
            if folds.max() > 0:  # else all examples are copies of one: the largest penalties
                search = PenaltySearch(examples, folds, scale, self.max_iterations)
                strength = self._search(search, lambdas, mus).strength
                trials = search.trials
        self.cv_results_ = {
            "lambda": np.array([trial.strength[0] for trial in trials]),
            "mu": np.array([trial.strength[1] for trial in trials]),
            "log_loss": np.array([trial.log_loss for trial in trials]),
            "converged": np.array([trial.converged for trial in trials], np.bool_),
        }
        return strength

    def _grid(self, n_classes: int) -> tuple[list[float], list[float] | None]:
        """Lambdas and mus from the largest to the smallest; no mus: each goes with its lambda."""
        lambdas, mus = self.lambdas, self.mus
        if isinstance(lambdas, str):
            quick = lambdas == "quick"
            lambdas, default = (QUICK_LAMBDAS, QUICK_MUS) if quick else paper_grid(n_classes)
            mus = default if mus is None else mus
        return _falling(lambdas), None if mus is None else _falling(mus)

    def _search(
        self, search: PenaltySearch, lambdas: list[float], mus: list[float] | None
    ) -> Trial:
        if mus is None:
            return search.walk([(strength, strength) for strength in lambdas])
        if isinstance(self.lambdas, str) and self.lambdas == "quick":
            best = search.walk([(strength, mus[0]) for strength in lambdas])
            return search.walk([(best.strength[0], mu) for mu in mus[1:]], best)
        walks = [search.walk([(strength, mu) for strength in lambdas]) for mu in mus]
        return min(walks, key=lambda trial: trial.log_loss)

    def _proba(self, logits: Logits) -> FloatArray:
        out = np.empty(logits.values.shape)
        for rows in logits.row_blocks():
            features, masked = self._features(logits, rows)
            np.matmul(features, self.weight_.T, out=out[rows])
            out[rows] += self.bias_
            softmax_in_place(out[rows], masked, logits.labels[rows])
        return out

    def _state(self) -> dict[str, Any]:
        names = ("weight", "bias", "lambda", "mu", "cv_results", "n_iterations", "converged")
        return {name: getattr(self, f"{name}_") for name in names}

    def _restore(self, state: dict[str, Any]) -> None:
        self._check_parameters()
        n_classes = self.n_classes_
        self.weight_ = state["weight"].reshape(n_classes, n_classes)
        self.bias_ = state["bias"].reshape(n_classes)
        self.lambda_, self.mu_ = float(state["lambda"]), float(state["mu"])
        self.cv_results_ = dict(state["cv_results"])
        self.n_iterations_ = int(state["n_iterations"])
        self.converged_ = bool(state["converged"])


def _usable(
    logits: Logits, labels: IntArray, weights: FloatArray | None
) -> tuple[Logits, IntArray, FloatArray]:
    """The examples that count and whose true class is possible; the rest have no finite loss."""
    weights = np.ones(logits.n_rows) if weights is None else weights
    counts = weights > 0.0
    possible = logits.values[np.arange(logits.n_rows), labels] > -np.inf
    lost = int((counts & ~possible).sum())
    keep = np.flatnonzero(counts & possible)
    if keep.size == 0:
        raise ValueError(
            "`logits` must leave the true class possible in some example; got -inf for the true "
            f"class in all {lost} that count. Check that `labels` index the columns of `logits`."
        )
    if lost:
        warnings.warn(
            f"{lost} of {logits.n_rows} examples have -inf as the logit of their true class: their "
            "log loss is infinite whatever is learned, so they are left out of the fit.",
            RuntimeWarning,
            stacklevel=4,
        )
    if keep.size == logits.n_rows:
        return logits, labels, weights
    return logits.take(keep), labels[keep], weights[keep]


def _falling(strengths: float | Sequence[float]) -> list[float]:
    return sorted({float(item) for item in np.atleast_1d(np.asarray(strengths))}, reverse=True)


def _check_strengths(value: Any, name: str, words: tuple[str, ...]) -> None:
    if isinstance(value, str) and value in words:
        return
    names = "".join(f'"{word}", ' for word in words)
    rule = f"{names}a finite number above 0 or a sequence of them"
    try:
        numbers = np.atleast_1d(np.asarray(value, np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` must be {rule}; got {value!r}.") from error
    if numbers.ndim != 1 or not numbers.size or not ((numbers > 0) & np.isfinite(numbers)).all():
        raise ValueError(
            f"`{name}` must be {rule}; got {value!r}. For hardly any penalty use 1e-9, for hardly "
            "any freedom 1e9."
        )


def _check_count(value: Any, name: str, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}; got {value!r}.")


def _not_converged_message(kind: str, unbounded: bool, max_iterations: int) -> str:
    if unbounded:
        return (
            f"{kind} has no finite optimum on these examples: scaling alone gets every one of them "
            "right, so confidence would grow for ever, and a tiny ridge is all that holds it. Fit "
            "on more examples, on some that the classifier gets wrong."
        )
    return (
        f"{kind} did not converge in {max_iterations} iterations: its log loss is higher than it "
        "need be. Raise `max_iterations` or `tol`, or use larger `lambdas`."
    )

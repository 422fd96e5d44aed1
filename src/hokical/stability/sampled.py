"""Sampled stability, the paper's: the share of M fixed noise draws that keep the label.

The same draws serve every example, at design time and at run time. They are stored as a
seed and a shape, and drawn again, bit for bit the same, wherever they are needed.
`label_stability` and `label_distribution` are the public functions, exact or sampled.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hokical._core import arrays
from hokical._core import special as portable
from hokical._core.arrays import Array, IntArray
from hokical._core.checks import check_count
from hokical._core.logits import Logits, as_logits, by_blocks
from hokical._core.runtime import has_compiler
from hokical._core.storage import storable
from hokical.stability.noise import Noise, check_noise

#: Draws: their noise for ten classes takes 0.8 GB; the standard error is 2e-4 at most.
MOST_DRAWS = 10**7
#: Numbers of noise, 1 GB: more is a mistake, or a file that asks for too much memory.
_MOST_NUMBERS = 1 << 27
#: Draws per step while a graph is traced, at least.
_TRACED_STEP = 64
#: Steps while a graph is traced, at most: each becomes nodes of the graph.
_TRACED_STEPS = 256
#: Noisy logits from which counting is compiled. Both ways count the same.
_MANY_COMPARISONS = 30_000_000
#: Rows at a time: few enough to stay in cache while a tile of noise is used on all of
#: them.
_COMPILED_ROWS = 128


@storable("draws")
@dataclass(frozen=True)
class Draws:
    """M noise vectors: who they are is (noise, seed, n_draws, n_classes).

    `values` (n_draws, n_classes) float64 is the noise without its shift, which moves no
    label.
    """

    noise: Noise
    seed: int
    n_draws: int
    n_classes: int
    values: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Noise):
            raise ValueError(f"`noise` must be a noise; got {self.noise!r}.")
        check_count("seed", self.seed, least=0, most=2**64 - 1)
        check_count("n_draws", self.n_draws, most=MOST_DRAWS)
        most = _MOST_NUMBERS // self.n_draws
        check_count("n_classes", self.n_classes, least=2, most=most)
        centred = type(self.noise).of_width(self.noise.width)
        uniform = portable.uniform_draws(self.seed, (self.n_draws, self.n_classes))
        object.__setattr__(self, "values", centred.from_uniform(uniform))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the draws are made from, not the draws."""
        return type(self), (self.noise, self.seed, self.n_draws, self.n_classes)

    def to_stored(self) -> dict[str, Any]:
        """What makes them, with the SHA-256 of the draws to prove that they come out
        the same.
        """
        names = ("noise", "seed", "n_draws", "n_classes")
        sources = {name: getattr(self, name) for name in names}
        return sources | {"sha256": self.fingerprint()}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """Draw again what `to_stored` described, or refuse."""
        sources = dict(stored)
        expected = sources.pop("sha256")
        draws = cls(**sources)
        if draws.fingerprint() != expected:
            raise ValueError(
                "the noise re-drawn from the seed is not the noise of the fit"
            )
        return draws

    def fingerprint(self) -> str:
        """The SHA-256 of the draws, as hexadecimal digits."""
        return hashlib.sha256(self.values.astype("<f8").tobytes()).hexdigest()


def survivals(logits: Logits, draws: Draws) -> Array:
    """How many of the draws keep the label of each row, (n,) integers in [0, M].

    Logits are taken relative to their row's top, and the sum logit + noise in float64
    for float64 logits, else in float32; of equals the first class wins.
    """
    logits = logits.with_every_class("draws", "Use exact stability, `draws=None`")
    if logits.is_numpy:  # elsewhere the number of rows may not be known
        n_comparisons = logits.n_rows * logits.n_columns * draws.n_draws
        if n_comparisons >= _MANY_COMPARISONS and has_compiler():
            return compiled_survivals(logits, draws)
    return portable_survivals(logits, draws)


def portable_survivals(logits: Logits, draws: Draws) -> Array:
    """`survivals` for arrays of any library."""
    values = draws.values
    noise = logits.from_host(values) if isinstance(values, np.ndarray) else values

    def work(block: Logits) -> Array:
        xp = block.xp
        below = below_top(block)
        step = _draws_per_step(block, draws.n_draws)
        counts: Array = 0
        for start in range(0, draws.n_draws, step):
            stop = min(start + step, draws.n_draws)
            chunk = xp.astype(noise[start:stop, ...], below.dtype)
            winners = xp.argmax(below[:, None, :] + chunk[None, :, :], axis=2)
            survived = xp.astype(winners == block.labels[:, None], xp.int64)
            counts = counts + xp.sum(survived, axis=1)
        return counts

    return by_blocks(work, logits)


def _draws_per_step(block: Logits, n_draws: int) -> int:
    """How many draws are added to a block of logits at once."""
    if block.is_traced:
        return max(_TRACED_STEP, -(-n_draws // _TRACED_STEPS))
    n_logits = max(1, block.n_rows * block.n_columns)
    return max(1, block.backend.block_size // n_logits)


def compiled_survivals(logits: Logits, draws: Draws) -> IntArray:
    """`survivals` for NumPy arrays, by a kernel."""
    from hokical.stability.kernels import count_survivals

    dtype = below_top(logits.take(slice(0, 1))).dtype
    by_type = _tiles.setdefault(draws, {})
    if dtype.name not in by_type:
        by_type[dtype.name] = _make_tiles(draws, dtype)
    tiles, extremes = by_type[dtype.name]

    def work(block: Logits) -> IntArray:
        out = np.empty(block.n_rows, np.int64)
        near = np.ascontiguousarray(below_top(block))
        count_survivals(near, block.labels, tiles, draws.n_draws, extremes, out)
        return out

    per_row = max(8 * logits.n_columns, logits.backend.block_size // _COMPILED_ROWS)
    counts: IntArray = by_blocks(work, logits, per_row)
    return counts


def _make_tiles(draws: Draws, dtype: np.dtype[Any]) -> tuple[NDArray[Any], ...]:
    """The noise as the kernel reads it, (tiles, classes, TILE), draws innermost, padded
    with zeros; and the highest and lowest per class, (2, classes).
    """
    from hokical.stability.kernels import TILE

    noise = draws.values.astype(dtype)
    n_tiles = -(-draws.n_draws // TILE)
    padded = np.zeros((n_tiles * TILE, draws.n_classes), dtype)
    padded[: draws.n_draws] = noise
    tiles = padded.reshape(n_tiles, TILE, draws.n_classes).transpose(0, 2, 1)
    extremes = np.stack([noise.max(axis=0), noise.min(axis=0)])
    return np.ascontiguousarray(tiles), extremes


#: What `_make_tiles` made, by type, while the draws are in use.
_tiles: WeakKeyDictionary[Draws, dict[str, tuple[NDArray[Any], ...]]] = (
    WeakKeyDictionary()
)


def below_top(logits: Logits) -> Array:
    """Logits minus their row's top, (n, classes), so that a constant per row changes
    nothing.
    """
    xp = logits.xp
    dtype = xp.float64 if xp.finfo(logits.values.dtype).bits == 64 else xp.float32
    with arrays.ignore_overflow(xp):
        return xp.astype(logits.values - logits.top[:, None], dtype)


def draw_seed(random_state: Any) -> int:
    """A seed for the draws: an int is used as it is, a generator is asked for one.

    None takes a fresh one from the operating system, never from NumPy's global state.
    """
    if isinstance(random_state, (int, np.integer)) and not isinstance(
        random_state, bool
    ):
        return check_count("random_state", random_state, least=0, most=2**64 - 1)
    if random_state is None:
        random_state = np.random.default_rng()
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    rule = "an integer, a NumPy Generator or RandomState, or None"
    raise ValueError(f"`random_state` must be {rule}; got {random_state!r}.")


def label_stability(
    logits: Any, noise: Noise, *, draws: int | None = None, random_state: Any = None
) -> Array:
    """The probability that noise added to the logits leaves each row's label unchanged.

    Parameters
    ----------
    logits : array of any library of shape (n, classes), array-like, or TopK
        -inf marks a masked class. The hidden classes of a `TopK` are taken
        as equals that share what is left.
    noise : Noise
        Such as `Gaussian(2.0)`; added to every logit independently.
    draws : int, optional
        None, the default, solves the integral: no randomness. A number M counts over M
        noise vectors shared by all rows, as in the paper; its standard error is at most
        0.5/sqrt(M). Sums of logit and noise are float64 for float64 logits, else
        float32.
    random_state : int, RandomState, Generator or None
        Where the seed of the draws comes from.

    Returns
    -------
    gamma : array of shape (n,), of the library and on the device of the logits
        float64 for NumPy arrays and lists; for others float32, unless they are float64.

    Examples
    --------
    >>> from hokical import Gaussian, label_stability
    >>> label_stability([[3.0, 1.0, 0.0], [1.0, 1.0, -9.0]], Gaussian(1.0)).round(4)
    array([0.9115, 0.5   ])
    """
    check_noise(noise)
    with arrays.float64_scope(logits):
        checked = as_logits(logits)
        if draws is None:
            return arrays.to_input_library(noise.stability(checked), logits)
        n_draws = check_count(
            "draws", draws, most=MOST_DRAWS, remedy="None solves the integral."
        )
        shared = Draws(noise, draw_seed(random_state), n_draws, checked.n_classes)
        counts = checked.xp.astype(survivals(checked, shared), checked.xp.float64)
        return arrays.to_input_library(counts / float(n_draws), logits)


def label_distribution(logits: Any, noise: Noise) -> Array:
    """The probability of every class to be the label once noise is added to the logits.

    Rows (n, classes) sum to 1; the entry of the row's own label is its stability.
    Entries are off by at most about 1e-6; smaller ones have no correct digits. The
    hidden classes of a `TopK` are taken as equals that share what is left.

    >>> from hokical import Gumbel, label_distribution
    >>> label_distribution([[3.0, 1.0, 0.0]], Gumbel(1.0)).round(4)
    array([[0.8438, 0.1142, 0.042 ]])
    """
    check_noise(noise)
    with arrays.float64_scope(logits):
        return arrays.to_input_library(noise.distribution(as_logits(logits)), logits)

"""What the code of the paper uses of hokical beside its public names, so that one
file shows it.
"""

from hokical._core.arrays import backend_of, to_float64, to_host
from hokical._core.checks import (
    LARGEST_COEFFICIENT,
    LARGEST_TEMPERATURE,
    LEAST_TEMPERATURE,
    ArrayOf,
    Checked,
    Coefficient,
    Temperature,
    Within,
    bin_edges,
    bin_index,
    check_array,
    check_count,
    check_positive,
    sum_by,
)
from hokical._core.logits import MAX_MARGIN, Tail, by_blocks, per_row
from hokical._core.reading import as_labels, as_weights
from hokical._core.runtime import (
    ConvergenceWarning,
    progress_bar,
    thread_count,
    track,
    warn_user,
)
from hokical._core.special import contract, uniform_draws
from hokical._core.storage import storable
from hokical.rules.base import (
    LEAST,
    as_log_proba,
    distribute_remainder,
    first_maximum,
    log_norms,
    softmax,
)
from hokical.rules.scaling import AutoRule
from hokical.stability.sampled import draw_seed
from hokical.stability.tables import EXACT_LEVELS

#: Steps of a recorded recursion, more than any fit is allowed.
MOST_STEPS = 100_000

__all__ = [
    "EXACT_LEVELS",
    "LARGEST_COEFFICIENT",
    "LARGEST_TEMPERATURE",
    "LEAST",
    "LEAST_TEMPERATURE",
    "MAX_MARGIN",
    "MOST_STEPS",
    "ArrayOf",
    "AutoRule",
    "Checked",
    "Coefficient",
    "ConvergenceWarning",
    "Tail",
    "Temperature",
    "Within",
    "as_labels",
    "as_log_proba",
    "as_weights",
    "backend_of",
    "bin_edges",
    "bin_index",
    "by_blocks",
    "check_array",
    "check_count",
    "check_positive",
    "contract",
    "distribute_remainder",
    "draw_seed",
    "first_maximum",
    "log_norms",
    "per_row",
    "progress_bar",
    "softmax",
    "storable",
    "sum_by",
    "thread_count",
    "to_float64",
    "to_host",
    "track",
    "uniform_draws",
    "warn_user",
]

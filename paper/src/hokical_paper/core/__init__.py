"""What the code of the paper uses of hokical beside its public names, in this folder
alone: nothing outside imports a private module, or a name that a module does not export
(`paper/tests/test_package.py`).
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
    one_blas_thread,
    progress_bar,
    thread_count,
    track,
    warn_user,
)
from hokical._core.special import (
    clip,
    constant,
    contract,
    erfcx,
    expit,
    log_ndtr,
    safe_log,
    uniform_draws,
)
from hokical._core.storage import storable
from hokical.demo import DEMO_CLASSES
from hokical.guarantees.bounds import Method, check_chance
from hokical.rules.base import (
    LEAST,
    distribute_remainder,
    first_maximum,
    log_norms,
    softmax,
)
from hokical.rules.hoki import Curve, HokiRule
from hokical.stability.sampled import draw_seed
from hokical.stability.tables import EXACT_LEVELS

#: Steps of a recorded recursion, more than any fit is allowed.
MOST_STEPS = 100_000

__all__ = [
    "DEMO_CLASSES",
    "EXACT_LEVELS",
    "LARGEST_COEFFICIENT",
    "LARGEST_TEMPERATURE",
    "LEAST",
    "LEAST_TEMPERATURE",
    "MAX_MARGIN",
    "MOST_STEPS",
    "ArrayOf",
    "Checked",
    "Coefficient",
    "ConvergenceWarning",
    "Curve",
    "HokiRule",
    "Method",
    "Tail",
    "Temperature",
    "Within",
    "as_labels",
    "as_weights",
    "backend_of",
    "bin_edges",
    "bin_index",
    "by_blocks",
    "check_array",
    "check_chance",
    "check_count",
    "check_positive",
    "clip",
    "constant",
    "contract",
    "distribute_remainder",
    "draw_seed",
    "erfcx",
    "expit",
    "first_maximum",
    "log_ndtr",
    "log_norms",
    "one_blas_thread",
    "per_row",
    "progress_bar",
    "safe_log",
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

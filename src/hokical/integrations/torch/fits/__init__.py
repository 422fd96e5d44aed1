"""What the core's fits ask of all logits, computed where a tensor is.

Each module registers twins of functions of the core for `TensorLogits`. They compute in float64 on
the tensor's device and give the core NumPy arrays with a few numbers per row, or sums, so that the
solvers are the core's own. Importing the package registers them all.
"""

from hokical.integrations.torch.fits import (
    answers,
    ensemble,
    isotonic,
    likelihood,
    odir,
    recal,
    stability,
    vectors,
)

__all__ = [
    "answers",
    "ensemble",
    "isotonic",
    "likelihood",
    "odir",
    "recal",
    "stability",
    "vectors",
]

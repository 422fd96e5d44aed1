"""Outputs with more than one prediction per input: segmentation maps, tokens, anchors.

`Dense` wraps a calibrator so that logits keep their shape; `from_dense` makes a source of the
positions that count, for everything in `hokical.streams`.
"""

from hokical.dense._batches import from_dense
from hokical.dense._estimator import Dense

__all__ = ["Dense", "from_dense"]

"""Outputs with more than one prediction per input: segmentation maps, tokens, anchors.

`Dense` wraps a calibrator so that logits keep their shape.
"""

from hokical.dense._estimator import Dense

__all__ = ["Dense"]

"""A reliability diagram as numbers."""

from hokical.plots import Reliability

__all__ = ["Reliability"]

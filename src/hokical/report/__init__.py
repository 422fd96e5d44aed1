"""Evaluations of calibrators, comparisons of methods, and both as one self-contained HTML file."""

from hokical.report._evaluation import Evaluation

__all__ = ["Evaluation"]

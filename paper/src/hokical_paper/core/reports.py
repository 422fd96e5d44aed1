"""Tables that a terminal, Markdown and JSON show alike."""

from hokical.metrics.summaries import METRICS
from hokical.report.output import Cell, TableOutput, TextCells
from hokical.report.results import Comparison

__all__ = [
    "METRICS",
    "Cell",
    "Comparison",
    "TableOutput",
    "TextCells",
]

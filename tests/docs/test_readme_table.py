"""The README's table is what the methods give on the shipped network."""

import re
from pathlib import Path

import numpy as np
import pytest

from hokical import make, metrics
from hokical.demo import demo_logits

README = Path(__file__).resolve().parents[2] / "README.md"
ROW = re.compile(r"^\| [^|]+ \((\w+)\) \|(.+)\|$", re.MULTILINE)


def printed() -> dict[str, list[str]]:
    """The cells of each method, without emphasis."""
    rows = ROW.findall(README.read_text(encoding="utf-8"))
    return {name: [cell.strip(" *") for cell in cells.split("|")] for name, cells in rows}


def unit(cell: str) -> float:
    """One in the last digit of a number as it is printed."""
    percent = cell.endswith("%")
    return 10.0 ** -len(cell.rstrip("%").partition(".")[2]) / (100 if percent else 1)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", sorted(printed()))
def test_a_row_is_true(name: str) -> None:
    (logits, labels), (test_logits, truth) = demo_logits()
    calibrator = make(name).fit(logits, labels)
    confidence = calibrator.predict_confidence(test_logits)
    right = calibrator.predict(test_logits) == truth
    proba = calibrator.predict_proba(test_logits)
    found = (
        np.mean(confidence), np.mean(right), metrics.ece(confidence, right),
        metrics.classwise_ece(proba, truth), metrics.brier(proba, truth),
        metrics.log_loss(proba, truth),
    )  # fmt: skip
    for cell, value in zip(printed()[name], found, strict=True):
        number = float(cell.rstrip("%")) / (100 if cell.endswith("%") else 1)
        assert number == pytest.approx(value, abs=1.01 * unit(cell))

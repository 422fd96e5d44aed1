"""Numbers need no matplotlib, and drawing says what is missing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from hokical import plots
from hokical.plots import draw_reliability


@pytest.mark.slow
def test_computing_does_not_import_matplotlib() -> None:
    program = (
        "import sys, hokical.plots as p\n"
        "p.reliability([0.9], [True])\n"
        "assert 'matplotlib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_drawing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[plot\]'` in a clone"):
        draw_reliability([0.9], [True])


def test_without_axes_a_new_figure_is_made() -> None:
    axes = draw_reliability([0.9, 0.4], [True, False])
    assert axes.figure.number in plt.get_fignums()
    plt.close("all")


@pytest.mark.parametrize("ax", ["ece", np.array([None, None])])
def test_what_is_no_axes_is_refused(ax: Any) -> None:
    for draw in (
        plots.draw_histogram,
        plots.draw_reliability,
        plots.draw_risk_coverage,
    ):
        with pytest.raises(
            TypeError, match=r"`ax` must be an Axes .* got (str|ndarray)"
        ):
            draw([0.5, 0.9], [True, False], ax)

"""The paper's Figures 1 and 2, drawn from a network of the suite; only drawing imports
matplotlib.

Figure 1: the same noise switches the label of one example and not of another. Figure 2:
from there to a calibrated confidence. The paper has photographs and a sketch; here
everything is data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hokical import Hoki, Uniform, label_stability
from hokical_paper.core import DEMO_CLASSES, uniform_draws
from hokical_paper.figures.panels import make_panels
from hokical_paper.figures.styles import BLUE, GREY, ORANGE
from hokical_paper.suite.manifest import Pair, Suite
from hokical_paper.suite.pair_data import PairData
from hokical_paper.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FAVOURITE = "cifar10_resnet110"
_N_DRAWS = 6
_WIDTH = 8.0
_SEED = 3
_N_GROUPS = 12


def illustrated(suite: Suite) -> Pair | None:
    """The pair that is drawn: ResNet-110 on CIFAR-10, or the first with all logits."""
    complete = [pair for pair in suite.pairs if pair.top_k is None]
    return next(
        (pair for pair in complete if pair.name == _FAVOURITE),
        next(iter(complete), None),
    )


def draw_label_switches(pair: Pair) -> Figure:
    """Figure 1: six draws of one noise on the logits of two right examples of one
    class.
    """
    data = pair.load()
    logits = np.asarray(data.test_logits, np.float64)
    noise = Uniform(-_WIDTH / 2, _WIDTH / 2)
    draws = noise.width * (uniform_draws(_SEED, (_N_DRAWS, logits.shape[1])) - 0.5)
    figure, panels = make_panels(2, columns=2, width=4.6, height=3.6)
    stability = np.asarray(label_stability(logits, noise))
    for ax, row in zip(panels, _two_examples(data, logits, draws), strict=True):
        _draw_switches(ax, logits[row], draws, pair.dataset == "cifar10")
        ax.set_title(f"Test example {row}: stability {stability[row]:.2f}")
    panels[0].set_ylabel("logit")
    return figure


def _two_examples(
    data: PairData, logits: FloatArray, draws: FloatArray
) -> tuple[int, int]:
    """Of the commonest label with both: a right example whose label survives all draws,
    and one for which half of them switch it.
    """
    label = logits.argmax(axis=1)
    survivals = np.stack([(logits + t).argmax(axis=1) == label for t in draws]).sum(
        axis=0
    )
    groups = [
        [
            np.flatnonzero(data.test_correct & (label == k) & (survivals == n))
            for n in (_N_DRAWS, 3)
        ]
        for k in range(logits.shape[1])
    ]
    largest = max(groups, key=lambda pair: min(rows.size for rows in pair))
    first, second = (rows if rows.size else np.arange(len(label)) for rows in largest)
    return int(first[0]), int(second[0])


def _draw_switches(ax: Axes, row: FloatArray, draws: FloatArray, named: bool) -> None:
    label = int(row.argmax())
    for at, values in enumerate([row, *(row + draws)]):
        top = int(values.argmax())
        ax.plot(np.full(values.size, at), values, ".", color=GREY, alpha=0.6)
        colour = BLUE if top == label else ORANGE
        ax.plot([at], [values[top]], "o", color=colour)
        text = DEMO_CLASSES[top] if named else str(top)
        ax.annotate(
            text, (at, values[top]), (0, 6), textcoords="offset points", ha="center"
        )
    ax.set_xticks(
        range(len(draws) + 1), ["as it is", *map(str, range(1, len(draws) + 1))]
    )
    ax.set_xlabel("draw of the noise")
    ax.margins(y=0.15)


def draw_process(pair: Pair) -> Figure:
    """Figure 2: draws, stability of all examples, confidence by stability,
    reliability.
    """
    data = pair.load()
    hoki = Hoki().fit(data.val_logits, data.val_labels)
    stability = np.asarray(hoki.stability(data.val_logits))
    figure, panels = make_panels(4, columns=4, width=3.4, height=3.3)
    _draw_shares(panels[0], data, hoki, pair.dataset == "cifar10")
    groups = {"right": data.val_correct, "wrong": ~data.val_correct}
    for (name, rows), colour in zip(groups.items(), (BLUE, ORANGE), strict=True):
        panels[1].hist(
            stability[rows],
            np.linspace(0, 1, 31).tolist(),
            color=colour,
            alpha=0.7,
            label=name,
        )
    panels[1].set(
        yscale="log", title="2. Stability of all examples", xlabel="stability"
    )
    panels[1].legend(frameon=False)
    _draw_confidence(panels[2], hoki, stability, data)
    _draw_reliability(panels[3], hoki, data)
    return figure


def _draw_shares(ax: Axes, data: PairData, hoki: Hoki, named: bool) -> None:
    """How often each label wins under noise, for the example whose label is least
    certain.
    """
    stability = np.asarray(hoki.stability(data.test_logits))
    row = int(np.abs(stability - 0.6).argmin())
    shares = np.asarray(
        hoki.noise_.distribution(_rows(data.test_logits[row : row + 1]))
    )[0]
    order = np.argsort(-shares)[:4]
    names = [DEMO_CLASSES[k] if named else str(k) for k in order]
    ax.barh(names, shares[order], color=[BLUE, *[ORANGE] * 3])
    ax.invert_yaxis()
    ax.set(title="1. Labels of one example", xlabel="share under noise", xlim=(0, 1))


def _draw_confidence(
    ax: Axes, hoki: Hoki, stability: FloatArray, data: PairData
) -> None:
    for group in np.array_split(np.argsort(stability), _N_GROUPS):
        mean = float(data.val_correct[group].mean())
        ax.plot([stability[group].mean()], [mean], "o", color=GREY)
    levels = np.arange(hoki.rule_.levels + 1)
    table = hoki.rule_.confidence_at(levels, np.zeros(levels.size))
    ax.plot(levels / levels[-1], table, color=BLUE)
    ax.set(title="3. From stability to confidence", xlabel="stability", ylim=(0, 1.02))
    ax.set_ylabel("share right (dots), confidence (line)", fontsize=9)


def _draw_reliability(ax: Axes, hoki: Hoki, data: PairData) -> None:
    from hokical.calibrators import Uncalibrated
    from hokical.plots import reliability

    plain = Uncalibrated().fit(data.val_logits, data.val_labels)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    for name, calibrator, colour in (("before", plain, ORANGE), ("after", hoki, BLUE)):
        confidence = np.asarray(calibrator.predict_confidence(data.test_logits))
        diagram = reliability(confidence, data.test_correct)
        size = 10 + 150 * diagram.weight / diagram.weight.sum()
        ax.scatter(
            diagram.confidence,
            diagram.accuracy,
            size,
            color=colour,
            label=name,
            alpha=0.8,
        )
    ax.set(
        title="4. Test examples, by bin",
        xlabel="confidence (area: share)",
        ylabel="accuracy",
    )
    ax.legend(frameon=False)


def _rows(logits: Any) -> Any:
    from hokical.rules import as_logits

    return as_logits(np.asarray(logits, np.float64))

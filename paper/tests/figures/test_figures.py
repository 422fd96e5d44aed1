"""The figures: one of each kind is drawn, all are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hokical_paper.figures.figures import (
    draw_bin_counts,
    draw_variances,
    figure_builders,
    to_png,
)
from hokical_paper.figures.styles import style_of
from hokical_paper.pages import output
from hokical_paper.running.methods import METHODS
from hokical_paper.running.results import Results
from hokical_paper.suite.manifest import Pair

pytest.importorskip("matplotlib")


def test_figures_per_data_set(results: Results) -> None:
    names = set(figure_builders(results))
    assert names == {
        "ece_bars",
        "ece_bins",
        "figure_1",
        "figure_2",
        "theorem_1",
        "theorem_2",
        *(
            f"{kind}_{dataset}"
            for kind in ("variance", "reliability")
            for dataset in ("mnist", "cifar10", "imagenet")
        ),
    }


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    "name", ["ece_bars", "figure_1", "figure_2", "theorem_1", "reliability_cifar10"]
)
def test_a_figure_is_a_picture(results: Results, name: str) -> None:
    import matplotlib

    matplotlib.use("agg")
    caption, draw = figure_builders(results)[name]
    png = to_png(draw())
    assert png.startswith(b"\x89PNG")
    assert len(png) > 10_000
    assert caption.endswith(".")


def moved(results: Results, pair: Pair, method: str, to: str | float) -> Results:
    """The results with a method's variance on a pair changed, to another method's or
    a number.
    """
    result = results.by_cell[pair.name, method]
    value = results.score(pair, to, "sharpness") if isinstance(to, str) else to
    scores = result.scores | {
        "sharpness": replace(result.scores["sharpness"], value=value)
    }
    found = dict(results.by_cell) | {
        (pair.name, method): replace(result, scores=scores)
    }
    return replace(results, by_cell=found)


@pytest.mark.parametrize("variance", [0.0001, 5.0])
def test_what_is_far_aside_does_not_rule_the_axis(
    results: Results, variance: float
) -> None:
    import matplotlib.pyplot as plt

    pair = results.suite.pairs[0]
    results = moved(results, pair, "recal", "temps")  # made up, and aside as well
    figure = draw_variances(moved(results, pair, "uncalibrated", variance), [pair])
    ax = figure.axes[0]
    others = [
        results.score(pair, name, "sharpness")
        for name in results.methods
        if name != "uncalibrated"
    ]
    low, high = ax.get_xlim()
    assert high - low < 1.5 * (max(others) - min(others))
    assert low < min(others) < max(others) < high
    (note,) = ax.texts
    assert f"variance {variance:.3f}" in note.get_text()
    assert ("\N{RIGHTWARDS ARROW}" in note.get_text()) == (variance > 1.0)
    error = results.score(pair, "uncalibrated", "ece")
    assert ax.get_ylim()[0] < error < ax.get_ylim()[1]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "uncalibrated" in names
    plt.close(figure)


def test_looks_differ() -> None:
    """In marker and filling, so that they do on a grey print; ours in colour
    besides.
    """
    looks = {name: style_of(name) for name in METHODS}
    shapes = {(look.marker, look.is_hollow, look.is_special) for look in looks.values()}
    assert len(shapes) == len(looks)
    special = {name for name, look in looks.items() if look.is_special}
    assert special == {"hoki", "hoki_sampled", "adaptive", "auto"}
    assert len({looks[name].colour for name in special}) == 4
    for name, look in looks.items():
        red, green, blue = (look.colour[place : place + 2] for place in (1, 3, 5))
        assert (red == green == blue) == (name not in special)


def test_variance_shows_every_method_where_it_is(results: Results) -> None:
    import matplotlib.pyplot as plt

    pair = results.suite.pairs[0]
    figure = draw_variances(moved(results, pair, "uncalibrated", "temps"), [pair])
    ax = figure.axes[0]
    points = {line.get_label(): line.get_xydata()[0] for line in ax.lines}
    variance, error = points["temps"]
    assert variance == pytest.approx(results.score(pair, "temps", "sharpness"))
    assert error == pytest.approx(results.score(pair, "temps", "ece"))
    assert len(points) == len(results.methods)
    plt.close(figure)


def test_colours_do_not_move_when_a_method_is_missing(results: Results) -> None:
    import matplotlib.pyplot as plt

    pair = results.suite.pairs[0]
    fewer = {key: value for key, value in results.by_cell.items() if key[1] != "temps"}
    colours = []
    for shown in (results, replace(results, by_cell=fewer)):
        figure = draw_variances(shown, [pair])
        colours.append(
            {line.get_label(): line.get_color() for line in figure.axes[0].lines}
        )
        plt.close(figure)
    assert colours[0] == colours[1]


def test_lines_over_bin_counts_are_means(results: Results) -> None:
    import matplotlib.pyplot as plt

    figure = draw_bin_counts(results)
    line = next(
        line for line in figure.axes[0].lines if line.get_label() == "hoki exact"
    )
    found = results.by_cell["mnist_lenet5", "hoki"]
    assert line.get_ydata().tolist() == pytest.approx(list(found.ece_by_bins.values()))
    plt.close(figure)


def test_lines_over_bin_counts_are_over_the_same_networks(results: Results) -> None:
    import matplotlib.pyplot as plt

    pair = results.suite.pairs[0]
    top = replace(pair, entry={**pair.entry, "name": "top", "top_k": 5})
    suite = replace(results.suite, pairs=(*results.suite.pairs, top))
    hoki = results.by_cell[pair.name, "hoki"]
    of_top = {bins: 10.0 * ece for bins, ece in hoki.ece_by_bins.items()}
    cells = {**results.by_cell, ("top", "hoki"): replace(hoki, ece_by_bins=of_top)}
    figure = draw_bin_counts(replace(results, suite=suite, by_cell=cells))
    ax = figure.axes[0]
    line = next(line for line in ax.lines if line.get_label() == "hoki exact")
    assert line.get_ydata().tolist() == pytest.approx(list(hoki.ece_by_bins.values()))
    assert ax.get_title() == "MNIST (1 of 2 networks)"
    plt.close(figure)


@pytest.mark.slow
def test_figures_are_drawn_once(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []

    def builders(shown: Results) -> dict[str, tuple[str, Callable[[], str]]]:
        return {name: (name, lambda name=name: name) for name in ("a", "b")}  # type: ignore[misc]

    def to_bytes(name: str) -> bytes:
        drawn.append(name)
        return name.encode()

    monkeypatch.setattr(output, "figure_builders", builders)
    monkeypatch.setattr(output, "to_png", to_bytes)
    first = output.draw_all(results, tmp_path / "cache")
    assert (
        first
        == output.draw_all(results, tmp_path / "cache")
        == {"a": ("a", b"a"), "b": ("b", b"b")}
    )
    assert drawn == ["a", "b"]
    key = next(iter(results.by_cell))
    changed = replace(results.by_cell[key], ece_by_bins={5: 0.5})
    output.draw_all(
        replace(results, by_cell=dict(results.by_cell) | {key: changed}),
        tmp_path / "cache",
    )
    assert drawn == ["a", "b", "a", "b"]

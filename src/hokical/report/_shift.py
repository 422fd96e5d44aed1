"""A new class balance as one HTML page: the verdict, accuracy, classes then and now, confusions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from string import Template

import numpy as np

from hokical._core.types import FloatArray, IntArray
from hokical.guarantees._shift import ShiftEstimate
from hokical.report._page import asset, digest

#: Classes in the pictures: of more, those that changed most.
_SHOWN = 20
_NAMES, _WIDTH, _STEP, _CELL = 150, 520, 24, 40
_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>$style</style>
</head>
<body>
<header>
<p class="kicker">$title</p>
<h1>$headline</h1>
$words
<ul class="tiles">$tiles</ul>
</header>
<main>$sections</main>
<footer>
<p>Written by hokical. This file is complete: it loads nothing, and sends nothing.</p>
</footer>
</body>
</html>
""")


def shift_page(found: ShiftEstimate, class_names: Sequence[str] = ()) -> str:
    """The whole page, as text; `class_names` are by column, or numbers."""
    names = [escape(str(name)) for name in class_names or range(found.balance.size)]
    style, (first, *words) = asset("style.css"), str(replace(found, by_group={})).split("\n")
    policy = f"default-src 'none'; style-src {digest(style)}"
    told = [line for line in words if not line.startswith(("Balance:", "Accuracy "))]
    now = found.balance if found.holds else found.label_shares
    order = np.argsort(-np.abs(now - found.old_balance), kind="stable")[:_SHOWN]
    return _PAGE.substitute(
        policy=escape(policy),
        style=style,
        title="Rows without labels",
        headline=escape(first.replace(": these numbers do not apply", "")),
        words="".join(f'<p class="lead">{escape(line)}</p>' for line in told),
        tiles=_tiles(found),
        sections=_classes(found, now, order, names)
        + _groups(found)
        + _confusions(found, np.sort(order), names),
    )


def _tiles(found: ShiftEstimate) -> str:
    if not found.holds:
        return "<li><span>accuracy</span> <b>not known</b><small>without labels</small></li>"
    low, high = found.accuracy_interval
    tiles = {
        "accuracy to expect": (f"{found.accuracy:.1%}", f"{low:.1%} to {high:.1%}"),
        "adapted to the balance": (f"{found.adapted_accuracy:.1%}", "of the labels of adapt()"),
        "log loss to expect": (f"{found.log_loss:.3f}", f"Brier score {found.brier:.3f}"),
    }
    return "".join(
        f"<li><span>{name}</span> <b>{value}</b><small>{more}</small></li>"
        for name, (value, more) in tiles.items()
    )


def _classes(found: ShiftEstimate, now: FloatArray, order: IntArray, names: list[str]) -> str:
    """Shares then and now, as a picture and as a table."""
    of = "Share of rows of each class" if found.holds else "Share of rows with each label, counted"
    ends = np.where(found.holds, found.balance_interval.T, now)
    most = float(max(ends[1, order].max(), found.old_balance[order].max()))
    x, bottom = _scale(most), _STEP * len(order) + 4
    step = next(
        (step for step in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1) if most < 6 * step), 0.2
    )
    parts = [
        f'<path class="grid" d="M{x(tick)} 0V{bottom}"/>'
        f'<text x="{x(tick)}" y="{bottom + 16}" text-anchor="middle">{100 * tick:.3g}%</text>'
        for tick in np.arange(0.0, most, step)
    ]
    cells = []
    for place, k in enumerate(order):
        y, (low, high) = _STEP * place + 14, ends[:, k]
        parts.append(
            f'<text x="{_NAMES - 8}" y="{y + 4}" text-anchor="end">{names[k]}</text>'
            f'<line class="band" x1="{x(low)}" x2="{x(high)}" y1="{y}" y2="{y}"/>'
            f'<circle class="dot" cx="{x(now[k])}" cy="{y}" r="4"/>'
            f'<path class="hatch" d="M{x(found.old_balance[k])} {y - 8}v16"/>'
        )
        within = f"<small>{low:.1%} to {high:.1%}</small>" if found.holds else ""
        right = f"<td>{found.label_accuracy[k]:.1%}</td>" if found.holds else ""
        cells.append(
            f'<tr><th scope="row">{names[k]}</th><td>{now[k]:.1%}{within}</td>'
            f"<td>{found.old_balance[k]:.1%}</td>{right.replace('nan%', 'none')}</tr>"
        )
    heads = ["class", "now", "in the fit", *(["labels of it right"] if found.holds else [])]
    few = " The classes that changed most." if len(names) > _SHOWN else ""
    return (
        f"<section><h2>Classes then and now</h2><p>{of}: points{', with intervals' * found.holds}. "
        f"Orange marks: the share in the fit.{few}</p>"
        f"{_svg(parts, _NAMES + _WIDTH + 40, bottom + 22, of)}"
        f"{_table(heads, cells)}</section>"
    )


def _groups(found: ShiftEstimate) -> str:
    """A line for each group, where groups were given."""
    rows = []
    for name, part in found.by_group.items():
        low, high = part.accuracy_interval
        right = f"{part.accuracy:.1%}<small>{low:.1%} to {high:.1%}</small>"
        rows.append(
            f'<tr><th scope="row">{escape(name)}</th><td>{part.n:,}</td>'
            f"<td>{right if part.holds else 'not known'}</td><td>{part.verdict.split(':')[0]}</td>"
            "</tr>"
        )
    table = _table(["group", "rows", "accuracy to expect", "verdict"], rows)
    return f"<section><h2>Group by group</h2>{table}</section>" if rows else ""


def _table(heads: list[str], rows: list[str]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return (
        f'<div class="scroll medium"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _confusions(found: ShiftEstimate, order: IntArray, names: list[str]) -> str:
    """Of the rows of each class, the share with each label, as a picture."""
    if not found.holds:
        return ""
    rows = found.confusion[np.ix_(order, order)]
    share = rows / np.maximum(found.confusion.sum(axis=1)[order, None], 1e-12)
    parts = [
        f'<text x="{_NAMES - 8}" y="{_CELL * i + 25}" text-anchor="end">{names[k]}</text>'
        f'<text x="{_NAMES + _CELL * i + 20}" y="{_CELL * len(order) + 18}" '
        f'text-anchor="middle">{names[k][:6]}</text>'
        for i, k in enumerate(order)
    ]
    for (i, j), part in np.ndenumerate(share):
        left, top = _NAMES + _CELL * j, _CELL * i
        parts.append(
            f'<rect class="bar" x="{left}" y="{top}" width="{_CELL}" height="{_CELL}" '
            f'fill-opacity="{0.5 * part**0.5:.3f}"/>'
        )
        if part >= 0.005:
            parts.append(
                f'<text class="dot" x="{left + 20}" y="{top + 25}" text-anchor="middle">'
                f"{part:.0%}</text>"
            )
    size = _CELL * len(order)
    return (
        "<section><h2>Confusions to expect</h2><p>Of the rows of each class (lines), the share "
        f"that gets each label (columns).</p>{_svg(parts, _NAMES + size, size + 26, 'Confusions')}"
        "</section>"
    )


def _scale(most: float) -> Callable[[float], str]:
    return lambda share: f"{_NAMES + _WIDTH * share / most:.1f}"


def _svg(parts: list[str], width: int, height: int, words: str) -> str:
    return (
        f'<div class="medium"><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{words}">{"".join(parts)}</svg></div>'
    )

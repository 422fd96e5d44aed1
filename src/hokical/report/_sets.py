"""Prediction sets in a report: a table of methods, and a picture of one of them."""

from html import escape
from typing import Any

_WIDTH, _HEIGHT, _STEP = 420, 160, 34


def sets_html(data: dict[str, Any]) -> str:
    """The section on sets; empty where none were asked for."""
    methods = [method for method in data["methods"] if method["sets"] is not None]
    if not methods:
        return ""
    chosen = next((m for m in methods if m["name"] == data["chosen"]), methods[-1])
    goal = chosen["sets"]["goal"]
    rows = "\n".join(_row(method) for method in methods)
    heads = ("method", "covered", "mean size", "worst class", "worst size")
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return (
        f"<section><h2>Prediction sets at {goal:.0%}</h2><p>The classes that a row may "
        f"have. {escape(chosen['sets']['source'])}</p>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f"</div><p>{escape(chosen['label'])}: share of the sets of each size (bars), and how often "
        f"they hold the true class (points).</p>{picture(chosen['sets'])}</section>"
    )


def _row(method: dict[str, Any]) -> str:
    found = method["sets"]
    all_of, worst = found["overall"], min(found["by_class"], key=lambda row: row["coverage"])
    sizes = min(found["by_size"], key=lambda row: row["coverage"])
    covered = (
        f"{all_of['coverage']:.1%}<small>{all_of['low']:.1%}\u2013{all_of['high']:.1%}</small>"
    )
    size = f"{all_of['mean_size']:.2f}<small>{found['size_low']:.2f}\u2013{found['size_high']:.2f}"
    others = (
        f"{row['coverage']:.1%}<small>{name} {escape(row['name'])}, {row['n']:,} rows</small>"
        for name, row in (("class", worst), ("size", sizes))
    )
    cells = "".join(f"<td>{cell}</td>" for cell in (covered, f"{size}</small>", *others))
    return f'<tr><th scope="row">{escape(method["label"])}</th>{cells}</tr>'


def picture(found: dict[str, Any]) -> str:
    """Bars and points by the size of sets, as SVG."""
    parts, n = [], found["overall"]["n"]
    for place, row in enumerate(found["by_size"]):
        x, high = 30 + place * _STEP, _HEIGHT * row["n"] / n
        y = [_HEIGHT * (1.0 - row[name]) for name in ("coverage", "low", "high")]
        parts.append(
            f'<rect x="{x}" y="{_HEIGHT - high:.1f}" width="22" height="{high:.1f}" '
            'fill="#3f74b5" fill-opacity="0.5"/>'
            f'<line x1="{x + 11}" x2="{x + 11}" y1="{y[1]:.1f}" y2="{y[2]:.1f}" stroke="#e08a3c"/>'
            f'<circle cx="{x + 11}" cy="{y[0]:.1f}" r="4" fill="#e08a3c"/>'
            f'<text x="{x + 11}" y="{_HEIGHT + 16}" text-anchor="middle" '
            f'fill="currentColor">{escape(row["name"])}</text>'
        )
    y_goal = _HEIGHT * (1.0 - found["goal"])
    parts.append(
        f'<line x1="24" x2="{_WIDTH}" y1="{y_goal:.1f}" y2="{y_goal:.1f}" stroke="#808080" '
        'stroke-dasharray="4 3"/>'
    )
    return (
        f'<svg viewBox="0 -6 {_WIDTH} {_HEIGHT + 30}" width="{_WIDTH}" role="img" '
        f'aria-label="Prediction sets by size">{"".join(parts)}</svg>'
    )

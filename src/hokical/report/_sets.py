"""Prediction sets in a report: a table of methods."""

from html import escape
from typing import Any


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
        "</div></section>"
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

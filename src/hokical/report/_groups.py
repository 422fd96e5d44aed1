"""Groups in a report: which are miscalibrated, and a picture of the headline's method."""

from html import escape
from typing import Any

_NAMES, _WIDTH, _STEP = 220, 420, 22


def groups_html(data: dict[str, Any]) -> str:
    """The section on groups; empty where none were given."""
    methods = [method for method in data["methods"] if method["groups"] is not None]
    if not methods:
        return ""
    chosen = next((m for m in methods if m["name"] == data["chosen"]), methods[-1])
    before = next((m for m in methods if m["name"] == data["reference"]), chosen)
    more = chosen["groups"]["n_groups"] - len(chosen["groups"]["rows"])
    heads = ("method", "miscalibrated", "most clearly", "largest standardised gap")
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    left_out = f" The {more:,} groups of the largest p-values are not shown." * (more > 0)
    asked = chosen["groups"]["asked"][1:]
    also = (
        f" Tested are the predicted label, and the probability of {escape(asked[0])}."
        if asked
        else ""
    )
    title, apart = "Which groups are miscalibrated?", ""
    if data["provenance"]["test"]["what"] == "scores":
        title = "Which labels are miscalibrated?"
        apart = ", as if labels of one example were independent"
    return (
        f"<section><h2>{title}</h2><p>A good average can hide a group.{also} Verdicts allow for "
        "the number of groups; the p-value of the largest gap is that of all groups and four "
        f'segments of confidence{apart}.</p><div class="scroll"><table><thead><tr>'
        f"{head}</tr></thead><tbody>{''.join(map(_row, methods))}</tbody></table></div>"
        f"<p>{escape(chosen['label'])}: {escape(chosen['groups']['verdict'])}.</p><p>The "
        "observed share of each group with its interval (blue), and the mean prediction (orange; "
        "red where miscalibrated)"
        f"{'' if before is chosen else '; before calibration (grey)'}.{left_out}</p>"
        f"{picture(chosen['groups'], before['groups'])}</section>"
    )


def _row(method: dict[str, Any]) -> str:
    found = method["groups"]
    worst, gap = found["worst"], found["largest"]
    size = "infinite" if gap["z"] is None else f"{gap['z']:.1f}"
    cells = (
        f"{found['n_off']:,} of {found['n_groups']:,}",
        f"{escape(worst['full_name'])}<small>predicted {worst['predicted']:.1%}, observed "
        f"{worst['observed']:.1%}</small>",
        f"{size}<small>{escape(gap['name'])}</small><small>p {gap['p_value']:.2g}</small>",
    )
    values = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(method["label"])}</th>{values}</tr>'


def picture(found: dict[str, Any], before: dict[str, Any]) -> str:
    """Mean prediction and observed share, by group, as SVG."""
    earlier = {row["full_name"]: row["predicted"] for row in before["rows"]}
    ends = [row[key] for row in found["rows"] for key in ("low", "high", "predicted")]
    low, high = max(min([*ends, *earlier.values()]) - 0.02, 0.0), min(max(ends) + 0.02, 1.0)

    def x(share: float) -> str:
        return f"{_NAMES + _WIDTH * (share - low) / max(high - low, 1e-9):.1f}"

    parts, height = [], _STEP * len(found["rows"])
    for k in range(5):
        share = low + (high - low) * k / 4
        parts.append(
            f'<line x1="{x(share)}" x2="{x(share)}" y1="0" y2="{height}" stroke="#808080" '
            'stroke-opacity="0.3"/>'
            f'<text x="{x(share)}" y="{height + 16}" text-anchor="middle" fill="currentColor">'
            f"{share:.0%}</text>"
        )
    for place, row in enumerate(found["rows"]):
        y, name = _STEP * place + _STEP // 2, row["full_name"]
        short = name if len(name) <= 26 else f"{name[:25]}\u2026"
        colour = "#c0392b" if row["flagged"] else "#e08a3c"
        dots = [(row["observed"], "#3f74b5", 5), (row["predicted"], colour, 4)]
        dots += [(earlier[name], "#9a9a9a", 3)] if before is not found and name in earlier else []
        parts.append(
            f'<text x="{_NAMES - 10}" y="{y + 4}" text-anchor="end" fill="currentColor">'
            f"{escape(short)}<title>{escape(name)}, {row['n']:,} rows</title></text>"
            f'<line x1="{x(row["low"])}" x2="{x(row["high"])}" y1="{y}" y2="{y}" '
            'stroke="#3f74b5" stroke-width="2"/>'
        )
        parts += [f'<circle cx="{x(v)}" cy="{y}" r="{r}" fill="{c}"/>' for v, c, r in dots]
    return (
        f'<svg viewBox="0 -4 {_NAMES + _WIDTH + 30} {height + 28}" '
        f'width="{_NAMES + _WIDTH + 30}" role="img" aria-label="Predicted and observed share '
        f'by group">{"".join(parts)}</svg>'
    )

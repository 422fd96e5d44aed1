"""Tables in Markdown and LaTeX, from heads and cells of (text, mark)."""

from collections.abc import Sequence

#: What LaTeX would take for markup.
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
Rows = Sequence[Sequence[tuple[str, str]]]


def as_markdown(heads: Sequence[str], rows: Rows) -> str:
    """A table whose first column is text, and the others numbers."""
    lines = [heads, [":--", *("--:" for _ in heads[1:])]]
    lines += [[mark.format(text.replace("|", "\\|")) for text, mark in row] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_latex(heads: Sequence[str], rows: Rows) -> str:
    """The same as a `tabular` of the package booktabs."""
    body = [[mark.format(text.translate(_LATEX)) for text, mark in row] for row in rows]
    first, *rest = (
        " & ".join(line) + " \\\\\n" for line in ([h.translate(_LATEX) for h in heads], *body)
    )
    begin = f"\\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}\n\\toprule\n{first}\\midrule\n"
    return f"{begin}{''.join(rest)}\\bottomrule\n\\end{{tabular}}\n"

"""Results as tables: CSV, pandas, Markdown and LaTeX."""

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: What LaTeX would take for markup.
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
#: Heads, and rows of cells, each (text, mark around it).
Cells = tuple[Sequence[str], Sequence[Sequence[tuple[str, str]]]]


class TableOutput:
    """A result with a row for each method."""

    def records(self) -> list[dict[str, Any]]:
        """The numbers of each row, not rounded, by column; the first is "method"."""
        raise NotImplementedError

    def cells(self, mark: str) -> Cells:
        """A small table for readers, the best cells in `mark`."""
        raise NotImplementedError

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """One line per method, numbers not rounded; also written to `path`, if one is given."""
        rows, out = self.records(), io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:  # only NaN differs from itself
            writer.writerow({key: "" if value != value else value for key, value in row.items()})
        if path is not None:
            Path(path).write_text(out.getvalue(), encoding="utf-8")
        return out.getvalue()

    def to_pandas(self) -> Any:
        """The columns of `to_csv` as a DataFrame indexed by method; needs pandas."""
        import pandas  # type: ignore[import-untyped]

        return pandas.DataFrame(self.records()).set_index("method")

    def to_markdown(self) -> str:
        """A table of the main scores, the best in bold."""
        heads, rows = self.cells("**{}**")
        lines = [heads, [":--", *("--:" for _ in heads[1:])]]
        lines += [[mark.format(text.replace("|", "\\|")) for text, mark in row] for row in rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def to_latex(self) -> str:
        """The same as a `tabular` of the package booktabs."""
        heads, rows = self.cells("\\textbf{{{}}}")
        body = [[mark.format(text.translate(_LATEX)) for text, mark in row] for row in rows]
        first, *rest = (
            " & ".join(line) + " \\\\\n" for line in ([h.translate(_LATEX) for h in heads], *body)
        )
        begin = f"\\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}\n\\toprule\n{first}\\midrule\n"
        return f"{begin}{''.join(rest)}\\bottomrule\n\\end{{tabular}}\n"

    def __str__(self) -> str:
        return self.to_markdown()

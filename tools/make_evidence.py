"""Make the pages of evidence: those of `paper/docs`, as part of the site.

They belong to `hokical-paper` and are read in its folder, too, so that links to
`../../docs` are made to lead to the pages of the site.

    python tools/make_evidence.py  # writes docs/evidence/; `make docs` does it
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "paper" / "docs"
FOLDER = ROOT / "docs" / "evidence"
#: A link to a folder, which a site has no page for.
_FOLDER_LINK = re.compile(r"\[([^\]]*)\]\((?:tables|assets)/?\)")


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(SOURCE, FOLDER)
    pages = sorted(FOLDER.glob("*.md"))
    for page in pages:
        text = as_page_of_site(page.read_text(encoding="utf-8"))
        page.write_text(text, encoding="utf-8")
    print(f"{FOLDER}: {len(pages)} pages")


def as_page_of_site(text: str) -> str:
    """The text of a page, with links that lead somewhere in `docs/evidence`.

    >>> as_page_of_site("[Theory](../../docs/theory.md), [all](tables)")
    '[Theory](../theory.md), all'
    """
    return _FOLDER_LINK.sub(r"\1", text.replace("](../../docs/", "](../"))


if __name__ == "__main__":
    main()

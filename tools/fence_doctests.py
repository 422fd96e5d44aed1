"""Griffe extension of the documentation site: doctests in docstrings are shown as code.

Short docstrings here end in a doctest without the heading "Examples". Markdown would
take its `>>>` for a quotation; a fence around it says what it is.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLES = re.compile(r"^Examples\n-+\n", re.MULTILINE)
_DOCTEST = re.compile(r"(?:^|(?<=\n\n))>>> .*?(?=\n\n|\Z)", re.DOTALL)


class FenceDoctests(griffe.Extension):
    """What Griffe loads; it is called for everything that has a docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """The docstring with its doctests in fences, but for those in a section of
    examples.

    >>> print(fenced("Add.\\n\\n>>> 1 + 1\\n2").replace("`", "'"))
    Add.
    <BLANKLINE>
    '''pycon
    >>> 1 + 1
    2
    '''
    """
    heading = _EXAMPLES.search(docstring)
    end = heading.start() if heading else len(docstring)
    return _DOCTEST.sub(r"```pycon\n\g<0>\n```", docstring[:end]) + docstring[end:]

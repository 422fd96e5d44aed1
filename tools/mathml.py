"""Markdown extension of the documentation site: formulas become MathML while pages are
built.

Browsers draw MathML by themselves, so the site needs no script and no download for it.
The extension `pymdownx.arithmatex` finds the formulas in the Markdown; here each is
translated.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.postprocessors import Postprocessor

_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\s*\\[(\[](?P<latex>.*?)\\[)\]]\s*</(?P=tag)>',
    re.DOTALL,
)
#: The name of a function before what is no bracket, which needs a space as in TeX.
_FUNCTION = re.compile(
    r"(<mi>(?:log|ln|exp|min|max)</mi>)(?=<m(?:i|n|sub|sup|frac|sqrt)\b)"
)


class MathMLExtension(Extension):
    """What Markdown loads."""

    def extendMarkdown(self, md: Markdown) -> None:
        # After everything else: arithmatex puts its blocks back as raw HTML at priority
        # 30.
        md.postprocessors.register(_Translator(md), "mathml", 0)


class _Translator(Postprocessor):
    def run(self, text: str) -> str:
        return _FORMULA.sub(_translated, text)


def _translated(found: re.Match[str]) -> str:
    latex = html.unescape(found["latex"]).strip()
    block = found["tag"] == "div"
    formula = convert(latex, display="block" if block else "inline")
    formula = _FUNCTION.sub(r'\1<mspace width="0.167em"/>', formula)
    return f'<div class="formula">{formula}</div>' if block else formula


def makeExtension(**options: Any) -> MathMLExtension:
    """The name by which Markdown finds the extension."""
    return MathMLExtension(**options)

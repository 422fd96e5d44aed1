"""Replies as tokens: words, signs, numbers, and scales such as "(0-100)"."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

#: Signs that are written in several ways, as one.
_SIGNS = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2010": "-",
        "\u2011": "-",
        "\u2012": "-",
        "\u2013": "-",
        "\u2014": "-",
        "\u2212": "-",
        "\u2044": "/",
        "\u066a": "%",
        "\u066b": ".",
    }
)
#: What a reply is rewritten by, in this order, before it is cut into tokens.
_REWRITTEN = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"<([a-z_ ]+)>", r" \1: "),  # <confidence>85</confidence>
        (r"<([^<>\n]*\d[^<>\n]*)>", r"(\1)"),  # the scale <0-100>
        (r"[-=]+>|[\u21d2\u27f6]", " \u2192 "),
        (r"</[a-z_ ]+>", "\n"),
        (r"\\[dt]?frac\{(\d+)\}\{(\d+)\}", r"\1/\2"),
        (r"\\boxed\b", " "),
        (r"(?<=\d)\u00b7(?=\d)", "."),
        (r"n't\b", " not"),
        (r"\bcannot\b", "can not"),
        (r"'m\b", " am"),
        (r"'s\b", " is"),
        (r"'d\b", " would"),
        (r"[*`#~\"'\\${}]", " "),  # Markdown, quotes, LaTeX, JSON
        (r"_+", " "),
        (r"\|", " : "),  # a row of a table
        (r"(?<=[a-z0-9])-(?=[a-z])", " "),  # ninety-five, out-of-ten
        (r"(?<=[\[(])\s*([01]),(\d+)(?=\s*[\])])", r"\1 , \2"),  # the scale [0,1]
        (r"(?<=\d)\.{2,3}(?=\d)", " - "),  # 0..1
        (r"\bper\s+cent\b|\bpercents?\b|\bpct\b", "%"),
        (r"(?<=\d)\s*\+(?=\s*%)|(?<=%)\s*\+", ""),  # 90%+
        (r"[^\S\n]+", " "),
    )
)
_NUMBER = (
    r"(?:\d+(?:\.\d+)?|\.\d+)e[+-]?\d+\b|"  # 2.5e-05
    r"0,\d+|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+|\d+,\d{1,2}(?!\d)|\d+|\.\d+"
)
#: What models write before their reply: all of it is no statement, also where it does
#: not end.
_THINKING = "think|thinking|thought|thoughts|reasoning|reflection|scratchpad|analysis"
_THOUGHTS = re.compile(
    rf"\A.*</think>|<({_THINKING})>(?:(?!<\1>).)*?(?:</\1>|\Z)", re.DOTALL
)
_TOKEN = re.compile(
    rf"(?P<ordinal>\d+(?:st|nd|rd|th)\b)|(?P<number>(?<![\w%)\]])-(?=[\d.])"
    rf"(?:{_NUMBER})|{_NUMBER})|(?P<word>[^\W\d]\w*)|(?P<sign>\+/-|\n+|[^\w\s])"
)
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
SPELLED = (
    {word: float(k) for k, word in enumerate(_UNITS.split())}
    | {word: 10.0 * k for k, word in enumerate(_TENS.split(), start=2)}
    | {"hundred": 100.0}
)
FRACTIONS = {
    "half": 2.0,
    "third": 3.0,
    "thirds": 3.0,
    "quarter": 4.0,
    "quarters": 4.0,
    "fifth": 5.0,
    "fifths": 5.0,
    "tenth": 10.0,
    "tenths": 10.0,
}


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: The most tokens in brackets that may be a scale.
_LONGEST_SCALE = 60
SENTENCE_ENDS = frozenset(".!?;\n")
#: What a number after these is: a confidence.
LABELS = words_of(
    "confidence certainty probability prob likelihood chance chances credence "
    "uncertainty"
)
_SCALE_WORDS = words_of(
    "on a an in the from of to between range scale score rating as value number "
    "integer where with out %"
)


@dataclass(frozen=True)
class Token:
    """A word, a sign, a number or a scale (whose `value` is its largest number)."""

    kind: Literal["word", "sign", "number", "scale"]
    text: str
    value: float = np.nan
    spelled: bool = False


class Tokens(list[Token]):
    """The tokens of a reply; beyond either end their text is ""."""

    def text(self, i: int) -> str:
        """The text of a token; "" outside the reply."""
        return self[i].text if 0 <= i < len(self) else ""

    def texts(self, start: int, stop: int) -> list[str]:
        """The texts of the tokens from `start` to `stop`."""
        return [token.text for token in self[max(start, 0) : stop]]

    def skip(self, i: int, text: str) -> int:
        """The position after a token if it has this text, else its own."""
        return i + 1 if self.text(i) == text else i

    def is_number(self, i: int) -> bool:
        """Whether there is a number at this position."""
        return 0 <= i < len(self) and self[i].kind == "number"

    def is_word(self, i: int) -> bool:
        """Whether there is a word at this position."""
        return 0 <= i < len(self) and self[i].kind == "word"

    def is_scale(self, i: int) -> bool:
        """Whether there is a scale at this position."""
        return 0 <= i < len(self) and self[i].kind == "scale"


def tokenize(text: str) -> Tokens:
    """The words, signs, numbers and scales of a text."""
    text = unicodedata.normalize("NFKC", text.translate(_SIGNS)).translate(_SIGNS)
    text = _THOUGHTS.sub(" ", text.casefold())
    for pattern, replacement in _REWRITTEN:
        text = pattern.sub(replacement, text)
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text):
        tokens += _tokens_of(match, tokens)
    return Tokens(_mark_scales(_join_spelled(tokens)))


def _tokens_of(match: re.Match[str], before: Sequence[Token]) -> list[Token]:
    """The tokens of a match: a "-" after a number is a dash, and no sign of the next
    one.
    """
    text = match.group()
    if match.lastgroup == "ordinal":
        return [Token("word", text)]
    if match.lastgroup != "number":
        if text in SPELLED:
            return [Token("number", text, SPELLED[text], spelled=True)]
        kind: Literal["word", "sign"] = "word" if match.lastgroup == "word" else "sign"
        return [Token(kind, text[:1] if text.isspace() else text)]
    digits = text.lstrip("-")
    number = Token("number", digits, _to_number(digits))
    if digits == text:
        return [number]
    if before and (before[-1].kind == "number" or before[-1].text == "%"):
        return [Token("sign", "-"), number]
    return [Token("number", text, -number.value)]


def _to_number(digits: str) -> float:
    """The value of digits with a decimal point or comma, or with commas for
    thousands.
    """
    if re.fullmatch(r"0,\d+|\d+,\d{1,2}", digits):
        return float(digits.replace(",", "."))
    return float(digits.replace(",", ""))


def _join_spelled(tokens: Sequence[Token]) -> list[Token]:
    """Tokens with "ninety five", "one hundred" and "zero point nine" as one number."""
    joined: list[Token] = []
    for token in tokens:
        n_merged, number = _continue_spelled(joined, token)
        del joined[len(joined) - n_merged :]
        joined.append(number)
    return joined


def _continue_spelled(joined: Sequence[Token], token: Token) -> tuple[int, Token]:
    """How many of the last tokens a spelled number continues, and the number in
    all.
    """
    if not token.spelled or not joined:
        return 0, token
    last = joined[-1]
    if last.spelled:
        if "." in last.text and token.value < 10.0:  # zero point nine five
            return 1, _spelled_number(f"{last.text}{token.value:g}")
        if last.value == 1.0 and token.value == 100.0:
            return 1, token
        is_tens = last.text in _TENS.split() and token.value < 10.0
        if is_tens or (last.value == 100.0 and token.value < 100.0):
            return 1, Token("number", "", last.value + token.value, spelled=True)
        return 0, token
    first = joined[-2] if len(joined) > 1 else token
    if first.spelled and first is not token:
        if last.text == "point":
            return 2, _spelled_number(f"{first.value:g}.{token.value:g}")
        if last.text == "and" and first.value == 100.0:
            return 2, replace(first, value=100.0 + token.value)
    return 0, token


def _spelled_number(digits: str) -> Token:
    return Token("number", digits, float(digits), spelled=True)


def _mark_scales(tokens: list[Token]) -> list[Token]:
    """Tokens with a scale, such as (0-100) or "on a scale of 1 to 10", as one."""
    marked: list[Token] = []
    i = 0
    while i < len(tokens):
        stop, largest = _find_scale(tokens, i)
        if stop > i:
            marked.append(Token("scale", "scale", largest))
            i = stop
        else:
            marked.append(tokens[i])
            i += 1
    return marked


def _find_scale(tokens: Sequence[Token], start: int) -> tuple[int, float]:
    """Where a scale that starts here stops, and its largest number; `start` if none
    does.
    """
    token = tokens[start]
    if token.text in "([" and token.kind == "sign":
        stop = _closing(tokens, start)
        inside = tokens[start + 1 : stop - 1]
        largest = _scale_in_brackets(inside)
        return (stop, largest) if largest else (start, 0.0)
    if token.text in ("scale", "range"):
        first = start + 1
        while first < len(tokens) and tokens[first].text in ("of", "from", ":", "("):
            first += 1
        stop, largest = _read_bounds(tokens, first)
        if not largest:
            stop, largest = _read_anchors(tokens, first)
        return (stop, largest) if largest else (start, 0.0)
    if token.kind == "number":
        if _is_anchor(tokens, start):
            return start + 1, token.value
        stop, largest = _read_bounds(tokens, start)
        if largest and _is_scale_here(tokens, stop):
            return stop, largest
    percent_of_label = (
        token.text in ("%", "percentage")
        and not (start and tokens[start - 1].kind in ("number", "scale"))
        and any(before.text in LABELS for before in tokens[max(start - 6, 0) : start])
    )
    if percent_of_label:
        return start + 1, 100.0
    is_label = start > 0 and tokens[start - 1].text in LABELS
    if is_label and token.text == "/" and start + 1 < len(tokens):  # Confidence/100
        largest = tokens[start + 1].value
        return (start, 0.0) if np.isnan(largest) else (start + 2, largest)
    return start, 0.0


def _closing(tokens: Sequence[Token], start: int) -> int:
    """The position after the bracket that closes the one at `start`."""
    end = min(start + _LONGEST_SCALE, len(tokens))
    for i in range(start + 1, end):
        if tokens[i].text in (")", "]"):
            return i + 1
    return end


def _scale_in_brackets(inside: Sequence[Token]) -> float:
    """The largest number of a scale in brackets; 0 if they hold something else."""
    if [token.text for token in inside if token.text not in ("in", "as", "a")] in (
        ["%"],
        ["percentage"],
    ):
        return 100.0
    first = 0
    while first < len(inside) and inside[first].text in _SCALE_WORDS | {"/", ":"}:
        first += 1
    if first == len(inside) or inside[first].kind != "number":
        return 0.0
    over = {token.text for token in inside[:first]} & {"of", "/"}
    if over and first == len(inside) - 1:  # (out of 10)
        return inside[first].value
    stop, largest = _read_bounds(inside, first)
    if largest and (stop == len(inside) or inside[stop].kind != "number"):
        return largest
    return _largest_anchor(inside)


def _is_anchor(tokens: Sequence[Token], i: int) -> bool:
    """Whether the number is the end of a scale: "where 10 is certain"."""
    around = [token.text for token in (*tokens[i - 1 : i], *tokens[i + 1 : i + 2])]
    means = around[1:] in (["is"], ["="], ["means"])
    return around[:1] == ["where"] and means and tokens[i].value > 0.0


def _read_anchors(tokens: Sequence[Token], first: int) -> tuple[int, float]:
    """The end and the largest number of "where 0 is a guess and 100 is certain"."""
    stop = first
    while stop < len(tokens) and tokens[stop].text not in SENTENCE_ENDS | {",", ":"}:
        stop += 1
    return stop, _largest_anchor(tokens[first:stop])


def _largest_anchor(tokens: Sequence[Token]) -> float:
    """The largest number of "1 = low, 5 = high" or "1 (low) to 5 (high)"; 0 for
    others.
    """
    named = [
        token.value
        for token, after in pairwise(tokens)
        if token.kind == "number" and after.text in ("=", "is", "means", ":", "(")
    ]
    is_scale = len(named) > 1 and min(named) in (0.0, 1.0) and max(named) > min(named)
    return max(named) if is_scale else 0.0


def _read_bounds(tokens: Sequence[Token], first: int) -> tuple[int, float]:
    """The end and the largest number of "0-100", "0 to 1" or "1 and 10"; largest 0 for
    others.
    """
    texts = [token.text for token in tokens[first : first + 6]]
    numbers = [token.value for token in tokens[first : first + 6]]
    n_low = 2 if texts[1:2] == ["%"] else 1
    joined = texts[n_low : n_low + 1]
    if not joined or joined[0] not in ("-", "to", "and", ",", "through"):
        return first, 0.0
    if len(texts) <= n_low + 1 or np.isnan([numbers[0], numbers[n_low + 1]]).any():
        return first, 0.0
    low = numbers[0]
    high = numbers[n_low + 1]
    stop = n_low + 2
    if texts[stop : stop + 1] == ["%"]:
        stop += 1
    with_percent = "%" in texts[:stop]
    is_scale = low in (0.0, 1.0) and high > low and (high == 100.0 or not with_percent)
    is_scale = is_scale or (low == 0.0 and high == 1.0)
    return (first + stop, high) if is_scale else (first, 0.0)


def _is_scale_here(tokens: Sequence[Token], stop: int) -> bool:
    """Whether bounds outside brackets are a scale: "0-100: 85" or "0-100 scale"."""
    after = [token.text for token in tokens[stop : stop + 1]]
    numbered = stop + 1 < len(tokens) and tokens[stop + 1].kind == "number"
    return after == ["scale"] or (after[:1] in ([":"], ["="]) and numbered)

"""Numbers of a reply with what belongs to them: "80-90%", "9 out of 10", a scale."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hokical.io.stated.tokens import FRACTIONS, SENTENCE_ENDS, SPELLED, Tokens

_SHARES = "may be a fraction or two shares"
CHANGE = "may be a change of confidence"
_ARROW = "\u2192"
_INEXACT = "names no exact number"


@dataclass(frozen=True)
class Quantity:
    """A number of the tokens from `start` to `stop`, on a `scale`; None if it names
    none.
    """

    start: int
    stop: int
    value: float
    scale: float | None = None
    is_percentage: bool = False
    spelled: bool = False
    has_point: bool = False
    doubt: str = ""


def find_quantities(tokens: Tokens) -> list[Quantity]:
    """The numbers of the reply with what belongs to them, on the scales that it
    names.
    """
    quantities = []
    i = 0
    while i < len(tokens):
        quantity = _quantity_at(tokens, i)
        if quantity is None:
            i += 1
        else:
            quantities.append(quantity)
            i = quantity.stop
    return [_with_scale(tokens, quantity) for quantity in quantities]


def _quantity_at(tokens: Tokens, start: int) -> Quantity | None:
    token = tokens[start]
    if token.text in FRACTIONS and token.kind == "word":
        return Quantity(start, start + 1, 1.0, FRACTIONS[token.text], spelled=True)
    if token.kind != "number":
        return None
    stop = tokens.skip(start + 1, "%")
    is_percentage = stop > start + 1
    if tokens.text(stop) == "s":  # in the low 80s
        return Quantity(start, stop + 1, token.value, doubt=_INEXACT)
    quantity = Quantity(
        start,
        stop,
        token.value,
        scale=100.0 if is_percentage else None,
        is_percentage=is_percentage,
        spelled=token.spelled,
        has_point="." in token.text or "," in token.text,
    )
    denominator = FRACTIONS.get(tokens.text(stop))
    if denominator is not None and quantity.scale is None:
        return replace(quantity, stop=stop + 1, scale=denominator)
    quantity = _with_range(tokens, quantity)
    if quantity.scale is None:
        quantity = _with_denominator(tokens, quantity)
    return quantity


def _with_range(tokens: Tokens, quantity: Quantity) -> Quantity:
    """The middle of a range: "80-90%", "between 0.8 and 0.9", "85% +/- 5%"."""
    stop = quantity.stop
    joint = tokens.text(stop)
    if not tokens.is_number(stop + 1):
        return quantity
    after = tokens.skip(stop + 2, "%")
    if joint in ("+/-", "\u00b1"):
        is_percentage = quantity.is_percentage or after > stop + 2
        scale = 100.0 if is_percentage else quantity.scale
        return replace(quantity, stop=after, scale=scale, is_percentage=is_percentage)
    between = joint == "and" and tokens.text(quantity.start - 1) == "between"
    if not between and joint not in ("-", "to", "or", _ARROW):
        return quantity
    high = tokens[stop + 1].value
    if quantity.value == high == 50.0 and after == stop + 2:  # fifty-fifty
        return replace(quantity, stop=after, value=0.5, scale=1.0)
    is_percentage = quantity.is_percentage or after > stop + 2
    comes_from = tokens.text(quantity.start - 1) == "from"
    is_change = joint == _ARROW or (joint == "to" and comes_from)
    return replace(
        quantity,
        stop=after,
        value=0.5 * (quantity.value + high),
        scale=100.0 if is_percentage else None,
        is_percentage=is_percentage,
        doubt=CHANGE if is_change else "",
    )


def _with_denominator(tokens: Tokens, quantity: Quantity) -> Quantity:
    """A quantity of a fraction: "9/10", "8 out of 10", "3 in 4"; "50/50" is
    even.
    """
    stop = quantity.stop
    if tokens.text(stop) in ("times", "cases"):
        stop += 1
    texts = (tokens.text(stop), tokens.text(stop + 1))
    if texts == ("out", "of"):
        joint = "out of"
        stop += 2
    elif texts[0] in ("/", "of", "in"):
        joint = texts[0]
        stop += 1
    elif texts[0] in SPELLED and quantity.value == SPELLED[texts[0]] == 50.0:
        return replace(quantity, stop=stop + 1, value=0.5, scale=1.0)
    else:
        return quantity
    if not tokens.is_number(stop):
        return quantity
    denominator = tokens[stop].value
    fraction = replace(quantity, stop=stop + 1, scale=denominator)
    is_split = joint == "/" and quantity.value + denominator == 100.0
    if is_split and denominator < 100.0:
        # "60/40" are two shares; "40/60" may be a fraction as well.
        doubt = "" if quantity.value >= denominator else _SHARES
        return replace(fraction, scale=100.0, doubt=doubt)
    largest = 1e6 if joint == "out of" else 100.0
    is_fraction = 0.0 < denominator <= largest and quantity.value <= denominator
    if is_fraction:
        return fraction
    return replace(fraction, value=np.nan) if joint == "/" else quantity  # 12/2019


def _with_scale(tokens: Tokens, quantity: Quantity) -> Quantity:
    """The quantity on the scale that the reply names before it, or else just
    after.
    """
    if quantity.scale is not None:
        return quantity
    for i in range(quantity.start - 1, -1, -1):
        if tokens[i].kind == "scale":
            return replace(quantity, scale=tokens[i].value)
        if tokens[i].kind == "number" or tokens.text(i) in (".", "!", "?"):
            break
    for i in range(quantity.stop, min(quantity.stop + 4, len(tokens))):
        if tokens[i].kind == "scale":
            return replace(quantity, scale=tokens[i].value)
        if tokens[i].kind == "number" or tokens.text(i) in SENTENCE_ENDS:
            break
    return quantity

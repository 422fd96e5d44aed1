"""Confidences that language models state in words: `read_stated`.

A reply becomes tokens: words, numbers, signs, and scales such as "(0-100)". Numbers
with what belongs to them ("80-90%", "9 out of 10") are quantities; quantities and words
of a table are candidates for the stated confidence, each with a strength: "Confidence:
85" is a field of a form, "90% sure" names what it is, "25%" alone may be an answer. The
strongest candidate is what the reply states. Candidates of the same strength that
contradict each other, and numbers whose scale is unknown, are ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, overload

import numpy as np

from hokical._core.arrays import FloatArray
from hokical._core.checks import check_positive
from hokical._core.reading import frame_columns
from hokical._core.runtime import warn_user
from hokical.io.stated.replies import (
    BEYOND,
    NO_SCALE,
    NO_STATEMENT,
    Reading,
    Reply,
    Strength,
    WordTable,
)
from hokical.io.stated.tokens import tokenize

STATED_WORDS: Mapping[str, float] = {
    "impossible": 0.0,
    "exceptionally unlikely": 0.01,
    "no confidence": 0.05,
    "extremely unlikely": 0.05,
    "very unlikely": 0.1,
    "highly unlikely": 0.1,
    "very low confidence": 0.1,
    "no idea": 0.1,
    "unlikely": 0.33,
    "very uncertain": 0.2,
    "very unsure": 0.2,
    "not confident": 0.3,
    "low confidence": 0.3,
    "not very confident": 0.25,
    "not very sure": 0.25,
    "not very likely": 0.25,
    "not likely": 0.33,
    "not sure": 0.35,
    "not certain": 0.35,
    "unsure": 0.35,
    "uncertain": 0.35,
    "about as likely as not": 0.5,
    "possible": 0.5,
    "possibly": 0.5,
    "maybe": 0.5,
    "perhaps": 0.5,
    "more likely than not": 0.6,
    "not entirely sure": 0.6,
    "not entirely certain": 0.6,
    "not completely sure": 0.6,
    "not completely certain": 0.6,
    "medium low confidence": 0.45,
    "medium confidence": 0.6,
    "medium high confidence": 0.75,
    "moderate confidence": 0.6,
    "somewhat confident": 0.6,
    "moderately confident": 0.6,
    "somewhat sure": 0.6,
    "somewhat certain": 0.6,
    "somewhat likely": 0.6,
    "likely": 0.66,
    "probable": 0.7,
    "probably": 0.7,
    "fairly sure": 0.75,
    "fairly confident": 0.75,
    "reasonably sure": 0.75,
    "reasonably confident": 0.75,
    "fairly certain": 0.75,
    "reasonably certain": 0.75,
    "quite likely": 0.75,
    "pretty sure": 0.8,
    "pretty confident": 0.8,
    "quite sure": 0.8,
    "quite confident": 0.8,
    "pretty certain": 0.8,
    "quite certain": 0.8,
    "confident": 0.85,
    "sure": 0.85,
    "most likely": 0.85,
    "most probably": 0.85,
    "high confidence": 0.9,
    "very likely": 0.9,
    "highly likely": 0.9,
    "very probable": 0.9,
    "highly probable": 0.9,
    "very probably": 0.9,
    "very sure": 0.95,
    "very confident": 0.95,
    "very certain": 0.95,
    "highly confident": 0.95,
    "very high confidence": 0.95,
    "extremely likely": 0.95,
    "extremely confident": 0.97,
    "extremely sure": 0.97,
    "extremely certain": 0.97,
    "almost certain": 0.97,
    "almost certainly": 0.97,
    "virtually certain": 0.99,
    "definitely": 0.98,
    "certainly": 0.98,
    "certain": 0.98,
    "absolutely sure": 1.0,
    "absolutely certain": 1.0,
    "completely sure": 1.0,
    "totally sure": 1.0,
    "completely certain": 1.0,
}
"""Words for how sure somebody is, with probabilities.

Those of the IPCC's guidance on uncertainties (Mastrandrea et al., 2010) for "likely" and its kin,
the others in between. "high confidence" is also read from "Confidence: high".
"""

#: The most replies that are quoted in a message.
_QUOTED = 3
#: The most characters of each.
_QUOTED_LENGTH = 60


@overload
def read_stated(
    answers: str,
    words: Mapping[str, float] | None = None,
    *,
    scale: float | None = None,
) -> float: ...
@overload
def read_stated(
    answers: Iterable[Any],
    words: Mapping[str, float] | None = None,
    *,
    scale: float | None = None,
) -> FloatArray: ...
def read_stated(
    answers: str | Iterable[object],
    words: Mapping[str, float] | None = None,
    *,
    scale: float | None = None,
) -> float | FloatArray:
    """The confidence in [0, 1] that a text states, or (n,) of several texts.

    Reads percentages ("90 %", "ninety percent", "80-90%": the middle), fractions
    ("9/10", "9 out of 10", "0.9"), numbers after "confidence" or "probability", on the
    scale that a text names ("Confidence (1-10): 8", "on a scale of 0 to 100"), and
    words such as "very likely"; in prose, Markdown, tables, tags and JSON. "10% chance
    that I am wrong" is 0.9. Numbers go before words, and what is called a confidence
    ("90% sure", "Confidence: 85") goes before other numbers.

    NaN marks a text that states none, or not clearly: "60% Paris, 40% Rome", "not 90%
    sure", "Confidence: 8" (of 10 or of 100?). One warning counts the unclear ones and
    quotes some. "Sure!" at the start of a longer text is no statement.

    Parameters
    ----------
    answers : text, or texts (n,)
        The part of a reply that states the confidence, where the answer has numbers
        too. Numbers are read as texts that consist of a number.
    words : mapping of words to confidences, optional
        In the place of `hokical.io.STATED_WORDS`; {} reads numbers alone. What words
        mean is learned by `hokical.calibrate_confidence`: their order is what matters.
    scale : float, optional
        The largest number of the scale that you asked for: 1, 5, 10 or 100. It is that
        of numbers whose text names none. By default they share one: up to 1 or, where
        any is above 10, percentages.

    Examples
    --------
    >>> from hokical.io import read_stated
    >>> read_stated("I am 90% sure")
    0.9
    >>> read_stated(["9 out of 10", "Confidence: 85", "Very unlikely.", "Paris"])
    array([0.9 , 0.85, 0.1 ,  nan])
    >>> read_stated([90, 1, 80])
    array([0.9 , 0.01, 0.8 ])
    >>> read_stated(["Confidence: 8", "Confidence: 5"], scale=10)
    array([0.8, 0.5])
    >>> read_stated("pas sûr", words={"sûr": 0.9, "pas sûr": 0.3})
    0.3
    """
    if scale is not None:
        check_positive("scale", scale, "Use 1, 10 or 100.")
    table = WordTable(STATED_WORDS if words is None else words)
    replies = _as_replies(answers)
    readings = [_read(reply, table) for reply in replies]
    readings = _resolve_scales(readings, scale)
    _warn_of_doubts(replies, readings)
    values = np.array([reading.value for reading in readings], np.float64)
    return float(values[0]) if isinstance(answers, str) else values


def _as_replies(answers: object) -> list[object]:
    """The texts, or a list of the one text."""
    if isinstance(answers, str):
        return [answers]
    got = type(answers).__name__
    is_list = not isinstance(answers, bytes | Mapping) and not frame_columns(answers)
    if isinstance(answers, np.ndarray):
        got = f"an array of shape {answers.shape}"
        is_list = answers.ndim == 1
    if is_list and isinstance(answers, Iterable):
        return list(answers)
    raise TypeError(
        f"`answers` must be a text, or texts (n,); got {got}. Pass a list of texts, "
        "or one column."
    )


def _read(answer: object, table: WordTable) -> Reading:
    """What one answer states, or a number that it is."""
    if answer is None or isinstance(answer, (bool, np.bool_)):
        return NO_STATEMENT
    if isinstance(answer, Real):
        return Reading(float(answer), None, Strength.FIELD, bare=True)
    return Reply(tokenize(str(answer)), table).read()


def _resolve_scales(readings: Sequence[Reading], scale: float | None) -> list[Reading]:
    """Readings in [0, 1]: those that name no scale share one."""
    on_scale = _common_scale(readings) if scale is None else _fixed_scale(scale)
    return [
        on_scale(reading) if reading.is_unscaled else reading for reading in readings
    ]


def _fixed_scale(scale: float) -> Callable[[Reading], Reading]:
    def on_scale(reading: Reading) -> Reading:
        value = reading.value / scale
        if 0.0 <= value <= 1.0:
            return replace(reading, value=value, scale=1.0)
        return replace(reading, value=np.nan, doubt=BEYOND)

    return on_scale


def _common_scale(readings: Sequence[Reading]) -> Callable[[Reading], Reading]:
    """What puts readings on one scale: to 1, or percentages where any is above 10."""
    unscaled = [reading for reading in readings if reading.is_unscaled]
    numbers = np.array([reading.value for reading in unscaled])
    numbers = numbers[(numbers >= 0.0) & (numbers <= 100.0)]
    are_percentages = bool((numbers > 10.0).any())
    have_large = bool((numbers > 1.0).any())
    have_fractions = bool(((numbers > 0.0) & (numbers < 1.0)).any())
    have_signs = any(reading.is_percentage for reading in readings)

    def scale_of(reading: Reading) -> float | None:
        """The scale of a number in [0, 100]; None if it is unknown."""
        value = reading.value
        in_words = reading.has_point and not reading.bare
        if value == 0.0 or (value <= 1.0 and in_words):
            return 1.0
        if value > 1.0:
            return 100.0 if are_percentages else None
        if not have_large:  # 1 beside "90%" may be either
            return None if value == 1.0 and have_signs and not have_fractions else 1.0
        is_one_percent = value == 1.0 and not reading.has_point and not have_fractions
        return 100.0 if is_one_percent and are_percentages else None

    def on_scale(reading: Reading) -> Reading:
        if not 0.0 <= reading.value <= 100.0:
            return replace(reading, value=np.nan, doubt=BEYOND)
        scale = scale_of(reading)
        if scale is None:
            return replace(reading, value=np.nan, doubt=NO_SCALE)
        return replace(reading, value=reading.value / scale, scale=1.0)

    return on_scale


def _warn_of_doubts(replies: Sequence[object], readings: Sequence[Reading]) -> None:
    """One message about all ambiguous replies, with some of them."""
    doubtful = [row for row, reading in enumerate(readings) if reading.doubt]
    if not doubtful:
        return
    quoted = []
    for row in doubtful[:_QUOTED]:
        text = " ".join(str(replies[row]).split())
        if len(text) > _QUOTED_LENGTH:
            text = f"{text[: _QUOTED_LENGTH - 3]}..."
        quoted.append(f"{text!r} in row {row} {readings[row].doubt}")
    warn_user(
        f"`answers` state an ambiguous confidence in {len(doubtful):,} of "
        f"{len(replies):,} replies, which is read as NaN: {'; '.join(quoted)}. Pass the "
        "part of a reply that states the confidence, and `scale=` where numbers name "
        "none."
    )

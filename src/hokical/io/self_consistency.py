"""Agreement of repeated samples of an answer (self-consistency)."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, NamedTuple

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import show
from hokical._core.reading import frame_columns

#: A number, with or without commas for thousands. "007" is a code.
_NUMBER = re.compile(r"(?=.*\d)[+-]?(?:0|[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d*)?(?:\.\d+)?")
#: What is written around an answer: Markdown, quotes, brackets, formulas.
_WRAPPED = re.compile(
    r"(\*++|_++|`++|~~|\$++|[\"'\u2018\u201c\u201e\u00ab\u300c])(.+)"
    r"(?:\1|[\u2019\u201c\u201d\u00bb\u300d])"
    r"|()\\\((.+)\\\)|()\\\[(.+)\\\]|()\(([^()]+)\)|()\[([^\[\]]+)\]"
    r"|()\\(?:boxed|text|textbf|mathrm|mathbf)"
    r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})+)\}",
    re.DOTALL,
)
#: Powers, which would become digits of the number: 10\u00b2 is not 102.
_POWERS = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207a\u207b\u207f]+")
#: Signs without width, and the full stop of Chinese and Japanese.
_BLANK = "\u200b\u200e\u200f\ufeff"
_FINAL = " .,;:!?\u3002"


class Agreement(NamedTuple):
    """Of each question the most frequent answer, and how many of its samples agree.

    `answers` (n,) are as they were given, None where all samples are missing; `share`
    (n,) is that of the samples that agree, NaN there; `n_samples` (n,) counts those
    that are not missing.
    """

    answers: list[Any]
    share: FloatArray
    n_samples: IntArray

    @property
    def confidence(self) -> FloatArray:
        """The probability (n,) that another sample agrees, NaN where there are none.

        For k of n that agree it is (k + 1) / (n + 2), the rule of succession: one of
        one is 0.67, ten of ten are 0.92.
        """
        n_agreeing = self.share * self.n_samples
        return np.asarray((n_agreeing + 1.0) / (self.n_samples + 2.0))


def agreement(
    samples: Iterable[Iterable[Any]],
    normalize: Callable[[Any], Hashable] | None = None,
) -> Agreement:
    """The most frequent answer of each question, and the share of samples that agree.

    Parameters
    ----------
    samples : answers to each question, sampled several times
        None, NaN and empty text are missing: they neither agree nor count. Questions
        may have different numbers of samples.
    normalize : function, optional
        Makes answers that mean the same equal; what it returns is compared, and
        missing values are as above. By default text is compared without case, spaces,
        Markdown, quotes, brackets and final punctuation, and numbers by value: "Paris",
        "**paris**." are equal, as are "(A)", "a" and "A.", and "1,000", "1000.0", 1000.

    Returns
    -------
    Agreement
        The first sample of the most frequent answer, as it was given; of equally
        frequent answers the first. `confidence` is what to calibrate: it counts the
        samples.

    Examples
    --------
    >>> from hokical.io import agreement
    >>> agreed = agreement([["Paris", "**paris**", "Lyon"], ["4"], ["", None]])
    >>> agreed.answers, agreed.share.round(2), agreed.n_samples
    (['Paris', '4', None], array([0.67, 1.  ,  nan]), array([3, 1, 0]))
    >>> agreed.confidence.round(2)
    array([0.6 , 0.67,  nan])
    """
    key_of = _fold if normalize is None else normalize
    if not callable(key_of):
        raise TypeError(
            f"`normalize` must be a function; got {show(normalize)}. For example str.lower."
        )
    questions = [
        _most_frequent(row, answers, key_of)
        for row, answers in enumerate(_rows_of(samples))
    ]
    n_agreeing = np.array([count for _, count, _ in questions], np.float64)
    n_samples = np.array([size for _, _, size in questions], np.int64)
    share = np.full(n_samples.size, np.nan)
    np.divide(n_agreeing, n_samples, out=share, where=n_samples > 0)
    return Agreement([answer for answer, _, _ in questions], share, n_samples)


def _rows_of(samples: Iterable[Iterable[Any]]) -> Iterable[Iterable[Any]]:
    """The answers of each question: rows of frames, plain values of Arrow."""
    if frame_columns(samples):
        return list(np.asarray(samples))
    if isinstance(samples, str) or not isinstance(samples, Iterable):
        raise TypeError(
            "`samples` must be a list of answers for each question; got "
            f"{show(samples)}."
        )
    return list(samples.to_pylist()) if hasattr(samples, "to_pylist") else samples


def _most_frequent(
    row: int, answers: Iterable[Any], key_of: Callable[[Any], Hashable]
) -> tuple[Any, int, int]:
    """The most frequent answer, how often it is given, and the number of samples."""
    if isinstance(answers, (str, bytes)) or not isinstance(answers, Iterable):
        raise ValueError(
            "`samples` must have a list of answers for each question; got "
            f"{answers!r} in row {row}. For one sample of each question pass "
            "`[[answer] for answer in answers]`."
        )
    first: dict[Hashable, Any] = {}
    counts = Counter[Hashable]()
    for answer in answers:
        key = None if _is_missing(answer) else key_of(answer)
        if _is_missing(key):
            continue
        if not isinstance(key, Hashable):
            raise TypeError(
                f"`samples` must be text or numbers; got {answer!r} in row {row}. Pass "
                "`normalize=`, a function that makes equal answers equal text."
            )
        first.setdefault(key, answer)
        counts[key] += 1
    if not counts:
        return None, 0, 0
    key, count = counts.most_common(1)[0]
    return first[key], count, counts.total()


def answer_key(answer: object) -> Hashable | None:
    """What is compared of an answer, as by `agreement`; None if it is missing."""
    return None if _is_missing(answer) else _fold(answer)


def _is_missing(answer: object) -> bool:
    """Whether an answer is None, NaN, pandas' NA or text without a sign."""
    if isinstance(answer, str):
        return not answer.strip()
    kinds = (Real, Decimal, np.datetime64, np.timedelta64)
    is_nan = isinstance(answer, kinds) and bool(answer != answer)
    return answer is None or is_nan or type(answer).__name__ in ("NAType", "NaTType")


def _fold(answer: Any) -> Hashable:
    """What is compared of an answer: text without what is around it, numbers by
    value.
    """
    if isinstance(answer, (bool, np.bool_)):
        return str(answer).casefold()
    if isinstance(answer, Rational):  # whole numbers, too
        return Fraction(answer)
    if isinstance(answer, Real | Decimal):
        return _number_key(str(answer))
    if not isinstance(answer, str):
        return answer  # type: ignore[no-any-return]
    text = _POWERS.sub(r"^\g<0>", answer.strip(_BLANK))
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-")
    text = " ".join(text.split())
    bare = _without_wrapping(text)
    number = bare.replace(",", "")
    return (
        _number_key(number) if _NUMBER.fullmatch(bare) and number else bare.casefold()
    )


def _number_key(number: str) -> Hashable:
    """A key by value: "1e3", "1000" and "1000.0" are equal."""
    value = Decimal(number)
    return Fraction(value) if value.is_finite() else value


def _without_wrapping(text: str) -> str:
    """Text without Markdown, quotes and brackets around it, and without final
    punctuation.
    """
    while True:
        bare = text.rstrip(_FINAL)
        wrapped = _WRAPPED.fullmatch(bare)
        if wrapped is not None:
            groups = [group for group in wrapped.groups() if group is not None]
            bare = groups[-1].strip()
        elif bare.endswith(")") and "(" not in bare:  # A)
            bare = bare[:-1]
        if not bare or bare == text:
            return bare or text
        text = bare

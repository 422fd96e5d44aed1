"""Repeated samples of an answer: the most frequent one, and the share of samples that agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from hokical._core.types import FloatArray


def agreement(
    samples: Iterable[Iterable[Any]], normalize: Callable[[Any], Hashable] | None = None
) -> tuple[list[Any], FloatArray]:
    """The most frequent answer of each question, and the share (n,) of its samples that agree.

    `samples` are the answers to each question, sampled several times. `normalize` makes answers
    that mean the same equal; by default text is stripped of spaces, final full stops and case. Of
    equally frequent answers the first counts.

    >>> from hokical.io import agreement
    >>> answers, share = agreement([["Paris", "paris.", "Lyon"], ["4", "5", "4"]])
    >>> answers, share.round(2)
    (['paris', '4'], array([0.67, 0.67]))
    """
    key = _normalize if normalize is None else normalize
    answers, shares = [], []
    for row, given in enumerate(samples):
        counts = Counter() if isinstance(given, str) else Counter(map(key, given))
        if not counts:
            raise ValueError(
                f"`samples` must have a list of answers for each question; got {given!r} in row "
                f"{row}. Leave out questions without an answer."
            )
        answer, count = counts.most_common(1)[0]
        answers.append(answer)
        shares.append(count / counts.total())
    return answers, np.array(shares)


def _normalize(answer: Any) -> Any:
    return answer.strip().rstrip(".").strip().casefold() if isinstance(answer, str) else answer

"""Answers about frozen records that are worked out once.

A record that is asked the same again and again, such as the examples behind a
guarantee, declares a field for them: `memo: Memo = field(default_factory=Memo,
init=False, repr=False, compare=False)`. What it holds follows from the other fields, so
it is neither compared nor stored, and a copy of the record starts with an empty one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

#: Answers that a record holds; when it has as many, it forgets them.
_CAPACITY = 64

Work = TypeVar("Work", bound=Callable[..., Any])


class Memo(dict[Any, Any]):
    """The answers of a record, which neither a pickle nor a deep copy takes along."""

    def __reduce__(self) -> Any:
        return Memo, ()


def remembered(work: Work) -> Work:
    """Decorator for functions of a record with a `memo` and of hashable arguments."""

    @wraps(work)
    def ask(record: Any, /, *arguments: Any, **named: Any) -> Any:
        memo: Memo = record.memo
        question = (work.__qualname__, arguments, *named.items())
        answer = memo.get(question)  # another thread may forget the answers
        if answer is None:
            if len(memo) >= _CAPACITY:
                memo.clear()
            answer = memo[question] = work(record, *arguments, **named)
        return answer

    return cast(Work, ask)

"""Promises in plain English, made in one place."""

from __future__ import annotations


class Guaranteed:
    """Base of results that come with a promise: `guarantee` states it in plain English."""

    guarantee: str


def state_promise(
    what: str, behind: str, *, delta: float | None, by: str = "all", weighted: bool = False
) -> str:
    """`what` is promised, how surely, and the examples `behind` it.

    >>> state_promise("At most 0.1 are missed", "of 50 examples 2 are", delta=0.1, by="group")
    'At most 0.1 are missed, with confidence 0.9 for each group: of 50 examples 2 are.'
    """
    sure = "on average over such examples"
    if delta is not None:
        sure = f"with confidence {1.0 - delta:.4g}" + f" for each {by}" * (by != "all")
    if weighted:
        sure += ", if the weights of the examples are right"
    return f"{what}, {sure}: {behind}."


def state_limits(n: int, best: str, wanted: str, fewest: int, needed: int | None) -> str:
    """What n examples prove instead of the `wanted` risk, and how many would prove that."""
    end = "More examples will hardly help: no score has so small an error rate."
    if n < fewest:
        end = f"It takes at least {fewest:,} examples, even without a mistake."
    elif needed is not None:
        end = f"About {needed:,} examples of this kind would prove {wanted}."
    return f"The smallest risk that they prove is {best}. {end}"

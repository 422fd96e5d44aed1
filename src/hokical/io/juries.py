"""A jury: the votes, probabilities and scores of several judges as an ensemble."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

import numpy as np

from hokical._core import reading
from hokical._core.arrays import AnyArray, Array, FloatArray
from hokical._core.checks import as_number, check_names, show
from hokical._core.conversion import from_probabilities
from hokical._core.ensembles import Ensemble
from hokical.io.self_consistency import answer_key

#: What a vote, or the end of a scale, says before it is learned: the probability of its
#: choice. A judge is believed neither blindly nor hardly at all.
_VOTE_PROBABILITY = 0.9

Judges = Mapping[str, Array]


def jury(
    choices: Sequence[str] = ("no", "yes"),
    *,
    votes: Judges | None = None,
    probabilities: Judges | None = None,
    scores: Judges | None = None,
    scale: tuple[float, float] = (1.0, 10.0),
) -> Ensemble:
    """Several judges of the same examples, as an ensemble with one member for each.

    A calibrator that is fitted on it learns how far each judge can be trusted. None,
    NaN and empty text are missing: that judge was not asked, or gave no answer. Every
    example needs an answer of at least one judge.

    Parameters
    ----------
    choices : sequence of str
        What the judges choose from; class k is choices[k].
    votes : mapping of names of judges to votes (n,), optional
        Choices as text, compared as by `agreement` ("**Yes.**" is "yes"), or their
        numbers 0, 1, ... where no choice is a number itself. Or a frame with a column
        for each judge.
    probabilities : mapping of names to arrays (n, choices), or (n,), optional
        Of each choice; (n,) of the second of two.
    scores : mapping of names to arrays (n, choices), or (n,), optional
        Numbers on the `scale`, the higher the better: of each choice; (n,) for the
        second of two.
    scale : (lowest, highest)
        The scale of the scores.

    Returns
    -------
    Ensemble
        Before anything is learned, a vote counts as a probability of 0.9.

    Examples
    --------
    >>> from hokical import make
    >>> judges = jury(
    ...     votes={"a": ["yes", "No.", None]},
    ...     probabilities={"b": [0.8, np.nan, 0.3]},
    ...     scores={"c": [7, 2, 5.5]},
    ... )
    >>> judges
    Ensemble(3 members, 3 rows, 2 classes: a, b, c)
    >>> make("uncalibrated").fit(judges, [1, 0, 0]).predict(judges)
    array([1, 0, 0])
    """
    names = [choices] if isinstance(choices, str) else check_names("choices", choices)
    n_choices = len(names)
    if n_choices < 2 or len({*names}) < n_choices:
        remedy = f" Pass `list({choices!r})`." if isinstance(choices, str) else ""
        raise ValueError(
            "`choices` must be at least two different answers; got "
            f"{choices!r}.{remedy}"
        )
    ends = scale if isinstance(scale, Sequence) else ()
    low, high = map(as_number, ends) if len(ends) == 2 else (math.nan, math.nan)
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"`scale` must be (lowest, highest); got {show(scale)}.")

    def read_votes(values: Array, name: str) -> FloatArray:
        codes = _vote_codes(values, choices, name)
        return _certainty(n_choices) * _one_hot(codes, n_choices)

    def read_probabilities(values: Array, name: str) -> FloatArray:
        table = _numbers(values, n_choices, name)
        return _fill(table, lambda rows: from_probabilities(rows, name=name))

    def read_scores(values: Array, name: str) -> FloatArray:
        return _logits_of_scores(_numbers(values, n_choices, name), low, high, name)

    members = dict[str, FloatArray]()
    for kind, judges, read in (
        ("votes", votes, read_votes),
        ("probabilities", probabilities, read_probabilities),
        ("scores", scores, read_scores),
    ):
        for name, values in _by_name(judges, kind):
            if name in members:
                raise ValueError(
                    f"judges must have different names; got {name!r} twice. A judge "
                    "with votes and scores is two members: name both."
                )
            members[name] = read(values, f"{kind}[{name!r}]")
    if not members:
        raise ValueError(
            "`votes`, `probabilities` or `scores` must have a judge; got none."
        )
    ensemble = Ensemble(members)
    _refuse_unjudged(list(members.values()))
    return ensemble


def _by_name(judges: Judges | None, kind: str) -> list[tuple[str, Array]]:
    """Judges with their answers; the columns of a frame are judges, too."""
    if columns := reading.frame_columns(judges):
        return [(str(column), judges[column]) for column in columns]  # type: ignore[index]
    if not isinstance(judges, Mapping | None):
        raise TypeError(
            f"`{kind}` must be a mapping, the judges by name; got {show(judges)}."
        )
    return [] if judges is None else [*judges.items()]


def _certainty(n_choices: int) -> float:
    """How far the logit of a vote is above those of the other choices."""
    log_odds = math.log(_VOTE_PROBABILITY / (1.0 - _VOTE_PROBABILITY))
    return log_odds + math.log(n_choices - 1)


def _logits_of_scores(
    table: FloatArray, low: float, high: float, name: str
) -> FloatArray:
    """Logits of scores on a scale: (n, choices), or (n,) of the second of two."""
    reading.refuse(
        (table < low) | (table > high),
        table,
        f"`{name}` must lie on the scale",
        "Pass their `scale`, (lowest, highest).",
    )
    shares = (table - low) / (high - low)
    if table.ndim == 2:
        return np.asarray(_certainty(table.shape[1]) * shares)
    # From one end of the scale to the other; its middle says nothing.
    second = _certainty(2) * (2.0 * shares - 1.0)
    return np.stack([0.0 * second, second], axis=1)


def _refuse_unjudged(members: Sequence[FloatArray]) -> None:
    """Raise if no judge has an answer for some example."""
    unjudged = np.all([np.isnan(member).all(axis=1) for member in members], axis=0)
    if unjudged.any():
        n_more = int(unjudged.sum()) - 1
        more = f" and {n_more:,} more" if n_more else ""
        raise ValueError(
            "each example must have an answer of at least one judge; got none in row "
            f"{int(np.argmax(unjudged))}{more}. Drop such rows."
        )


def _vote_codes(values: Array, choices: Sequence[str], name: str) -> FloatArray:
    """Numbers of the choices (n,), NaN where a vote is missing."""
    votes = values.tolist() if hasattr(values, "tolist") else list(values)
    code_of = {answer_key(choice): float(k) for k, choice in enumerate(choices)}
    # 1 is the first of "1", "2", "3", and True that of "true", "false".
    may_be_numbers = not any(isinstance(key, Decimal) for key in code_of)
    codes = np.full(len(votes), np.nan)
    for row, vote in enumerate(votes):
        key = answer_key(vote)
        if key is None:
            continue
        number = int(vote) if isinstance(vote, bool) else vote
        code = code_of.get(key, code_of.get(answer_key(number)))
        if code is None and may_be_numbers and number in range(len(choices)):
            code = float(number)
        if code is None:
            raise ValueError(
                f"`{name}` must hold choices ({', '.join(choices)}) or their numbers; "
                f"got {vote!r} in row {row}. Replace what is no vote by None."
            )
        codes[row] = code
    return codes


def _one_hot(codes: FloatArray, n_choices: int) -> FloatArray:
    table = np.asarray(codes[:, None] == np.arange(n_choices), np.float64)
    table[np.isnan(codes)] = np.nan
    return table


def _numbers(values: Array, n_choices: int, name: str) -> FloatArray:
    """Numbers (n, choices), or (n,) of the second of two; None is NaN."""
    try:
        table = np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"`{name}` must be numbers, None or NaN; {error}.") from error
    shape = table.shape
    if shape[1:] == (n_choices,) or (table.ndim == 1 and n_choices == 2):
        return table
    alone = ", or (n,)" if n_choices == 2 else ""
    raise ValueError(
        f"`{name}` must have the shape (n, {n_choices}), a column for each choice"
        f"{alone}; got {shape}."
    )


def _fill(table: FloatArray, change: Callable[[AnyArray], Array]) -> FloatArray:
    """Logits (n, classes) of the rows with numbers, NaN in the others."""
    answered = np.asarray(~np.isnan(table.reshape(len(table), -1)).all(axis=1))
    logits = np.full((len(table), table.shape[1] if table.ndim == 2 else 2), np.nan)
    if answered.any():
        logits[answered] = change(table[answered])
    return logits

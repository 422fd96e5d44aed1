"""Answers of language models: log-probabilities and evaluation logs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import check_choice
from hokical._core.logits import TopK
from hokical.io.tables import (
    DataFileError,
    find_format,
    json_records,
    read_text,
    report_damage,
)

#: What tokenizers and prompts put around a letter.
_AROUND = " \t\n\r\u2581\u0120\u010a()[]*.:\"'"


class ChoiceScores(NamedTuple):
    """Scores (n, choices) of the replies that name a choice, their `rows`, and how
    many do not.
    """

    scores: TopK
    rows: IntArray
    n_skipped: int = 0


class SequenceScores(NamedTuple):
    """Log-probabilities of the replies' texts, their `rows`, and how many replies have
    none.

    `total` (n,) are sums over the tokens, `n_tokens` (n,) how many there are; `texts`
    (n,).
    """

    total: FloatArray
    n_tokens: IntArray
    texts: list[str]
    rows: IntArray
    n_skipped: int = 0

    @property
    def mean(self) -> FloatArray:
        """The mean log-probability of a token (n,): the sum, normalised by length."""
        return np.asarray(self.total / self.n_tokens)


class _Place(NamedTuple):
    """A position of a reply: the token that was sampled there, and log-probabilities
    by token.
    """

    token: str
    tokens: dict[str, float]


def read_logprobs(
    source: Any,
    choices: Sequence[str],
    *,
    position: Literal["last", "first"] = "last",
    after: str | None = None,
    least_mass: float = 0.5,
) -> ChoiceScores:
    """Multiple-choice answers from the replies of a language model's API.

    Reads responses, chat completions, completions and batch output in OpenAI's format,
    which many servers return, Gemini's candidates, and vLLM's own `outputs`: as JSON,
    or as the objects of their Python clients. The answer is the last choice that is
    stated, as after a reasoning; a word such as "A" at the beginning of a sentence is
    taken for a choice too, so let the model end with "Answer: B" and pass
    `after="Answer:"`. Spellings such as " A", "(A" and "a" are added up. A choice that
    is not among the returned tokens is bounded by the last of them.

    Parameters
    ----------
    source : path of a .json or .jsonl file, or replies
        With `logprobs` and as many `top_logprobs` as the API gives.
    choices : the possible answers, such as "ABCD" or ["yes", "no"]; class k is
        choices[k]
    position : {"last", "first"}
        Which of the choices that a reply states is its answer.
    after : str, optional
        The answer is the first choice after the last occurrence of this text, in any
        case; replies without it have none.
    least_mass : float
        The probability that all choices together must have at that place. Below it the
        reply is no answer: a refusal, or another word.

    Returns
    -------
    ChoiceScores
        Replies without log-probabilities or without an answer are left out and counted
        (`n_skipped`); `rows` are the others.

    Examples
    --------
    >>> top = [{"token": "B", "logprob": -0.2}, {"token": " A", "logprob": -2.0}]
    >>> token = {"token": "B", "logprob": -0.2, "top_logprobs": top}
    >>> reply = {"choices": [{"logprobs": {"content": [token]}}]}
    >>> read_logprobs([reply], ["A", "B", "C"]).scores.labels
    array([1])
    """
    index = _as_index(choices)
    check_choice("position", position, Literal["last", "first"])
    if not 0.0 <= least_mass <= 1.0:
        raise ValueError(f"`least_mass` must lie in [0, 1]; got {least_mass!r}.")
    answers = dict[int, tuple[FloatArray, float]]()
    n_replies, replies, unread = _parse_entries(
        source, _positions, "a reply with `logprobs`"
    )
    for row, given in replies.items():
        places = given if after is None else _places_after(given, after)
        tokens = _find_answer(places, index, {*choices}, "first" if after else position)
        scores = np.full(len(choices), -np.inf)
        for token, value in tokens.items():  # in all spellings
            if (place := _class_of(token, index)) is not None:
                scores[place] = np.logaddexp(scores[place], value)
        if np.isfinite(scores).any() and np.exp(scores).sum() >= least_mass:
            answers[row] = scores, min(tokens.values())
    if not answers:
        raise unread or ValueError(
            f"no reply has one of the choices {list(choices)} among its tokens, with a "
            f"probability of {least_mass:g} together. A choice must be one token: let "
            "the model answer with a letter or a number."
        )
    values, ceilings = zip(*answers.values(), strict=True)
    table = np.array(values)
    classes = np.where(np.isfinite(table), np.arange(len(choices)), -1)
    found = TopK(table, classes, len(choices), ceiling=ceilings)
    return ChoiceScores(found, np.array([*answers]), n_replies - len(answers))


def _parse_entries(
    source: Any, parse: Callable[[Any], Any], wanted: str
) -> tuple[int, dict[int, Any], ValueError | None]:
    """How many entries there are, what is read from each, and what is wrong with the
    first other.

    They are the JSON objects of a file, as one list or one a line, or the replies
    given.
    """
    path = Path(source) if isinstance(source, (str, os.PathLike)) else None
    parts = ("choices", "outputs", "output", "candidates", "response")
    if path is not None:
        find_format(
            path
        )  # for its errors about files that are not there, empty or not text
        with report_damage(path, "JSON, or JSON lines"):
            source = json_records(read_text(path).strip())
    elif isinstance(source, Mapping) or any(hasattr(source, name) for name in parts):
        source = [source]  # a single reply
    n_entries = 0
    found = dict[int, Any]()
    unread = None
    for row, entry in enumerate(source):
        n_entries += 1
        try:
            found[row] = parse(entry)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            reason = f"missing {error}" if isinstance(error, KeyError) else str(error)
            text = f"expected {wanted} in entry {row}; {reason}."
            unread = unread or (DataFileError(path, text) if path else ValueError(text))
    return n_entries, found, unread


def _as_index(choices: Sequence[str]) -> dict[str, int]:
    """The class of every choice by its spelling: as it is, and without case where
    that differs.
    """
    exact = {choice: place for place, choice in enumerate(choices)}
    if len(exact) < max(len(choices), 2):
        raise ValueError(
            f"`choices` must be at least two different answers; got {choices!r}."
        )
    folded = {choice.casefold(): place for choice, place in exact.items()}
    return folded | exact if len(folded) == len(exact) else exact


def _class_of(token: str, index: dict[str, int]) -> int | None:
    """The choice that a token spells."""
    bare = token.strip(_AROUND)
    return index.get(bare, index.get(bare.casefold()))


def _find_answer(
    places: list[_Place], index: dict[str, int], choices: set[str], position: str
) -> dict[str, float]:
    """The log-probabilities where the answer is stated; where none is, those at the
    beginning.

    Choices as they are written go before those in another case, such as the article
    "a".
    """
    stated = [
        k for k, place in enumerate(places) if _class_of(place.token, index) is not None
    ]
    exact = [k for k in stated if places[k].token.strip(_AROUND) in choices]
    words = [*(_as_text(place.token) for place in places), ""]
    inside = [
        a[-1:].isalnum() and b[:1].isalnum() for a, b in pairwise(words)
    ]  # "B" of "Bob"
    whole = [k for k in exact or stated if not inside[k]]
    if found := whole or exact or stated:
        return places[found[-1 if position == "last" else 0]].tokens
    return places[0].tokens if places else {}


def _places_after(places: list[_Place], after: str) -> list[_Place]:
    """Those after the last occurrence of a text."""
    words = [_as_text(place.token) for place in places]
    found = "".join(words).casefold().rfind(after.casefold())
    ends = np.cumsum([len(word.casefold()) for word in words])
    first = np.searchsorted(ends, found + len(after.casefold()), side="right")
    return places[int(first) :] if found >= 0 else []


def _as_text(token: str) -> str:
    """A token as it is read, without the signs of tokenizers for a space and a new
    line.
    """
    return token.translate({0x2581: " ", 0x120: " ", 0x10A: "\n"})


def read_sequence_logprobs(source: Any, *, after: str | None = None) -> SequenceScores:
    """The log-probability of free answers: the sum over their tokens, and the mean of a
    token.

    `source` is as in `read_logprobs`, and needs no `top_logprobs`. With `after` the
    tokens after the last occurrence of this text count, in any case. Of the mean,
    `np.exp(found.mean)` is a confidence in (0, 1] for `hokical.calibrate_confidence`.

    >>> content = [{"token": "Par", "logprob": -0.5}, {"token": "is", "logprob": -0.1}]
    >>> found = read_sequence_logprobs(
    ...     [{"choices": [{"logprobs": {"content": content}}]}]
    ... )
    >>> found.texts, found.total, found.mean
    (['Paris'], array([-0.6]), array([-0.3]))
    """
    n_replies, replies, unread = _parse_entries(
        source, _positions, "a reply with `logprobs`"
    )
    if after is not None:
        replies = {row: _places_after(places, after) for row, places in replies.items()}
    found = {row: places for row, places in replies.items() if places}
    if not found:
        wanted = "" if after is None else f" after {after!r}"
        raise unread or ValueError(f"no reply has tokens{wanted}.")
    totals = [
        sum(place.tokens[place.token] for place in places) for places in found.values()
    ]
    texts = [
        "".join(_as_text(place.token) for place in own).strip()
        for own in found.values()
    ]
    counts = np.array([*map(len, found.values())])
    rows = np.array([*found])
    n_skipped = n_replies - len(found)
    return SequenceScores(np.array(totals), counts, texts, rows, n_skipped)


def read_lm_eval(source: Any) -> tuple[FloatArray, IntArray]:
    """Logits (n, choices) and labels (n,) from lm-evaluation-harness samples
    (`--log_samples`).

    For multiple-choice tasks: the log-likelihood of each choice. Questions with fewer
    choices than others have -inf (masked) in the last columns. `source` is the path of
    a samples_TASK.jsonl file, or the parsed lines.

    >>> line = {"target": "1", "filtered_resps": [["-3.5", "False"], ["-1.25", "True"]]}
    >>> read_lm_eval([line])
    (array([[-3.5 , -1.25]]), array([1]))
    """
    _, found, unread = _parse_entries(
        source, _choices_of_sample, "a multiple-choice sample"
    )
    if unread or not found:
        raise unread or ValueError("`source` must hold at least one sample; got none.")
    scores, labels = zip(*found.values(), strict=True)
    logits = np.array([*zip_longest(*scores, fillvalue=-np.inf)]).T
    return np.ascontiguousarray(logits), np.array(labels)


def _choices_of_sample(sample: Any) -> tuple[list[float], int]:
    """The log-likelihoods of the choices, and which is right: by number, as a letter
    or by text.
    """
    answers = sample["filtered_resps"]
    target = sample["target"]
    if any(isinstance(answer, str) for answer in answers):
        raise ValueError(
            "it is of a generation task, whose answers are text without "
            "log-likelihoods of choices. Run a multiple-choice variant of the task, or "
            "read the log-probabilities of the answers' tokens with `read_logprobs`"
        )
    scores = [float(answer[0]) for answer in answers]
    target = str(target[0] if isinstance(target, list) else target)
    texts = [str(choice) for choice in sample.get("doc", {}).get("choices", [])]
    text = target.strip(_AROUND)
    if text.isdecimal():
        place = int(text)
    elif target in texts:
        place = texts.index(target)
    else:
        place = "ABCDEFGHIJ".find(text) if len(text) == 1 else -1
    if not 0 <= place < len(scores):
        raise ValueError(f"its target {target!r} is none of its {len(scores)} choices")
    return scores, place


def _get(record: Any, *names: str) -> Any:
    """The first of these entries of a mapping, or attributes of an object, that is
    not None.
    """
    for name in names:
        found = (
            record.get(name)
            if isinstance(record, Mapping)
            else getattr(record, name, None)
        )
        if found is not None:
            return found
    return None


def _positions(reply: Any) -> list[_Place]:
    """At each position the token that was sampled, and the log-probabilities."""
    if not isinstance(reply, Mapping) and not hasattr(reply, "__dict__"):
        raise TypeError(f"got {type(reply).__name__}")
    reply = _get(reply, "response") or reply
    reply = _get(reply, "body") or reply  # a line of batch output
    if _get(reply, "type") == "message" and _get(reply, "content"):
        remedy = "Ask the model for its confidence, or for several answers, and use "
        remedy += "`hokical.calibrate_confidence`"
        raise ValueError(f"Anthropic's messages have no log-probabilities. {remedy}")
    if outputs := _get(reply, "outputs"):  # vLLM
        found = _get(outputs[0], "logprobs")
    elif output := _get(reply, "output"):  # OpenAI's responses: after the reasoning
        texts = (_get(item, "content") or () for item in output)
        found = next(
            filter(None, (_get(one, "logprobs") for text in texts for one in text)),
            None,
        )
    elif candidates := _get(reply, "candidates"):  # Gemini
        found = _get(candidates[0], "logprobsResult", "logprobs_result")
    else:
        found = _get((_get(reply, "choices") or [None])[0], "logprobs")
    if found is None:
        remedy = "Ask the API for `logprobs` and `top_logprobs`"
        raise ValueError(f"its `logprobs` are missing or null. {remedy}")
    if outputs:
        sampled = _get(outputs[0], "token_ids") or [None] * len(found)
        return [*map(_vllm_place, found, sampled)]
    if chosen := _get(found, "chosenCandidates", "chosen_candidates"):
        tops = _get(found, "topCandidates", "top_candidates")
        pairs = zip(chosen, (_get(top, "candidates") for top in tops), strict=True)
        return [_place(*pair, "logProbability", "log_probability") for pair in pairs]
    if content := found if isinstance(found, list) else _get(found, "content"):
        return [
            _place(each, _get(each, "top_logprobs") or (), "logprob")
            for each in content
        ]
    tokens = _get(found, "tokens") or ()
    values = _get(found, "token_logprobs") or ()
    tables = _get(found, "top_logprobs") or [{}] * len(tokens)
    each = zip(tokens, tables, values, strict=True)  # of completions
    return [
        _Place(token, {**(table or {}), token: float(value)})
        for token, table, value in each
    ]


def _place(chosen: Any, others: Iterable[Any], *names: str) -> _Place:
    """A position from records of a token and its log-probability."""
    listed = {_get(one, "token"): float(_get(one, *names)) for one in (*others, chosen)}
    if None in listed:
        raise KeyError("token")
    return _Place(_get(chosen, "token"), listed)


def _vllm_place(table: Mapping[Any, Any], number: Any) -> _Place:
    """A position of vLLM, which has a table by the numbers of tokens, one of them
    sampled.
    """
    own = {str(key): one for key, one in table.items()}
    tokens = dict[str, float]()
    for one in own.values():  # tokens of one spelling
        token = str(_get(one, "decoded_token"))
        value = float(_get(one, "logprob"))
        tokens[token] = float(np.logaddexp(tokens.get(token, -np.inf), value))
    best = (
        max(own, key=lambda k: _get(own[k], "logprob"))
        if number is None
        else str(number)
    )
    return _Place(str(_get(own[best], "decoded_token")), tokens)

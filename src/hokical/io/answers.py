"""Answers of language models: log-probabilities and evaluation logs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import as_number, check_choice, show
from hokical._core.ensembles import Ensemble
from hokical._core.logits import TopK
from hokical.io.tables import (
    DataFileError,
    find_format,
    json_records,
    read_text,
    report_damage,
)

Parsed = TypeVar("Parsed")

#: What tokenizers and prompts put around a letter.
_AROUND = " \t\n\r\u2581\u0120\u010a()[]*.:\"'"


class ChoiceScores(NamedTuple):
    """Scores (n, choices) of the replies that name a choice, their `rows`, and how
    many do not.
    """

    scores: TopK
    rows: IntArray
    n_skipped: int = 0


class PromptScores(NamedTuple):
    """An ensemble of the scores (n, choices) of each prompt, the `rows` with an answer
    to one of them, and how many have none.
    """

    scores: Ensemble
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


class _Position(NamedTuple):
    """A position of a reply: the token that was sampled, and log-probabilities by
    token.
    """

    token: str
    log_probabilities: dict[str, float]


@overload
def read_logprobs(
    source: Mapping[str, Sequence[Any] | str | os.PathLike[str]],
    choices: Sequence[str],
    *,
    position: Literal["last", "first"] = ...,
    after: str | None = ...,
    least_mass: float = ...,
) -> PromptScores: ...


@overload
def read_logprobs(
    source: Any,
    choices: Sequence[str],
    *,
    position: Literal["last", "first"] = ...,
    after: str | None = ...,
    least_mass: float = ...,
) -> ChoiceScores: ...


def read_logprobs(
    source: Any,
    choices: Sequence[str],
    *,
    position: Literal["last", "first"] = "last",
    after: str | None = None,
    least_mass: float = 0.5,
) -> ChoiceScores | PromptScores:
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
    source : path of a .json or .jsonl file, or replies; or a mapping of prompts to such
        With `logprobs` and as many `top_logprobs` as the API gives. The replies to all
        prompts are about the same questions, in the same order.
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
    ChoiceScores, or PromptScores of several prompts
        Replies without log-probabilities or without an answer are left out and counted
        (`n_skipped`); `rows` are the others. Of several prompts, `scores` are an
        `Ensemble` with a member for each; a question is left out if no reply has an
        answer.

    Examples
    --------
    >>> top = [{"token": "B", "logprob": -0.2}, {"token": " A", "logprob": -2.0}]
    >>> token = {"token": "B", "logprob": -0.2, "top_logprobs": top}
    >>> reply = {"choices": [{"logprobs": {"content": [token]}}]}
    >>> read_logprobs([reply], ["A", "B", "C"]).scores.labels
    array([1])
    """
    if _are_prompts(source):
        return _join_prompts(
            {
                name: _read_prompt(
                    str(name), replies, choices, (position, after, least_mass)
                )
                for name, replies in source.items()
            }
        )
    class_of_choice = _index_choices(choices)
    check_choice("position", position, Literal["last", "first"])
    if not 0.0 <= as_number(least_mass) <= 1.0:
        raise ValueError(f"`least_mass` must lie in [0, 1]; got {show(least_mass)}.")
    entries = _parse_entries(source, _positions, "a reply with `logprobs`")
    answers = dict[int, tuple[FloatArray, float]]()
    for row, positions in entries.parsed.items():
        searched = positions if after is None else _positions_after(positions, after)
        tokens = _find_answer(
            searched, class_of_choice, {*choices}, "first" if after else position
        )
        scores = _add_spellings(tokens, class_of_choice, len(choices))
        if np.isfinite(scores).any() and np.exp(scores).sum() >= least_mass:
            answers[row] = scores, min(tokens.values())
    if not answers:
        raise entries.error or ValueError(
            f"no reply has one of the choices {list(choices)} among its tokens, with a "
            f"probability of {least_mass:g} together. A choice must be one token: let "
            "the model answer with a letter or a number."
        )
    rows = np.array([*answers])
    return ChoiceScores(
        _as_top_k([*answers.values()], len(choices)),
        rows,
        entries.n_entries - rows.size,
    )


def _are_prompts(source: object) -> bool:
    """Whether a source is a mapping of prompts to replies, and no reply."""
    if not isinstance(source, Mapping) or not source:
        return False
    if {*source} & {*_REPLY_NAMES, *_ENTRY_NAMES}:
        return False
    return not any(isinstance(value, Mapping) for value in source.values())


def _read_prompt(
    name: str,
    replies: object,
    choices: Sequence[str],
    options: tuple[Literal["last", "first"], str | None, float],
) -> ChoiceScores:
    """The scores of one prompt, whose name is in errors."""
    position, after, least_mass = options
    try:
        return read_logprobs(
            replies, choices, position=position, after=after, least_mass=least_mass
        )
    except DataFileError:
        raise
    except ValueError as error:
        raise ValueError(f"prompt {name!r}: {error}") from error


def _join_prompts(answers: Mapping[str, ChoiceScores]) -> PromptScores:
    """The scores of each prompt as members; NaN where its reply has no answer."""
    sizes = {
        name: prompt.rows.size + prompt.n_skipped for name, prompt in answers.items()
    }
    first, n_questions = next(iter(sizes.items()))
    for name, size in sizes.items():
        if size != n_questions:
            raise ValueError(
                f"`source` must have a reply to each question for every prompt; got "
                f"{n_questions} for {first!r} and {size} for {name!r}. A reply that "
                "failed may be None."
            )
    rows = np.unique(np.concatenate([prompt.rows for prompt in answers.values()]))
    members = {
        str(name): _spread_answers(prompt, rows) for name, prompt in answers.items()
    }
    return PromptScores(Ensemble(members), rows, n_questions - rows.size)


def _spread_answers(prompt: ChoiceScores, rows: IntArray) -> FloatArray:
    """Scores (n, choices) of some questions, NaN where there is no answer."""
    values = prompt.scores.to_dense()
    spread = np.full((rows.size, values.shape[1]), np.nan)
    spread[np.searchsorted(rows, prompt.rows)] = values
    return spread


def _add_spellings(
    tokens: Mapping[str, float], class_of_choice: Mapping[str, int], n_choices: int
) -> FloatArray:
    """The log-probability (choices,) of each choice, in all its spellings."""
    scores = np.full(n_choices, -np.inf)
    for token, log_probability in tokens.items():
        choice = _class_of(token, class_of_choice)
        if choice is not None:
            scores[choice] = np.logaddexp(scores[choice], log_probability)
    return scores


def _as_top_k(answers: Sequence[tuple[FloatArray, float]], n_choices: int) -> TopK:
    """Scores of replies; a choice that is not listed is below the ceiling."""
    table = np.array([scores for scores, _ in answers])
    ceilings = [ceiling for _, ceiling in answers]
    classes = np.where(np.isfinite(table), np.arange(n_choices), -1)
    return TopK(table, classes, n_choices, ceiling=ceilings)


@dataclass(frozen=True)
class _Entries(Generic[Parsed]):
    """What was read from the entries of a source, by their number.

    `error` says what is wrong with the first entry that could not be read.
    """

    n_entries: int
    parsed: dict[int, Parsed]
    error: ValueError | None


#: Entries or attributes that a reply has, and a list of replies has not.
_REPLY_NAMES = ("choices", "outputs", "output", "candidates", "response")
#: Entries of other replies, such as errors and messages.
_ENTRY_NAMES = ("id", "object", "type", "error", "content", "custom_id")


def _parse_entries(
    source: Any, parse: Callable[[Any], Parsed], expected: str
) -> _Entries[Parsed]:
    """The entries of a file of JSON objects, as a list or one a line, or of replies."""
    path = Path(source) if isinstance(source, (str, os.PathLike)) else None
    if path is not None:
        source = _json_entries(path)
    elif _is_reply(source):
        source = [source]
    if not isinstance(source, Iterable) or getattr(source, "shape", None) == ():
        raise TypeError(f"`source` must be a file or its entries; got {show(source)}.")
    n_entries = 0
    parsed = dict[int, Parsed]()
    first_error: ValueError | None = None
    for row, entry in enumerate(source):
        n_entries += 1
        try:
            parsed[row] = parse(entry)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            if first_error is None:
                first_error = _entry_error(path, row, expected, error)
    return _Entries(n_entries, parsed, first_error)


def _json_entries(path: Path) -> Iterable[Any]:
    find_format(path)  # its errors are about files that are missing, empty or no text
    with report_damage(path, "JSON, or JSON lines"):
        return json_records(read_text(path).strip())


def _is_reply(source: object) -> bool:
    """Whether a source is a single reply."""
    named = any(hasattr(source, name) for name in _REPLY_NAMES)
    return isinstance(source, Mapping) or named


def _entry_error(
    path: Path | None, row: int, expected: str, error: Exception
) -> ValueError:
    reason = f"missing {error}" if isinstance(error, KeyError) else str(error)
    message = f"expected {expected} in entry {row}; {reason}."
    return ValueError(message) if path is None else DataFileError(path, message)


def _index_choices(choices: Sequence[str]) -> dict[str, int]:
    """The class of every choice by its spelling, and by that without case where it is
    clear.
    """
    listed = choices if isinstance(choices, Iterable) else [choices]
    others = [choice for choice in listed if not isinstance(choice, str)]
    if others:
        raise ValueError(
            f"`choices` must be texts, as answers spell them; got {show(others[0])}. Pass "
            'for example `choices=["A", "B"]`.'
        )
    exact = {choice: k for k, choice in enumerate(choices)}
    if len(exact) < max(len(choices), 2):
        raise ValueError(
            f"`choices` must be at least two different answers; got {choices!r}."
        )
    folded = {choice.casefold(): k for choice, k in exact.items()}
    return folded | exact if len(folded) == len(exact) else exact


def _class_of(token: str, class_of_choice: Mapping[str, int]) -> int | None:
    """The choice that a token spells."""
    bare = token.strip(_AROUND)
    return class_of_choice.get(bare, class_of_choice.get(bare.casefold()))


def _find_answer(
    positions: Sequence[_Position],
    class_of_choice: Mapping[str, int],
    choices: set[str],
    occurrence: Literal["last", "first"],
) -> dict[str, float]:
    """The log-probabilities where the answer is stated, or else at the beginning.

    Choices as they are written go before those in another case, such as the article
    "a", and tokens that are words before those inside of one, such as "B" of "Bob".
    """
    stated = [
        k
        for k, position in enumerate(positions)
        if _class_of(position.token, class_of_choice) is not None
    ]
    exact = [k for k in stated if positions[k].token.strip(_AROUND) in choices]
    texts = [*(_as_text(position.token) for position in positions), ""]
    goes_on = [
        text[-1:].isalnum() and after[:1].isalnum() for text, after in pairwise(texts)
    ]
    separate = [k for k in exact or stated if not goes_on[k]]
    candidates = separate or exact or stated
    if candidates:
        k = candidates[-1 if occurrence == "last" else 0]
        return positions[k].log_probabilities
    return positions[0].log_probabilities if positions else {}


def _positions_after(positions: list[_Position], after: str) -> list[_Position]:
    """Those after the last occurrence of a text, in any case."""
    texts = [_as_text(position.token).casefold() for position in positions]
    start = "".join(texts).rfind(after.casefold())
    if start < 0:
        return []
    stops = np.cumsum([len(text) for text in texts])
    first = np.searchsorted(stops, start + len(after.casefold()), side="right")
    return positions[int(first) :]


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
    >>> scores = read_sequence_logprobs(
    ...     [{"choices": [{"logprobs": {"content": content}}]}]
    ... )
    >>> scores.texts, scores.total, scores.mean
    (['Paris'], array([-0.6]), array([-0.3]))
    """
    entries = _parse_entries(source, _positions, "a reply with `logprobs`")
    replies = {
        row: positions if after is None else _positions_after(positions, after)
        for row, positions in entries.parsed.items()
    }
    replies = {row: positions for row, positions in replies.items() if positions}
    if not replies:
        where = "" if after is None else f" after {after!r}"
        raise entries.error or ValueError(f"no reply has tokens{where}.")
    totals = [
        sum(position.log_probabilities[position.token] for position in positions)
        for positions in replies.values()
    ]
    texts = [
        "".join(_as_text(position.token) for position in positions).strip()
        for positions in replies.values()
    ]
    n_tokens = np.array([len(positions) for positions in replies.values()])
    rows = np.array([*replies])
    n_skipped = entries.n_entries - rows.size
    return SequenceScores(np.array(totals), n_tokens, texts, rows, n_skipped)


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
    samples = _parse_entries(source, _choices_of_sample, "a multiple-choice sample")
    if samples.error or not samples.parsed:
        raise samples.error or ValueError(
            "`source` must hold at least one sample; got none."
        )
    scores, labels = zip(*samples.parsed.values(), strict=True)
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
    choices = [str(choice) for choice in sample.get("doc", {}).get("choices", [])]
    label = _label_of_target(target, choices)
    if not 0 <= label < len(scores):
        raise ValueError(f"its target {target!r} is none of its {len(scores)} choices")
    return scores, label


def _label_of_target(target: str, choices: list[str]) -> int:
    """The number of the right choice; -1 if it is not recognised."""
    text = target.strip(_AROUND)
    if text.isdecimal():
        return int(text)
    if target in choices:
        return choices.index(target)
    return "ABCDEFGHIJ".find(text) if len(text) == 1 else -1


def _get(record: object, *names: str) -> Any:
    """The first of these entries of a mapping, or attributes of an object, that is
    not None.
    """
    for name in names:
        value = (
            record.get(name)
            if isinstance(record, Mapping)
            else getattr(record, name, None)
        )
        if value is not None:
            return value
    return None


def _positions(reply: object) -> list[_Position]:
    """At each position the token that was sampled, and the log-probabilities."""
    if not isinstance(reply, Mapping) and not hasattr(reply, "__dict__"):
        raise TypeError(f"got {type(reply).__name__}")
    reply = _get(reply, "response") or reply
    reply = _get(reply, "body") or reply  # a line of batch output
    if _get(reply, "type") == "message" and _get(reply, "content"):
        raise ValueError(
            "Anthropic's messages have no log-probabilities. Ask the model for its "
            "confidence, or for several answers, and use "
            "`hokical.calibrate_confidence`"
        )
    record = _logprobs_of(reply)
    if record is None:
        raise ValueError(
            "its `logprobs` are missing or null. Ask the API for `logprobs` and "
            "`top_logprobs`"
        )
    if outputs := _get(reply, "outputs"):
        sampled = _get(outputs[0], "token_ids") or [None] * len(record)
        return [*map(_vllm_position, record, sampled)]
    if chosen := _get(record, "chosenCandidates", "chosen_candidates"):
        return _gemini_positions(chosen, record)
    content = record if isinstance(record, list) else _get(record, "content")
    if content:
        return [
            _position(token, _get(token, "top_logprobs") or (), "logprob")
            for token in content
        ]
    return _completion_positions(record)


def _logprobs_of(reply: object) -> Any:
    """The record of log-probabilities of a reply, in the format of its API."""
    if outputs := _get(reply, "outputs"):  # vLLM
        return _get(outputs[0], "logprobs")
    if output := _get(reply, "output"):  # OpenAI's responses: after the reasoning
        texts = (text for item in output for text in _get(item, "content") or ())
        records = (_get(text, "logprobs") for text in texts)
        return next(filter(None, records), None)
    if candidates := _get(reply, "candidates"):  # Gemini
        return _get(candidates[0], "logprobsResult", "logprobs_result")
    return _get((_get(reply, "choices") or [None])[0], "logprobs")


def _gemini_positions(chosen: Iterable[object], record: object) -> list[_Position]:
    tops = _get(record, "topCandidates", "top_candidates")
    return [
        _position(token, _get(top, "candidates"), "logProbability", "log_probability")
        for token, top in zip(chosen, tops, strict=True)
    ]


def _completion_positions(record: object) -> list[_Position]:
    """Positions of completions, which have a column for each field."""
    tokens = _get(record, "tokens") or ()
    sampled = _get(record, "token_logprobs") or ()
    tables = _get(record, "top_logprobs") or [{}] * len(tokens)
    return [
        _Position(token, {**(table or {}), token: float(log_probability)})
        for token, table, log_probability in zip(tokens, tables, sampled, strict=True)
    ]


def _position(sampled: object, top: Iterable[object], *names: str) -> _Position:
    """A position from records of tokens with log-probabilities under one of these
    names.
    """
    log_probabilities = {
        _get(token, "token"): float(_get(token, *names)) for token in (*top, sampled)
    }
    if None in log_probabilities:
        raise KeyError("token")
    return _Position(_get(sampled, "token"), log_probabilities)


def _vllm_position(table: Mapping[Any, Any], sampled: object) -> _Position:
    """A position of vLLM, which has a table by the numbers of tokens.

    `sampled` is the number of the token that was sampled, None if it is the likeliest.
    """
    by_number = {str(number): token for number, token in table.items()}
    log_probabilities = dict[str, float]()
    for token in by_number.values():  # several may have one spelling
        text = str(_get(token, "decoded_token"))
        value = float(_get(token, "logprob"))
        total = np.logaddexp(log_probabilities.get(text, -np.inf), value)
        log_probabilities[text] = float(total)
    number = str(sampled)
    if sampled is None:
        number = max(by_number, key=lambda k: _get(by_number[k], "logprob"))
    return _Position(str(_get(by_number[number], "decoded_token")), log_probabilities)

"""Answers of language models: log-probabilities, evaluation logs, agreement of repeated samples."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hokical._core.topk import TopK
from hokical._core.types import FloatArray, IntArray
from hokical.io._errors import DataFileError, report_damage
from hokical.io._tables import find_format, read_text

#: What tokenizers and prompts put around a letter.
_AROUND = " \t\n\r\u2581\u0120\u010a()[]*.:\"'"

_GENERATED = (
    "it is of a generation task, whose answers are text without log-likelihoods of choices. Run a "
    "multiple-choice variant of the task, or read the log-probabilities of the answers' tokens "
    "with `read_logprobs`"
)
#: What entries of another format raise while they are taken apart.
_OTHER_FORMAT = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class ChoiceScores(NamedTuple):
    """Scores (n, choices) of the replies that name a choice, their `rows`, and how many do not."""

    scores: TopK
    rows: IntArray
    n_skipped: int = 0


def read_logprobs(source: Any, choices: Sequence[str]) -> ChoiceScores:
    """Multiple-choice answers from the JSON of a language model's API.

    Reads responses, chat completions, completions and batch output in OpenAI's format, which many
    servers return, Gemini's candidates, and vLLM's own `outputs`. The token looked at is the first
    that is a choice, and otherwise the first one. Spellings such as " A" and "(A" are added up. A
    choice that is not among the returned tokens is bounded by the last of them.

    `source` is the path of a .json or .jsonl file, or the parsed responses, with `logprobs` and as
    many `top_logprobs` as the API gives; `choices` are the possible answers, such as "ABCD" or
    ["A", "B"], and class k is choices[k]. Replies without log-probabilities, or without a choice
    among the tokens, are left out and counted (`n_skipped`); `rows` are the others.

    >>> top = [{"token": "B", "logprob": -0.2}, {"token": " A", "logprob": -2.0}]
    >>> token = {"token": "B", "logprob": -0.2, "top_logprobs": top}
    >>> reply = {"choices": [{"logprobs": {"content": [token]}}]}
    >>> read_logprobs([reply], ["A", "B", "C"]).scores.labels
    array([1])
    """
    index = {choice: place for place, choice in enumerate(choices)}
    if len(index) < max(len(choices), 2):
        raise ValueError(f"`choices` must be at least two different answers; got {choices!r}.")
    replies = _records(source)
    values, ceilings, rows = list[FloatArray](), list[float](), list[int]()
    unread: ValueError | None = None
    for row, reply in enumerate(replies):
        try:
            places = list(_positions(reply))
            named = (found for first, found in places if first.strip(_AROUND) in index)
            tokens = next(named, places[0][1])
        except _OTHER_FORMAT as error:
            unread = unread or _bad(source, row, "a reply with `logprobs`", error)
            continue
        scores = _choice_scores(tokens, index)
        if np.isfinite(scores).any():
            values.append(scores)
            ceilings.append(min(tokens.values()))
            rows.append(row)
    if not rows:
        raise unread or ValueError(
            f"no reply has one of the choices {list(index)} among its tokens. A choice must be one "
            "token: let the model answer with a letter or a number."
        )
    table = np.array(values)
    classes = np.where(np.isfinite(table), np.arange(len(index)), -1)
    found = TopK(table, classes, len(index), ceiling=ceilings)
    return ChoiceScores(found, np.array(rows), len(replies) - len(rows))


def _choice_scores(tokens: dict[str, float], index: dict[str, int]) -> FloatArray:
    """The log-probability (choices,) of each choice, in all spellings; -inf if it is not there."""
    scores = np.full(len(index), -np.inf)
    for token, value in tokens.items():
        place = index.get(token.strip(_AROUND))
        if place is not None:
            scores[place] = np.logaddexp(scores[place], value)
    return scores


def read_lm_eval(source: Any) -> tuple[FloatArray, IntArray]:
    """Logits (n, choices) and labels (n,) from lm-evaluation-harness samples (`--log_samples`).

    For multiple-choice tasks: the log-likelihood of each choice. Questions with fewer choices than
    others have -inf (masked) in the last columns. `source` is the path of a samples_TASK.jsonl
    file, or the parsed lines.

    >>> line = {"target": "1", "filtered_resps": [["-3.5", "False"], ["-1.25", "True"]]}
    >>> read_lm_eval([line])
    (array([[-3.5 , -1.25]]), array([1]))
    """
    found, labels = [], []
    for row, sample in enumerate(_records(source)):
        try:
            answers = sample["filtered_resps"]
            if any(isinstance(answer, str) for answer in answers):
                raise ValueError(_GENERATED)
            found.append([float(answer[0]) for answer in answers])
            labels.append(_target(sample, len(answers)))
        except _OTHER_FORMAT as error:
            raise _bad(source, row, "a multiple-choice sample", error) from error
    if not found:
        raise ValueError("`source` must hold at least one sample; got none.")
    logits = np.full((len(found), max(map(len, found))), -np.inf)
    for row, scores in enumerate(found):
        logits[row, : len(scores)] = scores
    return logits, np.array(labels)


def _target(sample: dict[str, Any], n_choices: int) -> int:
    """The index of the right choice, given as such, as a letter or as the text of the choice."""
    target = sample["target"]
    target = target[0] if isinstance(target, list) else target
    text = str(target).strip(_AROUND)
    if text.isdecimal():
        if int(text) >= n_choices:
            raise ValueError(f"its target {text} is none of its {n_choices} choices")
        return int(text)
    texts = [str(choice) for choice in sample.get("doc", {}).get("choices", [])]
    return texts.index(str(target)) if str(target) in texts else "ABCDEFGHIJ".index(text)


def _positions(reply: dict[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """At each position the token that was sampled, and the log-probabilities."""
    reply = reply.get("response", reply)
    reply = reply.get("body", reply)  # a line of batch output
    if reply.get("type") == "message" and "content" in reply:
        raise ValueError(
            "Anthropic's messages have no log-probabilities. Ask the model for its confidence, or "
            "for several answers, and use `hokical.calibrate_confidence`"
        )
    if "output" in reply:  # OpenAI's responses: after what was reasoned
        texts = (part for item in reply["output"] for part in item.get("content") or [])
        found = next((part["logprobs"] for part in texts if part.get("logprobs")), None)
    elif "candidates" in reply:
        found = reply["candidates"][0].get("logprobsResult")
    else:
        found = (reply.get("choices") or reply["outputs"])[0]["logprobs"]
    if found is None:
        raise ValueError("its `logprobs` are null")
    found = found if isinstance(found, list) else found.get("content") or found  # chat
    if isinstance(found, list):
        for each in found:
            if "token" in each:  # responses and chat
                listed = [*each.get("top_logprobs", []), each]
                yield each["token"], {item["token"]: float(item["logprob"]) for item in listed}
            else:  # vLLM: by token number
                seen = {str(i["decoded_token"]): float(i["logprob"]) for i in each.values()}
                yield max(seen, key=lambda token: seen[token]), seen
    elif "chosenCandidates" in found:  # Gemini
        for chosen, top in zip(found["chosenCandidates"], found["topCandidates"], strict=True):
            listed = [*top["candidates"], chosen]
            yield chosen["token"], {one["token"]: float(one["logProbability"]) for one in listed}
    else:  # completions
        names = ("tokens", "top_logprobs", "token_logprobs")
        for token, table, value in zip(*(found[name] for name in names), strict=True):
            yield token, {**(table or {}), token: float(value)}


def _records(source: Any) -> list[dict[str, Any]]:
    """The JSON objects of a file, as one list or one a line, or those given."""
    if not isinstance(source, (str, os.PathLike)):
        return [source] if isinstance(source, dict) else list(source)
    path = Path(source)
    find_format(path)  # for its errors about files that are not there, empty or not text
    with report_damage(path, "JSON, or JSON lines"):
        text = read_text(path).strip()
        try:
            found = json.loads(text)
        except json.JSONDecodeError:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
    return found if isinstance(found, list) else [found]


def _bad(source: Any, row: int, wanted: str, error: Exception) -> ValueError:
    reason = f"missing {error}" if isinstance(error, KeyError) else str(error)
    problem = f"expected {wanted} in entry {row}; {reason}."
    asked = "logprobs" in wanted and "calibrate_confidence" not in reason
    remedy = "Ask the API for `logprobs` and `top_logprobs`." if asked else ""
    if isinstance(source, (str, os.PathLike)):
        return DataFileError(Path(source), problem, remedy)
    return ValueError(f"`source`: {problem} {remedy}".strip())


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

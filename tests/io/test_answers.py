"""Answers of language models, in the formats of the APIs and of
lm-evaluation-harness.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical.io import (
    DataFileError,
    read_lm_eval,
    read_logprobs,
    read_sequence_logprobs,
)

CHOICES = ["A", "B", "C", "D"]
#: The tokens of two replies; in the second, D is not among them.
TOKENS = [
    {"B": -0.3, " A": -1.6, "C": -3.0, "D": -4.0, "The": -5.0},
    {" C": -0.1, "A": -2.5, "B": -3.5, "\n": -6.0},
]


def chat(tokens: dict[str, float], before: tuple[str, ...] = ()) -> dict[str, Any]:
    listed = [
        {"token": token, "logprob": value, "bytes": None}
        for token, value in tokens.items()
    ]
    content = [{"token": word, "logprob": -0.01, "top_logprobs": []} for word in before]
    content += [{**listed[0], "top_logprobs": listed}]
    message = {"role": "assistant", "content": "".join([*before, listed[0]["token"]])}
    return {
        "choices": [{"index": 0, "message": message, "logprobs": {"content": content}}]
    }


def completion(tokens: dict[str, float]) -> dict[str, Any]:
    first, value = next(iter(tokens.items()))
    found = {"tokens": [first], "token_logprobs": [value], "top_logprobs": [tokens]}
    return {
        "object": "text_completion",
        "choices": [{"text": first, "logprobs": found}],
    }


def vllm(tokens: dict[str, float]) -> dict[str, Any]:
    table = {
        str(300 + rank): {"logprob": value, "rank": rank + 1, "decoded_token": token}
        for rank, (token, value) in enumerate(tokens.items())
    }
    return {"outputs": [{"text": next(iter(tokens)), "logprobs": [table]}]}


def batch(tokens: dict[str, float]) -> dict[str, Any]:
    return {"custom_id": "q1", "response": {"status_code": 200, "body": chat(tokens)}}


def responses(tokens: dict[str, float]) -> dict[str, Any]:
    (entry,) = chat(tokens)["choices"][0]["logprobs"]["content"]
    text = {"type": "output_text", "text": entry["token"], "logprobs": [entry]}
    return {
        "object": "response",
        "output": [{"type": "reasoning"}, {"content": [text]}],
    }


def gemini(tokens: dict[str, float]) -> dict[str, Any]:
    listed = [
        {"token": token, "logProbability": value} for token, value in tokens.items()
    ]
    found = {"chosenCandidates": listed[:1], "topCandidates": [{"candidates": listed}]}
    return {"candidates": [{"content": {"role": "model"}, "logprobsResult": found}]}


@pytest.mark.parametrize("form", [chat, completion, vllm, batch, responses, gemini])
@pytest.mark.parametrize("suffix", ["json", "jsonl", "jsonl.gz"])
def test_every_format_says_the_same(tmp_path: Path, form: Any, suffix: str) -> None:
    replies = [form(tokens) for tokens in TOKENS]
    path = tmp_path / f"replies.{suffix}"
    lines = "\n".join(map(json.dumps, replies))
    text = json.dumps(replies, indent=2) if suffix == "json" else lines
    path.write_bytes(
        gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode()
    )
    found = read_logprobs(path, CHOICES)
    assert found.rows.tolist() == [0, 1]
    assert found.scores.labels.tolist() == [1, 2]
    assert found.scores.hidden.tolist() == [0, 1]
    assert found.scores.ceiling.tolist() == [-np.inf, -6.0]
    dense = found.scores.to_dense(fill=-np.inf)
    np.testing.assert_allclose(dense[0], [-1.6, -0.3, -3.0, -4.0])
    np.testing.assert_allclose(dense[1], [-2.5, -3.5, -0.1, -np.inf])


def spoken(*words: str | dict[str, float]) -> dict[str, Any]:
    """A chat completion of these tokens; where a dictionary stands, the first was
    sampled.
    """
    content = []
    for word in words:
        tokens = {word: -0.01} if isinstance(word, str) else word
        listed = [{"token": token, "logprob": value} for token, value in tokens.items()]
        content.append({**listed[0], "top_logprobs": listed})
    return {"choices": [{"index": 0, "logprobs": {"content": content}}]}


ANSWER = {" C": np.log(0.8), " B": np.log(0.1), " c": np.log(0.05)}


@pytest.mark.parametrize(
    ("words", "options", "label"),
    [
        (("\n", "Answer", ":", " ", "B"), {}, 1),
        ((" A", " triangle", " has", " sides", ".", " So", ANSWER, "."), {}, 2),
        (
            (" A", " triangle", " has", " sides", ".", " So", ANSWER, "."),
            {"position": "first"},
            0,
        ),
        (("Answer", ":", ANSWER, ".", " A", " reason", "."), {"after": "answer:"}, 2),
        (
            ("Answer", ":", " A", "?", " No", ".", " ANSWER", ":", ANSWER),
            {"after": "Answer:"},
            2,
        ),
        (("It", " is", ANSWER, ",", " as", " a", " rule"), {}, 2),  # not the article
        (
            ("It", " is", ANSWER, ",", " says", " B", "ob"),
            {},
            2,
        ),  # nor a piece of a name
        (("the", " answer", " is", " b"), {}, 1),
        (("\u2581Answer", "\u0120is", "\u0120D"), {}, 3),
    ],
)
def test_the_answer_of_a_reasoned_reply(words: Any, options: Any, label: int) -> None:
    found = read_logprobs([spoken(*words)], CHOICES, **options)
    assert found.scores.labels.tolist() == [label]


def test_replies_without_the_marker_have_no_answer() -> None:
    replies = [spoken("Answer", ":", " B"), spoken("It", " is", " B")]
    found = read_logprobs(replies, CHOICES, after="Answer:")
    assert (found.rows.tolist(), found.n_skipped) == ([0], 1)


def test_a_refusal_is_no_answer() -> None:
    refusal = {"I": np.log(0.9), "A": np.log(0.05), "B": np.log(0.01)}
    unsure = {"I": np.log(0.5), "A": np.log(0.25), " a": np.log(0.1), "B": np.log(0.1)}
    replies = [spoken(refusal, " cannot"), chat(TOKENS[0]), spoken(unsure)]
    found = read_logprobs(replies, CHOICES)
    assert (found.rows.tolist(), found.n_skipped) == ([1], 2)
    found = read_logprobs(replies, CHOICES, least_mass=0.4)
    assert (found.rows.tolist(), found.n_skipped) == ([1, 2], 1)
    np.testing.assert_allclose(np.exp(found.scores.to_dense()[1, 0]), 0.35)
    assert read_logprobs(replies, CHOICES, least_mass=0.0).n_skipped == 0


@pytest.mark.parametrize("options", [{"position": "middle"}, {"least_mass": 2.0}])
def test_options_of_answers_are_checked(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        read_logprobs([chat(TOKENS[0])], CHOICES, **options)


def test_choices_that_differ_by_case_are_kept_apart() -> None:
    reply = spoken({"a": np.log(0.6), "A": np.log(0.4)})
    values = read_logprobs([reply], ["a", "A"]).scores.to_dense()
    np.testing.assert_allclose(np.exp(values[0]), [0.6, 0.4])


class Record:
    """An object with attributes, as clients return instead of JSON."""

    def __init__(self, fields: dict[str, Any]) -> None:
        vars(self).update({name: as_object(value) for name, value in fields.items()})


def as_object(value: Any) -> Any:
    if isinstance(value, list):
        return [as_object(each) for each in value]
    # Tables by token stay mappings: those of completions, and of vLLM, by number.
    if isinstance(value, dict) and not any(name in FIELDS for name in value):
        return {
            int(k) if k.isdecimal() else k: as_object(each) for k, each in value.items()
        }
    return Record(value) if isinstance(value, dict) else value


FIELDS = {
    *(
        "choices",
        "outputs",
        "output",
        "candidates",
        "content",
        "logprobs",
        "token",
        "tokens",
    ),
    *("logprob", "message", "role", "response", "body", "type", "logprobsResult"),
    *("chosenCandidates", "logProbability"),
}


@pytest.mark.parametrize("form", [chat, completion, vllm, batch, responses, gemini])
def test_objects_of_clients_are_read_as_they_are(form: Any) -> None:
    replies = [as_object(form(tokens)) for tokens in TOKENS]
    assert not isinstance(replies[0], dict)
    found = read_logprobs(replies, CHOICES)
    expected = read_logprobs([form(tokens) for tokens in TOKENS], CHOICES)
    np.testing.assert_array_equal(found.scores.to_dense(), expected.scores.to_dense())
    assert read_logprobs(replies[0], CHOICES).rows.tolist() == [0]


def test_vllm_says_which_token_was_sampled() -> None:
    """The less likely one, with a table by number as vLLM has it."""
    reply = vllm({"A": np.log(0.6), "B": np.log(0.3)})["outputs"][0]
    table = {
        int(number): Record(entry) for number, entry in reply["logprobs"][0].items()
    }
    output = Record({"text": "B", "token_ids": [301]})
    vars(output)["logprobs"] = [table]
    found = read_sequence_logprobs([Record({"outputs": []}), vllm_output(output)])
    assert (found.texts, found.n_skipped) == (["B"], 1)
    np.testing.assert_allclose(np.exp(found.total), [0.3])


def vllm_output(output: Any) -> Any:
    record = Record({})
    record.outputs = [output]  # type: ignore[attr-defined]
    return record


@pytest.mark.parametrize("form", ["chat", "completion"])
def test_log_probabilities_of_free_answers(form: str) -> None:
    words = {"The": -0.1, " answer": -0.2, ":": -0.1, " New": -1.0, " York": -0.25}
    if form == "chat":
        reply = spoken(*({word: value, "x": -9.0} for word, value in words.items()))
    else:
        tables = {"tokens": [*words], "token_logprobs": [*words.values()]}
        reply = {
            "choices": [{"logprobs": tables | {"top_logprobs": [None] * len(words)}}]
        }
    found = read_sequence_logprobs([reply, {"choices": [{"logprobs": None}]}])
    assert (found.texts, found.rows.tolist(), found.n_skipped) == (
        ["The answer: New York"],
        [0],
        1,
    )
    np.testing.assert_allclose(found.total, [-1.65])
    np.testing.assert_allclose(found.mean, [-0.33])
    found = read_sequence_logprobs([reply], after="ANSWER:")
    assert (found.texts, found.n_tokens.tolist()) == (["New York"], [2])
    np.testing.assert_allclose(found.total, [-1.25])
    with pytest.raises(ValueError, match="no reply has tokens after 'Result'"):
        read_sequence_logprobs([reply], after="Result")


def test_spellings_are_added_up() -> None:
    reply = chat({"A": np.log(0.4), " A": np.log(0.2), "(B": np.log(0.3)})
    values = read_logprobs([reply], ["A", "B"]).scores.to_dense()
    np.testing.assert_allclose(np.exp(values[0]), [0.6, 0.3])


def test_questions_without_a_choice_are_left_out() -> None:
    replies = [chat(TOKENS[0]), chat({"I": -0.1, "cannot": -3.0}), chat(TOKENS[1])]
    assert read_logprobs(replies, CHOICES).rows.tolist() == [0, 2]
    with pytest.raises(ValueError, match="no reply has one of the choices"):
        read_logprobs(replies[1:2], CHOICES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"choices": [{"message": {}}]}',
            "entry 0; its `logprobs` are missing or null.*top_logprobs",
        ),
        ('{"choices": [{"logprobs": null}]}', "entry 0"),
        ("{", "JSON"),
        ("3", "entry 0"),
    ],
)
def test_bad_replies_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "replies.json"
    path.write_text(text)
    with pytest.raises(DataFileError, match=message) as caught:
        read_logprobs(path, CHOICES)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (
            {"choices": [{"logprobs": None}]},
            "`logprobs` are missing or null. Ask the API for `logprobs`",
        ),
        (
            {"output": [{"content": [{"logprobs": []}]}]},
            "`logprobs` are missing or null",
        ),
        ({"candidates": [{"content": {}}]}, "`logprobs` are missing or null"),
        (
            {"type": "message", "content": [{"text": "A"}]},
            r"`hokical.calibrate_confidence`\.$",
        ),
        (chat({"Par": -0.1}), "A choice must be one token"),
    ],
)
def test_replies_without_log_probabilities_are_told_what_to_do(
    reply: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read_logprobs([reply], ["Paris", "Rome"])


def test_a_word_of_letters_is_as_many_choices() -> None:
    replies = [chat(tokens) for tokens in TOKENS]
    found, expected = read_logprobs(replies, "ABCD"), read_logprobs(replies, CHOICES)
    np.testing.assert_array_equal(found.scores.to_dense(), expected.scores.to_dense())


def test_replies_without_log_probabilities_are_skipped_and_counted() -> None:
    failed = {"custom_id": "q2", "response": None, "error": {"code": "rate_limit"}}
    replies = [
        chat(TOKENS[0]),
        {"choices": [{"logprobs": None}]},
        failed,
        chat(TOKENS[1]),
    ]
    found = read_logprobs([*replies, chat({"I": -0.1})], CHOICES)
    assert found.rows.tolist() == [0, 3]
    assert found.n_skipped == 3


def test_choices_must_be_texts() -> None:
    with pytest.raises(ValueError, match=r"`choices` must be texts.*got 0.5"):
        read_logprobs([], [0.5, 1.5])


def test_choices_must_differ() -> None:
    for choices in ("A", "AA", ["A"], ["A", "A"]):
        with pytest.raises(ValueError, match="at least two different"):
            read_logprobs([], choices)


def test_samples_of_lm_eval(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {
            "doc_id": 0,
            "target": 2,
            "filtered_resps": [[-3.0, False], [-2.0, False], [-1.0, True]],
        },
        {
            "doc_id": 1,
            "target": "1",
            "filtered_resps": [["-3.5", "False"], ["-1.5", "True"]],
        },
        {"doc_id": 2, "target": " B", "filtered_resps": [[-3.5, False], [-1.5, True]]},
        {"doc_id": 3, "target": [0], "filtered_resps": [[-3.5, False], [-1.5, True]]},
        {
            "doc_id": 4,
            "doc": {"choices": ["no", "yes"]},
            "target": "yes",
            "filtered_resps": [[-0.5, True], [-1.5, False]],
        },
    ]
    path = tmp_path / "samples_mmlu.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    logits, labels = read_lm_eval(path)
    assert labels.tolist() == [2, 1, 1, 0, 1]
    assert logits.shape == (5, 3)
    assert logits[1].tolist() == [-3.5, -1.5, -np.inf]
    with pytest.raises(ValueError, match="multiple-choice sample in entry 0"):
        read_lm_eval([{"target": "4", "filtered_resps": [["forty-two"]]}])


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (
            {"target": "42", "filtered_resps": ["42"]},
            "generation task.*`read_logprobs`",
        ),
        (
            {"target": "7", "filtered_resps": [["-1", "x"], ["-2", "y"]]},
            "'7' is none of its 2",
        ),
        (
            {"target": "C", "filtered_resps": [["-1", "x"], ["-2", "y"]]},
            "'C' is none of its 2",
        ),
        (
            {"target": "AB", "filtered_resps": [["-1", "x"], ["-2", "y"]]},
            "'AB' is none of its 2",
        ),
        (
            {"target": "", "filtered_resps": [["-1", "x"], ["-2", "y"]]},
            "'' is none of its 2",
        ),
    ],
)
def test_samples_without_choices_are_refused(
    sample: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read_lm_eval([sample])


def test_completions_need_no_other_tokens() -> None:
    found = {
        "tokens": ["Par", "is"],
        "token_logprobs": [-0.5, -0.1],
        "top_logprobs": None,
    }
    answer = read_sequence_logprobs([{"choices": [{"logprobs": found}]}])
    assert (answer.texts, answer.n_tokens.tolist()) == (["Paris"], [2])

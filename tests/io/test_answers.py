"""Answers of language models, in the formats of the APIs and of lm-evaluation-harness."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical.io import DataFileError, read_lm_eval, read_logprobs

CHOICES = ["A", "B", "C", "D"]
#: The tokens of two replies; in the second, D is not among them.
TOKENS = [
    {"B": -0.3, " A": -1.6, "C": -3.0, "D": -4.0, "The": -5.0},
    {" C": -0.1, "A": -2.5, "B": -3.5, "\n": -6.0},
]


def chat(tokens: dict[str, float], before: tuple[str, ...] = ()) -> dict[str, Any]:
    listed = [{"token": token, "logprob": value, "bytes": None} for token, value in tokens.items()]
    content = [{"token": word, "logprob": -0.01, "top_logprobs": []} for word in before]
    content += [{**listed[0], "top_logprobs": listed}]
    message = {"role": "assistant", "content": "".join([*before, listed[0]["token"]])}
    return {"choices": [{"index": 0, "message": message, "logprobs": {"content": content}}]}


def completion(tokens: dict[str, float]) -> dict[str, Any]:
    first, value = next(iter(tokens.items()))
    found = {"tokens": [first], "token_logprobs": [value], "top_logprobs": [tokens]}
    return {"object": "text_completion", "choices": [{"text": first, "logprobs": found}]}


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
    return {"object": "response", "output": [{"type": "reasoning"}, {"content": [text]}]}


def gemini(tokens: dict[str, float]) -> dict[str, Any]:
    listed = [{"token": token, "logProbability": value} for token, value in tokens.items()]
    found = {"chosenCandidates": listed[:1], "topCandidates": [{"candidates": listed}]}
    return {"candidates": [{"content": {"role": "model"}, "logprobsResult": found}]}


@pytest.mark.parametrize("form", [chat, completion, vllm, batch, responses, gemini])
@pytest.mark.parametrize("suffix", ["json", "jsonl", "jsonl.gz"])
def test_every_format_says_the_same(tmp_path: Path, form: Any, suffix: str) -> None:
    replies = [form(tokens) for tokens in TOKENS]
    path = tmp_path / f"replies.{suffix}"
    lines = "\n".join(map(json.dumps, replies))
    text = json.dumps(replies, indent=2) if suffix == "json" else lines
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    found = read_logprobs(path, CHOICES)
    assert found.rows.tolist() == [0, 1]
    assert found.scores.labels.tolist() == [1, 2]
    assert found.scores.hidden.tolist() == [0, 1]
    assert found.scores.ceiling.tolist() == [-np.inf, -6.0]
    dense = found.scores.to_dense(fill=-np.inf)
    np.testing.assert_allclose(dense[0], [-1.6, -0.3, -3.0, -4.0])
    np.testing.assert_allclose(dense[1], [-2.5, -3.5, -0.1, -np.inf])


def test_the_token_looked_at_is_the_first_choice() -> None:
    reply = chat(TOKENS[0], before=("\n", "Answer", ":", " "))
    assert read_logprobs([reply], CHOICES).scores.labels.tolist() == [1]


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
        ('{"choices": [{"message": {}}]}', "entry 0; missing 'logprobs'.*top_logprobs"),
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
        ({"choices": [{"logprobs": None}]}, "`logprobs` are null. Ask the API for `logprobs`"),
        ({"output": [{"content": [{"logprobs": []}]}]}, "`logprobs` are null"),
        ({"candidates": [{"content": {}}]}, "`logprobs` are null"),
        ({"type": "message", "content": [{"text": "A"}]}, r"`hokical.calibrate_confidence`\.$"),
        (chat({"Par": -0.1}), "A choice must be one token"),
    ],
)
def test_replies_without_log_probabilities_are_told_what_to_do(reply: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_logprobs([reply], ["Paris", "Rome"])


def test_a_word_of_letters_is_as_many_choices() -> None:
    replies = [chat(tokens) for tokens in TOKENS]
    found, expected = read_logprobs(replies, "ABCD"), read_logprobs(replies, CHOICES)
    np.testing.assert_array_equal(found.scores.to_dense(), expected.scores.to_dense())


def test_replies_without_log_probabilities_are_skipped_and_counted() -> None:
    failed = {"custom_id": "q2", "response": None, "error": {"code": "rate_limit"}}
    replies = [chat(TOKENS[0]), {"choices": [{"logprobs": None}]}, failed, chat(TOKENS[1])]
    found = read_logprobs([*replies, chat({"I": -0.1})], CHOICES)
    assert found.rows.tolist() == [0, 3]
    assert found.n_skipped == 3


def test_choices_must_differ() -> None:
    for choices in ("A", "AA", ["A"], ["A", "A"]):
        with pytest.raises(ValueError, match="at least two different"):
            read_logprobs([], choices)


def test_samples_of_lm_eval(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"doc_id": 0, "target": 2, "filtered_resps": [[-3.0, False], [-2.0, False], [-1.0, True]]},
        {"doc_id": 1, "target": "1", "filtered_resps": [["-3.5", "False"], ["-1.5", "True"]]},
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
        ({"target": "42", "filtered_resps": ["42"]}, "generation task.*`read_logprobs`"),
        ({"target": "7", "filtered_resps": [["-1", "x"], ["-2", "y"]]}, "7 is none of its 2"),
    ],
)
def test_samples_without_choices_are_refused(sample: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_lm_eval([sample])

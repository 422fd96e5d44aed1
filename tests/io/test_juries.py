"""Several prompts of a language model, and juries of judges, as ensembles."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from hokical import Ensemble, FitDataWarning, make
from hokical.io import agreement, jury, read_logprobs

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(3, 20, 4))
SCORES -= np.logaddexp.reduce(SCORES, axis=2, keepdims=True)
NAMES = ("plain", "expert", "terse")


def reply(scores: np.ndarray, n_listed: int = 4) -> dict[str, Any]:
    """A chat completion with the log-probabilities of some letters."""
    order = np.argsort(-scores)[:n_listed]
    listed = [{"token": "ABCD"[k], "logprob": float(scores[k])} for k in order]
    content = [{**listed[0], "top_logprobs": listed}]
    return {"choices": [{"logprobs": {"content": content}}]}


def prompts() -> dict[str, list[Any]]:
    return {
        name: [*map(reply, scores)] for name, scores in zip(NAMES, SCORES, strict=True)
    }


def test_prompts_are_the_members_of_an_ensemble() -> None:
    found = read_logprobs(prompts(), "ABCD")
    assert found.scores.names == NAMES
    np.testing.assert_allclose(np.stack(found.scores.members), SCORES)
    assert found.rows.tolist() == [*range(20)]
    assert found.n_skipped == 0


def test_prompts_may_be_in_files(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.jsonl" for name in NAMES}
    for name, replies in prompts().items():
        paths[name].write_text("\n".join(map(json.dumps, replies)))
    found = read_logprobs(paths, "ABCD")
    np.testing.assert_allclose(np.stack(found.scores.members), SCORES)


def test_questions_without_an_answer_are_rows_of_nan() -> None:
    replies = prompts()
    replies["plain"][3] = replies["plain"][7] = None
    replies["expert"][7] = replies["terse"][7] = {"error": "overloaded"}
    found = read_logprobs(replies, "ABCD")
    assert found.n_skipped == 1
    assert found.rows.tolist() == [row for row in range(20) if row != 7]
    missing = np.isnan(np.stack(found.scores.members)).all(axis=2)
    assert np.argwhere(missing).tolist() == [[0, 3]]


def test_a_choice_that_is_not_listed_is_below_the_others() -> None:
    replies = prompts()
    replies["terse"] = [reply(scores, 3) for scores in SCORES[2]]
    member = read_logprobs(replies, "ABCD").scores.members[2]
    assert np.isfinite(member).all()
    assert (member.argmin(axis=1) == SCORES[2].argmin(axis=1)).all()


def test_one_reply_is_no_mapping_of_prompts() -> None:
    single = read_logprobs(reply(SCORES[0, 0]), "ABCD")
    assert isinstance(single.scores, hokical.TopK)
    with pytest.raises(ValueError, match="`logprobs` are missing"):
        read_logprobs({"error": "overloaded"}, "ABCD")


def test_prompts_have_replies_to_the_same_questions() -> None:
    replies = prompts()
    replies["terse"].pop()
    with pytest.raises(ValueError, match="20 for 'plain' and 19 for 'terse'"):
        read_logprobs(replies, "ABCD")
    replies["terse"] = [{"error": "overloaded"}]
    with pytest.raises(ValueError, match=r"prompt 'terse': .*`logprobs` are missing"):
        read_logprobs(replies, "ABCD")


def test_judges_say_the_same_in_each_form() -> None:
    judges = jury(
        ["no", "yes"],
        votes={"text": ["**Yes.**", "no", ""], "number": [1, 0.0, np.nan]},
        probabilities={"one": [0.9, 0.1, None]},
        scores={"end": [5, 1, 3]},
        scale=(1, 5),
    )
    assert judges.names == ("text", "number", "one", "end")
    for member in judges.members:
        odds = member[:, 1] - member[:, 0]
        np.testing.assert_allclose(odds[:2], [np.log(9.0), -np.log(9.0)])
    missing = [np.isnan(member[2]).all() for member in judges.members]
    assert missing == [True, True, True, False]
    assert judges.members[3][2].tolist() == [0.0, 0.0]


def test_judges_of_several_choices() -> None:
    proba = np.array([[0.5, 0.3, 0.2], [np.nan] * 3])
    judges = jury(
        ["a", "b", "c"],
        votes={"v": ["(B)", "c"]},
        probabilities={"p": proba},
        scores={"s": [[1, 10, 4], [2, 2, 9]]},
    )
    votes = np.exp(judges.members[0])
    assert (votes / votes.sum(axis=1, keepdims=True)).max(axis=1) == pytest.approx(0.9)
    np.testing.assert_allclose(np.exp(judges.members[1][0]), proba[0])
    assert np.isnan(judges.members[1][1]).all()
    assert judges.members[2].argmax(axis=1).tolist() == [1, 2]


def test_good_judges_weigh_more_and_the_jury_beats_each() -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=3000)
    opinions = np.where(truth == 1, 1.0, -1.0)[:, None] + [0.8, 1.0, 3.0] * rng.normal(
        size=(3000, 3)
    )
    votes = np.where(opinions > 0, "yes", "no").astype(object)
    votes[rng.random(3000) < 0.3, 0] = None
    names = ("good", "fair", "poor")
    judges = jury(votes={name: votes[:, v] for v, name in enumerate(names)})
    calibrator = hokical.auto(judges[:1000], truth[:1000])
    assert calibrator.members_.weights.argmin() == 2
    new = slice(2000, None)
    right = (calibrator.predict(judges[new]) == truth[new]).mean()
    for judge in range(1, 3):
        assert right > ((votes[new, judge] == "yes") == truth[new]).mean() + 0.02
    confidence = calibrator.predict_confidence(judges[new])
    assert confidence.mean() == pytest.approx(right, abs=0.03)
    # Votes take few values, but other examples are not taken for those of the fit.
    calibrator.certify(judges[1000:2000], truth[1000:2000])
    found = calibrator.predict_or_abstain(judges[new], risk=0.15)
    wrong = found.labels[found.accepted] != truth[new][found.accepted]
    assert found.accepted.mean() > 0.3
    assert wrong.mean() < 0.15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"votes": {"a": ["yes", "perhaps"]}}, r"votes\['a'\].*'perhaps' in row 1"),
        ({"votes": {"a": [0, 2]}}, "got 2 in row 1"),
        ({"scores": {"a": [1, 11]}}, r"scores\['a'\].*got 11.0 in row 1.*`scale`"),
        ({"probabilities": {"a": [0.2, 1.4]}}, r"probabilities\['a'\].*1.4"),
        ({"probabilities": {"a": np.ones((2, 3)) / 3}}, r"shape \(n, 2\)"),
        ({"probabilities": {"a": ["high", "low"]}}, "must be numbers"),
        (
            {"votes": {"a": [None, 1]}, "scores": {"b": [np.nan, 3]}},
            "none in row 0. Drop",
        ),
        ({"votes": {"a": [None, 1, "", None]}}, "none in row 0 and 2 more"),
        ({"votes": {"a": [0, 1]}, "scores": {"a": [1, 3]}}, "different names"),
        ({"votes": {"a": [0, 1]}, "scores": {"b": [1]}}, "must have the shape"),
        ({}, "must have a judge"),
        ({"choices": "yes"}, "two different answers"),
        ({"votes": {"a": [0]}, "scale": (1, 1)}, "`scale` must be"),
    ],
)
def test_what_is_no_vote_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        jury(**arguments)


def test_votes_are_compared_as_agreement_compares_samples() -> None:
    samples = ["A", "(b)", "**a**", "B.", " a "]
    judges = jury(["a", "b"], votes={"judge": samples})
    assert judges.members[0].argmax(axis=1).tolist() == [0, 1, 0, 1, 0]
    assert agreement([samples]).share[0] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("n", "n_judges", "n_choices"), [(200, 4, 2), (300, 4, 2), (500, 4, 3)]
)
def test_equal_votes_are_no_copies(n: int, n_judges: int, n_choices: int) -> None:
    """Coarse votes coincide by nature; rows of a fit tell their labels, but not here."""
    rng = np.random.default_rng(0)
    truth = rng.integers(n_choices, size=n)
    guesses = rng.integers(n_choices, size=(n_judges, n))
    votes = np.where(rng.random((n_judges, n)) < 0.6, truth, guesses)
    named = {f"judge {v}": vote for v, vote in enumerate(votes)}
    judges = jury([f"choice {k}" for k in range(n_choices)], votes=named)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*copies", FitDataWarning)
        for method in ("temps", "hoki"):
            make(method).fit(judges, truth)


@pytest.mark.parametrize("method", ["auto", "hoki", "uncalibrated"])
def test_copies_of_rows_of_an_ensemble_are_noticed(method: str) -> None:
    rng = np.random.default_rng(0)
    members = 2.0 * rng.normal(size=(3, 300, 4))
    labels = np.argmax(members.mean(axis=0) + rng.gumbel(size=(300, 4)), axis=1)
    rows = rng.integers(300, size=400)
    with pytest.warns(FitDataWarning, match="are exact copies of another one"):
        make(method).fit(Ensemble(members[:, rows]), labels[rows])


@pytest.mark.parametrize(
    ("choices", "votes", "classes"),
    [
        (["1", "2", "3"], [1, 2.0, "3"], [0, 1, 2]),
        (["true", "false"], [True, False, "True"], [0, 1, 0]),
        (["no", "yes"], [True, False, 1], [1, 0, 1]),
        (["0", "1"], [True, 0, "1"], [1, 0, 1]),
        (["A", "B", "C"], ["A", "(c)", 1], [0, 2, 1]),
    ],
)
def test_votes_are_choices_before_they_are_their_numbers(
    choices: list[str], votes: list[Any], classes: list[int]
) -> None:
    (logits,) = jury(choices, votes={"a": votes}).members
    np.testing.assert_array_equal(np.argmax(logits, axis=1), classes)
    with pytest.raises(ValueError, match=r"`votes\['a'\]` must hold choices .* got 5"):
        jury(choices, votes={"a": [*votes, 5]})


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_judges_are_columns_of_a_frame(library: str) -> None:
    frame = pytest.importorskip(library).DataFrame(
        {"a": ["no", "yes"], "b": ["yes", None]}
    )
    judges = jury(votes=frame)
    assert judges.names == ("a", "b")
    np.testing.assert_array_equal(np.isnan(judges.members[1][:, 0]), [False, True])

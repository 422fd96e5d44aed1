"""Confidences that language models state in words."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from hokical.io import STATED_WORDS, read_stated

#: Texts, and the confidences that a reader finds in them.
STATED = [
    ("95% CI 3-4. Confidence: 60%", 0.6),
    ("70% or more confident", 0.7),
    ("I'm 90% sure. Now the capital is Rome.", 0.9),
    ("Confidence (0-100): 85", 0.85),
    ("Confidence (0-100%): 85%", 0.85),
    ("(0-100%): 85%", 0.85),
    ("Confidence (from 0 to 1): 0.85", 0.85),
    ("(1-10): 8", 0.8),
    ("Confidence (1-10): 8", 0.8),
    ("It's 50/50", 0.5),
    ("10% chance that I am wrong", 0.9),
    ("error probability: 0.1", 0.9),
    ("I am wrong with probability 0.1", 0.9),
    ("I was wrong. Probability: 90%", 0.9),
    ("I was wrong, but the probability is 90%", 0.9),
    ("90% sure it's Paris, 10% Rome", 0.9),
    ("I am 90% sure that the answer is 25%.", 0.9),
    ("nine out of ten", 0.9),
    ("ninety percent", 0.9),
    ("8 out of ten", 0.8),
    ("Confidence: High", 0.9),
    ("I am 90% sure", 0.9),
    ("90 percent", 0.9),
    ("about 92.5 per cent", 0.925),
    ("80-90%", 0.85),
    ("between 70 to 80 %", 0.75),
    ("First I thought 60%, now I am 95% sure.", 0.95),
    ("9/10", 0.9),
    ("8 out of 10", 0.8),
    ("3 in 4", 0.75),
    ("0.85", 0.85),
    (".85", 0.85),
    ("Confidence: 85", 0.85),
    ("My confidence is 0.7.", 0.7),
    ("probability of 1.0", 1.0),
    ("85", 0.85),
    ("1", 1.0),
    ("Very likely.", 0.9),
    ("unlikely", 0.33),
    ("I am not sure", 0.35),
    ("I'm sure", 0.85),
    ("ALMOST   certain", 0.97),
    ("I am not very confident", 0.25),
    ("not very sure", 0.25),
    ("not likely", 0.33),
    ("very sure", 0.95),
    ("95,5 %", 0.955),
    ("Confidence: 0,85", 0.85),
    ("probability 3 of 4", 0.75),
    ("of 1,000 answers 90%", 0.9),
    ("**Confidence:** 85%", 0.85),
    ("**Confidence**: 85", 0.85),
    ('{"answer": "Paris", "confidence": 0.85}', 0.85),
    ('```json\n{"answer": 25, "confidence": 85}\n```', 0.85),
    ('{"confidence": "high", "answer": "Paris"}', 0.9),
    ("<confidence>0.8</confidence>", 0.8),
    ("| Answer | Paris |\n| Confidence | 85% |", 0.85),
    ("On a scale of 1 to 10, I'd say 8.", 0.8),
    ("On a scale from 0 to 100: 85", 0.85),
    ("8 on a scale of 1-10", 0.8),
    ("Confidence [0, 1]: 0.8", 0.8),
    ("Confidence [0,1]: 0.8", 0.8),
    ("Confidence (0.0 to 1.0): 0.95", 0.95),
    ("Confidence (out of 10): 8", 0.8),
    ("Confidence (%): 85", 0.85),
    ("Confidence in percent: 85", 0.85),
    ("Confidence: 85 (out of 100)", 0.85),
    ("Confidence 0-100: 85", 0.85),
    ("Confidence (1 = low, 5 = high): 4", 0.8),
    ("confidence level: medium", 0.6),
    ("My confidence in this answer is high.", 0.9),
    ("Confidence: very high", 0.95),
    ("Confidence: medium-high", 0.75),
    ("My confidence in this answer is about 85%", 0.85),
    ("The probability that this answer is correct is 0.8.", 0.8),
    ("I would put my confidence at around 80 percent", 0.8),
    ("There is a 5% chance this is incorrect", 0.95),
    ("The probability that I am wrong is 5%", 0.95),
    ("Uncertainty: 10%", 0.9),
    ("I am 20% unsure", 0.8),
    ("probability of error: 0.05", 0.95),
    ("The answer is 25%. I'm very confident.", 0.95),
    ("About 70% of Earth's surface is water. I'm very confident.", 0.95),
    ("I'm not 100% sure, but I'd say 80%", 0.8),
    ("It's not Paris, I'm 90% sure", 0.9),
    ("I'm not sure, maybe 60%", 0.6),
    ("I was 60% sure at first. My final confidence: 90%", 0.9),
    ("Confidence: 90%. Again, confidence: 90%", 0.9),
    ("\uff18\uff15\uff05", 0.85),
    ("0\u00b785", 0.85),
    ("~90%", 0.9),
    (">90%", 0.9),
    ("90%+ sure", 0.9),
    ("85% \u00b1 5%", 0.85),
    ("85 +/- 5%", 0.85),
    ("between 80 and 90%", 0.85),
    ("between 7 and 8 out of 10", 0.75),
    ("7-8/10", 0.75),
    ("8.5/10", 0.85),
    ("twenty to thirty percent", 0.25),
    ("a hundred percent sure", 1.0),
    ("one hundred percent", 1.0),
    ("ninety-five percent", 0.95),
    ("fifty-fifty", 0.5),
    ("zero point nine", 0.9),
    ("three quarters", 0.75),
    ("I'm about two thirds sure", 0.6667),
    ("Sure, here's the answer: Paris. Confidence: 0.7", 0.7),
    ("Sure.", 0.85),
    ("Certainly", 0.98),
    ("not completely sure", 0.6),
    ("<think>I'd say 20% at first</think>90%", 0.9),
    ("Confidence:\n85%", 0.85),
    ("## Confidence\n85%", 0.85),
    ("I'd say 90% it's Paris", 0.9),
    ("Paris (90%)", 0.9),
    ("Answer: Paris (90%)", 0.9),
    ("P(True) = 0.9", 0.9),
    ("p(correct): 0.75", 0.75),
    ("Confidence (0-1): 85%", 0.85),
    ("\\boxed{85\\%}", 0.85),
    ("$\\frac{9}{10}$", 0.9),
    ("60/40", 0.6),
    ("50-50", 0.5),
    ("1 in 4 chance I'm wrong", 0.75),
    ("It is likely Paris, but I am not sure", 0.35),
    ("1. Paris (90%)", 0.9),
    ("I am 90% sure; there is a 10% chance I am wrong.", 0.9),
    ("1 out of 3", 0.3333),
    ("Confidence = 75", 0.75),
    ("I'm 75 percent certain that Einstein was born in 1879.", 0.75),
    ("Confidence score: 0.9/1.0", 0.9),
    ("Confidence: 4/5", 0.8),
    ("My certainty is 90 out of 100", 0.9),
    ("Probability: 0.73 (73%)", 0.73),
    ("I'd give it a 7/10", 0.7),
    ("I have high confidence in this answer.", 0.9),
    ("with 95% confidence, the mean lies between 3 and 4", 0.95),
    ("Confidence: 90 %, answer: 42", 0.9),
    ("My answer is 42 and my confidence is 90", 0.9),
    ("How confident am I? Very confident.", 0.95),
    ("Is it likely? Unlikely.", 0.33),
    ("I am 99.9% certain", 0.999),
    ("0.5% chance of being wrong", 0.995),
    ("Confidence: .5%", 0.005),
    ("no confidence", 0.05),
    ("Confidence: 1/10", 0.1),
    ("85/100", 0.85),
    ("Confidence: 95 - I am sure", 0.95),
    ("Confidence - 85%", 0.85),
    ("confidence~0.8", 0.8),
    ("Confidence: approximately 0.8", 0.8),
    ("Confidence: uncertain", 0.35),
    ("I am certain that 30% of people agree", 0.98),
    ("Confidence that the answer is 25: 80%", 0.8),
    ("Confidence: 85, since it was founded in 1962", 0.85),
    ("Confidence (1-5): 4", 0.8),
    ("Rating (1-7): 7", 1.0),
    ("Confidence 8/10 (80%)", 0.8),
    ("confidence: 0.9 (very likely)", 0.9),
    ("I would estimate a 70% probability", 0.7),
    ("My guess: 42. I'd put my odds of being right at 70%", 0.7),
    ("I'm about 85-90% confident in this", 0.875),
    ("it's certainly Paris", 0.98),
    ("definitely Paris", 0.98),
    ("Confidence level: 4 out of 5", 0.8),
    ("Final answer: 12. Confidence: 70%.", 0.7),
    ("Answer: 12; Confidence: 70", 0.7),
    ("12 (confidence 0.7)", 0.7),
    ("12 [0.7]", 0.7),
    ("B, 80%", 0.8),
    ("B - 80%", 0.8),
    ("B: 80%", 0.8),
    ("(B) with 80% certainty", 0.8),
    ("I'm 80% on B", 0.8),
    ("I have no idea", 0.1),
    ("Probably around 70-75%", 0.725),
    ("somewhere between 0.6 and 0.7", 0.65),
    ("Confidence: 0.6-0.7", 0.65),
    ("Confidence: 60 to 70", 0.65),
    ("Confidence: 85\nAnswer: 20%", 0.85),
    ("Answer: 20%\nConfidence: 85", 0.85),
    ("The tax rate is 20%. Confidence: 9/10", 0.9),
    ("Rate: 20%\nI'm quite sure.", 0.8),
    ("{'answer': 'Paris', 'confidence': 85}", 0.85),
    ('{"confidence_percent": 85}', 0.85),
    ('{"probability": 0.9, "reason": "2 of 3 sources"}', 0.9),
    ("Confidence: 0.8.", 0.8),
    ("Confidence is 95 percent.", 0.95),
    ("1/2", 0.5),
    ("one in two", 0.5),
    ("The chance is one in three", 0.3333),
    ("about half", 0.5),
    ("I'm half sure", 0.5),
    ("Confidence: ninety", 0.9),
    ("confidence of ninety-five out of one hundred", 0.95),
    ("I'm a hundred percent sure", 1.0),
    ("Not sure. 50%?", 0.5),
    ("I'm sure that nobody is certain", 0.85),
    ("90 pct", 0.9),
    ("90%.", 0.9),
    ("(90%)", 0.9),
    ("[[90]]", 0.9),
    ("Score: 85/100", 0.85),
    ("25% (confidence 90%)", 0.9),
    ("The answer is 3/4. I am 80% sure.", 0.8),
    ("about 25% (I'm 90% sure)", 0.9),
    ("Confidence (0 = guess, 100 = certain): 90", 0.9),
    ("Confidence (in %): 90", 0.9),
    ("Confidence as a percentage: 90", 0.9),
    ("Confidence on a 0-10 scale: 8", 0.8),
    ("Confidence: 8 (scale 1-10)", 0.8),
    ("My confidence is 8 out of 10.", 0.8),
    ("Confidence (0 to 100 percent): 90", 0.9),
    ("Confidence (range 0-1): 0.9", 0.9),
    ("confidence(0-1)=0.9", 0.9),
    ("Confidence [0-100]: 90%", 0.9),
    ("Confidence from 0 to 100: 90", 0.9),
    ("Confidence between 0 and 1: 0.9", 0.9),
    ("On a scale of 1-5 I am a 4", 0.8),
    ("I rate my confidence as 4 on a scale from 1 to 5.", 0.8),
    ("Confidence (0-100)\n85", 0.85),
    ("Confidence (80-90%)", 0.85),
    ("Confidence: 80\u201390%", 0.85),
    ("Confidence (very high): 95", 0.95),
    ("less than 10% sure", 0.1),
    ("at least 80% confident", 0.8),
    ("I am 80 to 90 percent sure", 0.85),
    ("1.0", 1.0),
    ("100", 1.0),
    ("100%", 1.0),
    ("0", 0.0),
    ("0%", 0.0),
    ("Confidence: 0", 0.0),
    ("Very high.", 0.95),
    ("Confidence: high (8/10)", 0.8),
    ("Confidence: Moderate (60%)", 0.6),
    ("There is a small chance (5%) that I'm wrong", 0.95),
    ("the likelihood of this being wrong is 0.35", 0.65),
    ("There's about a 1 in 5 chance I'm mistaken.", 0.8),
    ("I'm 90% sure it is not wrong", 0.9),
    ("Confidence/100: 72", 0.72),
    ("Confidence: [90]", 0.9),
    ("Definitely not sure.", 0.35),
    ("It isn't likely", 0.33),
    ("ninety-nine point nine percent", 0.999),
    ("zero point nine five", 0.95),
    ("85% confident (not 90%)", 0.85),
    ("on a scale of one to ten, eight", 0.8),
    ("Initially 90%, now 60%", 0.6),
    ("My guess is 25%, and I'm 80% sure of it.", 0.8),
    ("Confidence (0..1): .3", 0.3),
    ("Confidence [0..100]: 70", 0.7),
    ("I'm sure it is not wrong", 0.85),
    ("odds of 90%", 0.9),
    ("Confidence: 1e-3", 0.001),
    ("Confidence: 9.5e-1", 0.95),
    ("probability = 2.5e-05", 2.5e-05),
    ("p=0.7", 0.7),
    ("Confidence <0-100>: 90", 0.9),
    ("On a scale where 0 is a guess and 100 is certain, 72", 0.72),
    ("On a scale from 1 (not sure) to 5 (very sure): 4", 0.8),
    ("On a scale from 1 to 10, where 10 is certain, I'd say 8", 0.8),
    ("Confidence (10%-100%): 80%", 0.8),
    ("Confidence[1]: 80%", 0.8),
    ("Confidence #1: 80%", 0.8),
    ("Answer and Confidence (0-100): 42, 85%", 0.85),
    ("Answer & Confidence: 7, 80", 0.8),
    ("Confidence (High/Medium/Low): High", 0.9),
    ("Confidence level \u2013 High", 0.9),
    ("Confidence: 10% chance that I am wrong", 0.9),
    ("20% chance this isn't right", 0.8),
    ("I'm 90% sure it is the right answer, not the wrong one", 0.9),
    ("Initial confidence: 0.6. Final confidence: 0.9.", 0.9),
    ("I was 60% sure at first, now I am 95% sure", 0.95),
    ("He was 42, I'm 80% sure.", 0.8),
    ("This answer is 90% certain", 0.9),
    ("P(A) = 0.3. Confidence: 0.95", 0.95),
    ("Chance of rain: 30%\nConfidence: high", 0.9),
    ("OR 0.7 (95% CI 0.5-0.9). Confidence: medium", 0.6),
    ("P(Paris)=0.9", 0.9),
    ("very certain", 0.95),
    ("I'm fairly certain", 0.75),
    ("highly probable", 0.9),
    ("<thinking>I'm 30% sure</thinking> I'm 70% sure.", 0.7),
    ("<reasoning>20% or 30%</reasoning>42 <confidence>0.9</confidence>", 0.9),
    ("<think>a</think> 20% <think>b</think> 0.9", 0.9),
]
#: Texts in which a reader finds a confidence, but not which one.
AMBIGUOUS = [
    "Confidence interval 95%: [3,4]",
    "The 95% confidence interval is 3 to 4.",
    "I was 90% sure, but now 40%",
    "I am 90% sure; actually, 50%",
    "I'm 30% less confident than before",
    "This is 20% more likely than that",
    "I am not 90% sure",
    "-5%",
    "150%",
    "not unlikely",
    "Confidence: low to medium",
    "I am 90% sure the claim is false",
    "60% Paris, 40% Rome",
    "Paris: 60%, Rome: 40%",
    "Confidence: 60%\nConfidence: 90%",
    "Answer 1: Paris. Confidence: 80%. Answer 2: Rome. Confidence: 20%",
    "I'm far from certain",
    "I can't be sure",
    "I cannot say that I am 90% sure",
    "A 25% discount gives $75.",
    "Confidence: 8",
    "Confidence (0-100): 0.85",
    "Confidence (0-1): 85",
    "40/60",
    "My confidence rose from 60% to 90%",
    "possible or very likely",
    "Confidence: 110%",
    "2 of 3 sources agree",
    "If I were 90% sure, I would say so.",
    "I don't think it's 90%",
    "confidence: 4 stars",
    "from 60% to 70%",
    '[{"answer":"Paris","probability":0.7},{"answer":"Rome","probability":0.3}]',
    "G1: Paris P1: 0.8 G2: Rome P2: 0.1",
    "I'm not at all sure",
    "hardly likely",
    "80% Paris, 10%",
    "one hundred and ten percent",
    "My confidence is moderate to high",
    "I could be wrong (20% chance)",
    "I could be wrong (20%)",
    "Certainly not.",
    "Probably not",
    "First I was 90% sure; after checking I am 60% sure",
    "20% no, 80% yes",
    "8/10, maybe 9/10",
    "3:1 odds",
    "I'd give it 3 to 1 odds",
    "I'm certain that it is incorrect",
    "It is likely wrong",
    "I am probably wrong",
    "I am 85 percent sure it is NOT correct",
    "I'm 85% sure that my answer isn't right",
    "Confidence: 90% that I am wrong",
    "nine times out of ten I'd be wrong",
    "I'm nowhere near 90% sure",
    "I am neither sure nor unsure",
    "I doubt it's 90%",
    "I'm 100% not sure",
    "I used to be 90% sure",
    "I was 90% sure before but I no longer am",
    "You asked me to be 90% sure",
    "Are you 90% sure?",
    "The doctor is 90% sure it's flu",
    "Confidence before: 60%, after: 90%",
    "Prior probability: 0.3. Posterior: 0.8",
    "Confidence: 60% -> 90%",
    "Confidence: 0.6 \u2192 0.9",
    "Confidence: 110%, 3/4",
    '{"confidence": [0.7, 0.2]}',
    "Probability of rain: 30%. I am 90% sure.",
    "95% CI [0.2, 0.4]",
    "P(A|B) = 0.3, my confidence is 95%",
    "Credible interval (0.2, 0.4)",
    "The population grew by 90%",
    "Uncertainty: low",
    "medium to high confidence",
    "slightly confident",
    "a little unsure",
    "kind of sure",
    "rather unlikely",
    "nearly certain",
    "I'm sure-ish",
    "Confidence: 80%. Wait, actually 60%.",
]
#: Texts that state no confidence.
SILENT = [
    "Certainly! The capital is Paris.",
    "Sure! The answer is Paris.",
    "Paris",
    "",
    "born in 1962",
    "12/2019",
    "Confidence: [low/medium/high]",
    "The answer is 25%.",
    "Answer: 25%",
    "Make sure to check. Paris.",
    "Absolutely! It's Paris",
    "x = 0.5",
    "The mass is 0.85 kg",
    "My confidence is not high",
    "Confidence: not high",
    "Sure thing! It's Rome.",
    "Of course! It is Rome.",
    "Great question! Certainly, it is Rome.",
    "It is possible to go there.",
    "There's no doubt: Paris",
    "Undoubtedly Paris",
    "Confidence: N/A",
    "Confidence: unknown",
    "I would not bet on it",
    "I don't know",
    "one chance in three",
    "less than certain",
    "I am more confident than before",
    "as sure as I can be",
    "Ich bin 90 Prozent sicher",
    "Confidence (0-100)",
    "(0-100%)",
    "p < 0.05",
    "GPT-4 is 80% accurate",
    "In 95% of cases this works",
    "Yes",
    "I would think so",
    "<think>I am 30% sure about it",
    "In certain cases, Paris",
    "Certain animals are blue.",
    "possible worlds",
    "Accuracy: 85%",
    "Temperature: 0.7",
    "in the low 80s percent",
]


@pytest.mark.parametrize(("text", "confidence"), STATED)
def test_stated_confidences(text: str, confidence: float) -> None:
    assert read_stated(text) == pytest.approx(confidence, abs=1e-4)
    np.testing.assert_array_equal(read_stated([text]), [read_stated(text)])


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_ambiguous_texts_are_nan_and_told(text: str) -> None:
    with pytest.warns(UserWarning, match="ambiguous confidence in 1 of 1 replies"):
        assert np.isnan(read_stated(text))


@pytest.mark.parametrize("text", SILENT)
def test_texts_without_a_confidence_are_nan(text: str) -> None:
    assert np.isnan(read_stated(text))


@pytest.mark.sample(2)
@pytest.mark.parametrize("style", ["**{}**", "> {}", "- {}", "`{}`", "{}\n", "\t{} "])
def test_markdown_and_spaces_change_nothing(style: str) -> None:
    for text, confidence in STATED:
        if text[:1] not in "[{|#<<`-." and "\n" not in text:
            stated = read_stated(style.format(text))
            assert stated == pytest.approx(confidence, abs=1e-4), text


@pytest.mark.parametrize("text", ["I am {}% sure", "Confidence: {}%", "{}%", "{}/100"])
def test_every_percentage_is_read(text: str) -> None:
    percentages = np.arange(101)
    stated = read_stated([text.format(k) for k in percentages])
    np.testing.assert_allclose(stated, percentages / 100.0)


@pytest.mark.parametrize("largest", [1, 5, 7, 10, 20, 100])
@pytest.mark.parametrize(
    "text",
    [
        "Confidence (0-{}): {}",
        "Confidence (from 0 to {}): {}",
        "Confidence [0, {}]: {}",
        "On a scale of 0 to {}, I would say {}.",
    ],
)
def test_scales_in_a_text_are_those_of_its_number(text: str, largest: int) -> None:
    numbers = np.arange(largest + 1)
    stated = read_stated([text.format(largest, k) for k in numbers])
    np.testing.assert_allclose(stated, numbers / largest)


def test_numbers_share_a_scale() -> None:
    for numbers in ([90, 1, 80], [90.0, 1.0, 80.0], ["90", "1", "80"]):
        np.testing.assert_allclose(read_stated(numbers), [0.9, 0.01, 0.8])
    labelled = [f"Confidence: {k}" for k in (90, 1, 80)]
    np.testing.assert_allclose(read_stated(labelled), [0.9, 0.01, 0.8])
    np.testing.assert_allclose(read_stated([0.9, 1, 0]), [0.9, 1.0, 0.0])
    np.testing.assert_allclose(read_stated(np.array([1.0, 0.25])), [1.0, 0.25])
    values = [float("nan"), None, True, 90]
    np.testing.assert_array_equal(read_stated(values), [np.nan, np.nan, np.nan, 0.9])


@pytest.mark.parametrize(
    ("numbers", "clear"),
    [
        ([90, 0.5, 80], [0.9, np.nan, 0.8]),
        ([90, 0.5, 1], [0.9, np.nan, np.nan]),
        ([8, 9, 3], [np.nan] * 3),
        (["90%", "1"], [0.9, np.nan]),
        (["Confidence: 0.9", "Confidence: 85", "Confidence: 1"], [0.9, 0.85, np.nan]),
        ([1962, 90], [np.nan, 0.9]),
    ],
)
def test_numbers_of_unknown_scale_are_ambiguous(
    numbers: list[float], clear: list[float]
) -> None:
    with pytest.warns(UserWarning, match="ambiguous"):
        np.testing.assert_allclose(read_stated(numbers), clear)


def test_a_scale_can_be_given() -> None:
    texts = ["8", "Confidence: 5", "I am 90% sure", "9/10", "(1-5): 4"]
    stated = read_stated(texts, scale=10)
    np.testing.assert_allclose(stated, [0.8, 0.5, 0.9, 0.9, 0.8])
    np.testing.assert_allclose(read_stated([90, 0.5], scale=100), [0.9, 0.005])
    with pytest.warns(UserWarning, match="'12' in row 0 is beyond its scale"):
        assert np.isnan(read_stated("12", scale=10))
    with pytest.raises(ValueError, match="`scale` must be"):
        read_stated("8", scale=0)


def test_one_message_counts_ambiguous_replies_and_quotes_some() -> None:
    texts = ["I am not 90% sure", "90%", *["60% Paris, 40% Rome" + " or so" * 20] * 9]
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        read_stated(texts)
    (message,) = messages
    text = str(message.message)
    assert "in 10 of 11 replies" in text
    assert "'I am not 90% sure' in row 0 is negated" in text
    assert "row 2 states several confidences" in text
    assert "row 10" not in text
    assert message.filename == __file__


def test_the_table_of_words_can_be_replaced() -> None:
    words = {"sicher": 0.9, "nicht sicher": 0.2}
    assert read_stated("sicher", words=words) == 0.9
    assert read_stated("Nicht sicher!", words=words) == 0.2
    assert read_stated("Konfidenz: pas s\u00fbr", words={"pas s\u00fbr": 0.3}) == 0.3
    assert np.isnan(read_stated("very likely", words={}))
    assert read_stated("likely", words={**STATED_WORDS, "likely": 0.7}) == 0.7
    assert read_stated("Confidence: so-so", {"so so confidence": 0.4}) == 0.4
    with pytest.raises(ValueError, match=r"`words` must have confidences in \[0, 1\]"):
        read_stated("sure", words={"sure": 90})


@pytest.mark.slow
def test_every_word_of_the_table_is_read() -> None:
    for word, confidence in STATED_WORDS.items():
        assert read_stated(f"{word.upper()}.") == confidence
        assert read_stated(f"It is Paris - {word}.") == confidence


@pytest.mark.parametrize("words", ["auto", ["sure"], 0.5, {1: 0.5}])
def test_words_are_a_mapping(words: object) -> None:
    with pytest.raises(TypeError, match="`words` must be a mapping of texts"):
        read_stated(["sure"], words)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, "0.5", 1.5, -0.1, float("nan")])
def test_words_have_confidences(value: object) -> None:
    with pytest.raises(ValueError, match=r"confidences in \[0, 1\]; got .* for 'sure'"):
        read_stated(["sure"], {"sure": value})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "answers", [None, 0.9, b"90%", {"a": "90%"}, np.array(0.9), np.array([["90%"]])]
)
def test_answers_are_texts(answers: object) -> None:
    with pytest.raises(TypeError, match="`answers` must be a text, or texts"):
        read_stated(answers)  # type: ignore[call-overload]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_frame_is_no_list_of_texts(library: str) -> None:
    make = pytest.importorskip(library)
    frame = make.table if library == "pyarrow" else make.DataFrame
    with pytest.raises(TypeError, match=r"`answers` must be .* Pass .* or one column"):
        read_stated(frame({"90%": ["10%", "20%"]}))

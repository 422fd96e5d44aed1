"""What one reply states: its candidates for a confidence, and the strongest of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from numbers import Real

import numpy as np

from hokical.io.stated.quantities import CHANGE, Quantity, find_quantities
from hokical.io.stated.tokens import LABELS, SENTENCE_ENDS, Tokens, tokenize, words_of

#: What may stand between a label and its number, beside signs.
_LINKS = words_of("is are was of at as be being to level score rating value")
#: What a number before these is: how sure somebody is, or how probable something.
_SURE = words_of("sure certain confident positive convinced confidence")
_PROBABLE = words_of(
    "chance chances probability likelihood certainty likely probable odds risk"
)
#: What a number before these is: how far somebody is from being sure.
_UNSURE = words_of("unsure uncertain uncertainty doubt doubtful")
_WRONG = words_of(
    "wrong incorrect mistaken error errors inaccurate failure unsure uncertain "
    "uncertainty"
)
_NOT_TRUE = words_of("false untrue")
_OPPOSITES = {
    "correct": "incorrect",
    "right": "wrong",
    "accurate": "inaccurate",
    "true": "false",
}
#: What "I am sure" may be about, where it is no confidence in the answer.
_MISTAKES = words_of("wrong incorrect mistaken inaccurate") | _NOT_TRUE
_HEDGES = words_of(
    "about around approximately approx roughly circa ca nearly almost over under "
    "above below only just maybe perhaps probably say somewhere some a an the at "
    "least most more less than up to < > ≈ ≤ ≥"
)
_NEGATIONS = words_of(
    "not never hardly barely no nor neither nowhere doubt without if unless"
)
_REVISIONS = words_of(
    "now final finally actually revised updated overall reconsidering reflection "
    "correction"
)
#: A number directly after these is what was asked for, not how sure the answer is.
_ANSWERS = words_of(
    "answer result solution value total guess sum estimate rate share percentage ratio "
    "growth increase decrease discount price accuracy precision recall temperature "
    "humidity purity"
)
_COPULAS = words_of("is are was were equals")
_PRONOUNS = words_of("it that this i he she")
#: Whose "am 90% sure" is that of the speaker; "" begins a reply.
_SPEAKERS = words_of("i we it this that one answer") | {""}
_PAST = words_of("was were been")
#: A number named so is not the last word.
_EARLIER = words_of("prior initial initially before first earlier previous previously")
#: A word after these is weaker or stronger than alone: "slightly confident".
_DEGREES = words_of(
    "slightly mildly marginally partly partially mostly largely somewhat fairly quite "
    "rather pretty reasonably moderately very totally super extremely highly "
    "relatively equally little bit almost nearly practically dead"
)
#: What may follow a percentage that is a confidence though nothing says so.
_FOLLOWERS = words_of(
    "and or but that it this for on i because since as so given though however"
)
#: A percentage beside these is the level of an interval.
_INTERVALS = words_of("interval intervals ci")
_ODDS = words_of("odds")
_GREETINGS = words_of("yes no ok okay oh hi hello well great good question thanks") | {
    *",.!\n"
}
_FILLERS = words_of("sure certainly absolutely definitely")
#: "less likely", "how sure", "make sure" say nothing.
_COMPARED = words_of("how less more than as too make making a if")
_CLAUSE_ENDS = SENTENCE_ENDS | frozenset(",:()[]") | {"but", "however", "although"}
_MEANINGS = words_of("= being means meaning representing indicating")
_KINDS_OF = (["kind", "of"], ["sort", "of"])
#: P(true) is of the answer, P(A) need not be.
_OF_MINE = words_of("true correct right yes answer i my this being it") | _WRONG
_SEPARATORS = frozenset(":=")
#: How many tokens back a label, and a negation, belong to a number.
_LABEL_REACH = 14
_SENTENCE_REACH = 60
_NEGATION_REACH = 6


class Strength(IntEnum):
    """How clearly a candidate is a confidence."""

    WORD = 0
    WORD_OF_SPEAKER = 1  # I am sure
    NUMBER = 2  # 0.9, 9/10
    PERCENTAGE = 3
    NAMED = 4  # 90% sure, a probability of 0.9
    WORD_OF_FIELD = 5  # Confidence: high
    FIELD = 6  # Confidence: 85


@dataclass(frozen=True)
class Reading:
    """What a reply states: `value` on a `scale`, None if it names none; or a `doubt`.

    `bare` numbers are all that the reply consists of.
    """

    value: float = np.nan
    scale: float | None = 1.0
    strength: Strength = Strength.WORD
    start: int = 0
    doubt: str = ""
    bare: bool = False
    has_point: bool = False
    is_percentage: bool = False

    @property
    def is_unscaled(self) -> bool:
        return self.scale is None and not self.doubt and not np.isnan(self.value)


NO_STATEMENT = Reading()
_SEVERAL = "states several confidences"
_NEGATED = "is negated or conditional"
_PART_OF_ANSWER = "may be part of the answer"
_OTHER_SCALE = "may be on another scale than it names"
BEYOND = "is beyond its scale"
NO_SCALE = "names no scale"
_OF_INTERVAL = "may be the level of an interval"
_NOT_NOW = "may be of an earlier time, or somebody else's"
_OF_DEGREE = "has a word of degree that `words` does not have"
_IS_ODDS = "may be odds, not a probability"
_WHOSE_ERROR = "may be about a wrong answer or a false claim"


class WordTable:
    """Words for how sure somebody is, as tokens, and those that follow "Confidence:".

    >>> WordTable({"high confidence": 0.9}).levels
    {('high',): 0.9}
    """

    def __init__(self, words: Mapping[str, float]) -> None:
        if not isinstance(words, Mapping) or not all(isinstance(w, str) for w in words):
            raise TypeError(
                "`words` must be a mapping of texts to confidences; got "
                f"{words!r}. For example {{'sure': 0.9}}, or {{}} to read numbers alone."
            )
        for word, value in words.items():
            if not isinstance(value, Real) or not 0.0 <= float(value) <= 1.0:
                raise ValueError(
                    "`words` must have confidences in [0, 1]; got "
                    f"{value!r} for {word!r}."
                )
        self.words = {
            tuple(token.text for token in tokenize(word)): float(value)
            for word, value in words.items()
        }
        self.levels = {
            word[:-1]: value
            for word, value in self.words.items()
            if len(word) > 1 and word[-1] == "confidence"
        }
        self._words_and_levels = self.words | self.levels
        self._longest = max(map(len, self.words), default=0)

    def match(
        self, tokens: Tokens, start: int, *, level: bool = False
    ) -> tuple[int, float]:
        """How many tokens from `start` are words of the table, and their confidence."""
        words = self._words_and_levels if level else self.words
        texts = tuple(tokens.texts(start, start + self._longest))
        for size in range(len(texts), 0, -1):
            if texts[:size] in words:
                return size, words[texts[:size]]
        return 0, np.nan


class Reply:
    """The tokens of a reply, and what they state."""

    def __init__(self, tokens: Tokens, table: WordTable) -> None:
        self.tokens = tokens
        self.table = table

    def read(self) -> Reading:
        """The strongest candidate; a doubt where several contradict each other."""
        quantities = find_quantities(self.tokens)
        words = self._find_words({quantity.stop for quantity in quantities})
        numbers = map(self._candidate_of, quantities)
        candidates = [*(number for number in numbers if number is not None), *words]
        usable = [candidate for candidate in candidates if not candidate.doubt]
        doubts = [candidate for candidate in candidates if candidate.doubt]
        if not usable:
            return _strongest_doubt(doubts)
        strength = max(candidate.strength for candidate in usable)
        strongest = [
            candidate for candidate in usable if candidate.strength == strength
        ]
        last = max(strongest, key=lambda candidate: candidate.start)
        is_outranked = any(
            doubt.strength > strength
            and (doubt.strength == Strength.FIELD or doubt.doubt == _NOT_NOW)
            for doubt in doubts
        )
        values = {(candidate.value, candidate.scale) for candidate in strongest}
        # "80% Paris, 10%": neither number says that it is the confidence.
        has_rival = any(
            doubt.doubt in (_PART_OF_ANSWER, _NOT_NOW) and doubt.strength >= strength
            for doubt in doubts
        )
        has_rival |= self._is_revised(last, usable)
        is_clear = len(values) == 1 and not has_rival
        is_revised = is_clear or self._is_revision(last.start)
        return last if is_revised and not is_outranked else Reading(doubt=_SEVERAL)

    def _candidate_of(self, quantity: Quantity) -> Reading | None:
        """What a quantity says about the confidence; None if it says nothing."""
        reading = None if np.isnan(quantity.value) else self._strength_of(quantity)
        if reading is None:
            return None
        if quantity.doubt:
            return replace(reading, doubt=quantity.doubt, value=np.nan)
        is_whole = quantity.scale is None and not quantity.has_point
        if is_whole and self._has_beside(quantity, _ODDS):
            return replace(reading, doubt=_IS_ODDS, value=np.nan)
        if self._has_beside(quantity, _INTERVALS):
            return replace(reading, doubt=_OF_INTERVAL, value=np.nan)
        if self._is_negated(quantity.start):
            return replace(reading, doubt=_NEGATED, value=np.nan)
        return _checked(reading)

    def _is_index(self, quantity: Quantity) -> bool:
        """Whether another number follows this name: "Confidence[1]: 80%"."""
        stop = quantity.stop
        in_brackets = self.tokens.text(stop) in (")", "]")
        is_plain = quantity.scale is None and not quantity.has_point
        if not (is_plain or in_brackets):
            return False
        stop += in_brackets
        is_named = self.tokens.text(stop) in _SEPARATORS
        return is_named and self.tokens.is_number(stop + 1)

    def _is_anchor(self, quantity: Quantity) -> bool:
        """Whether the number is an end of a scale: "where 10 is certain"."""
        after = self.tokens.text(quantity.stop)
        is_where = self.tokens.text(quantity.start - 1) == "where" and after == "is"
        return is_where or after in _MEANINGS

    def _strength_of(self, quantity: Quantity) -> Reading | None:
        reading = Reading(
            quantity.value,
            quantity.scale,
            start=quantity.start,
            has_point=quantity.has_point,
            is_percentage=quantity.is_percentage,
        )
        if self._is_all(quantity):
            return replace(reading, strength=Strength.FIELD, bare=True)
        if self._is_index(quantity):
            return None
        joint = self._joint_label(quantity.start)
        if joint:  # Answer and confidence: 42, 85%
            is_answer = self.tokens.text(quantity.stop) in (",", ";")
            return None if is_answer else replace(reading, strength=Strength.FIELD)
        label = self._label_before(quantity)
        if label is not None:
            return self._labelled(reading, quantity, label)
        if self._is_anchor(quantity):
            return None
        named = self._named_after(quantity, reading)
        if named is not None:
            return named
        if self._is_answer(quantity):
            return None
        if self._on_named_scale(quantity):
            return replace(reading, strength=Strength.NAMED)
        return self._unnamed(quantity, reading)

    def _is_all(self, quantity: Quantity) -> bool:
        """Whether the reply consists of this quantity, beside hedges and signs."""
        start = quantity.start
        start -= 2 * (self.tokens.texts(start - 2, start) in (["p", "="], ["p", ":"]))
        return not any(
            token.kind == "number"
            or (token.kind == "word" and token.text not in _HEDGES)
            for i, token in enumerate(self.tokens)
            if not start <= i < quantity.stop
        )

    def _label_before(self, quantity: Quantity) -> int | None:
        """The position of the label of a quantity: "confidence is about", "P(true):"."""
        i = self._before_hedges(quantity.start)
        text = self.tokens.text(i)
        is_linked = text in _SEPARATORS | _LINKS | LABELS or text in (
            "(",
            "[",
            "-",
            "\n",
        )
        if not is_linked and not self.tokens.is_scale(i):
            return None
        if text == "=" and self._is_variable(i - 1):  # 95% confidence (p = 0.03)
            return None
        for k in range(i, max(i - _LABEL_REACH, -1), -1):
            text = self.tokens.text(k)
            if text in LABELS or (text == "p" and self.tokens.text(k + 1) == "("):
                return k
            if self.tokens[k].kind == "number" or text in (".", "!", "?", ";", ","):
                return None
            if text == "\n" and self.tokens.text(k - 1) not in _SEPARATORS | LABELS:
                return None
            is_asked = text in _ANSWERS and k >= i - 1
            if is_asked and "that" in self.tokens.texts(k - 2, k):
                return None
        return None

    def _joint_label(self, stop: int) -> bool:
        """Whether the line before `stop` has a label of both answer and confidence."""
        for k in range(stop - 1, max(stop - _SENTENCE_REACH, 1), -1):
            if self.tokens.text(k) == "\n":
                return False
            if self.tokens.text(k) in LABELS:
                joined = self.tokens.text(k - 1) in ("and", "&", "/", ",")
                return joined and self.tokens.text(k - 2) in _ANSWERS
        return False

    def _labelled(self, reading: Reading, quantity: Quantity, label: int) -> Reading:
        """A quantity after "confidence", or after "probability that I am wrong"."""
        between = self.tokens.texts(label, quantity.start)
        separated = any(text in _SEPARATORS or text == "\n" for text in between)
        is_field = separated or self.tokens.is_scale(quantity.start - 1)
        strength = Strength.FIELD if is_field else Strength.NAMED
        labelled = replace(reading, strength=strength)
        if self._is_earlier(label, between):
            return replace(labelled, doubt=_NOT_NOW)
        is_one_of_several = self.tokens.text(quantity.start - 1) == "["
        if is_one_of_several and self.tokens.text(quantity.stop) == ",":
            return replace(labelled, doubt=_SEVERAL)
        after = self._clause_after(self.tokens.skip(quantity.stop, ")"))
        is_of_other = between[1:2] in (["of"], ["("]) and _OF_MINE.isdisjoint(between)
        if is_of_other and self.tokens.text(label) != "confidence":
            labelled = replace(labelled, strength=Strength.NAMED)
        if self.tokens.text(label) in _PROBABLE:  # a chance (5%) that I am wrong
            return _turned(labelled, [*self._event_before(label), *between, *after])
        if _says_wrong(after, _WRONG | _NOT_TRUE):
            is_chance = not _PROBABLE.isdisjoint(after[:2])
            doubt = replace(labelled, doubt=_WHOSE_ERROR)
            return _turned(labelled, after) if is_chance else doubt
        return _turned(labelled, between)

    def _is_earlier(self, label: int, between: Sequence[str]) -> bool:
        """Whether a label is that of an earlier number: "prior", "confidence before"."""
        around = [self.tokens.text(label - 1), *between]
        return not _EARLIER.isdisjoint(around)

    def _named_after(self, quantity: Quantity, reading: Reading) -> Reading | None:
        """A quantity before "sure", "chance" and the like, in the same clause."""
        if quantity.spelled and quantity.scale is None:
            return None
        clause = self._clause_after(quantity.stop)
        near = [text for text in clause if text not in _HEDGES][:2]
        named = replace(reading, strength=Strength.NAMED)
        if clause[:1] in (["less"], ["more"]):  # 30% less sure than before
            is_change = not (_SURE | _PROBABLE | _UNSURE).isdisjoint(near)
            return replace(named, doubt=CHANGE) if is_change else None
        if near[:1] == ["not"] and not _SURE.isdisjoint(near):  # 100% not sure
            return replace(named, doubt=_NEGATED)
        if any(text in _UNSURE for text in near):
            return replace(named, value=(named.scale or 1.0) - named.value)
        if any(text in _PROBABLE for text in near):
            turned = _turned(named, clause)
            unclear = turned == named and self._is_about_error(quantity)
            return replace(named, doubt=_WHOSE_ERROR) if unclear else turned
        if any(text in _SURE for text in near):
            wrong = _says_wrong(clause, _WRONG | _NOT_TRUE)
            if not wrong and self._is_of_others(quantity):
                return replace(named, doubt=_NOT_NOW)
            return replace(named, doubt=_WHOSE_ERROR) if wrong else named
        return None

    def _is_of_others(self, quantity: Quantity) -> bool:
        """Whether "sure" is said of a past time, or of others than the speaker."""
        i = self._before_hedges(quantity.start)
        copula = self.tokens.text(i)
        if copula == "be":
            return self.tokens.texts(i - 2, i) in (["used", "to"], ["me", "to"])
        if copula not in _COPULAS:
            return copula in _PAST | {"you", "they", "he", "she"}
        subject = self.tokens.text(i - 1)
        at_start = subject in SENTENCE_ENDS
        return copula in _PAST or not (subject in _SPEAKERS or at_start)

    def _on_named_scale(self, quantity: Quantity) -> bool:
        near = self.tokens[max(quantity.start - 8, 0) : quantity.stop + 4]
        return quantity.scale is not None and any(
            token.kind == "scale" for token in near
        )

    def _unnamed(self, quantity: Quantity, reading: Reading) -> Reading | None:
        """A quantity of which nothing says that it is a confidence."""
        after = self.tokens.text(quantity.stop)
        if quantity.spelled and not quantity.is_percentage and quantity.scale != 10.0:
            return None
        if quantity.scale is None:
            is_fraction = quantity.has_point and 0.0 <= quantity.value <= 1.0
            is_variable = self._is_variable(self._before_hedges(quantity.start))
            if is_variable or not is_fraction:  # p < 0.05
                return None
            reading = replace(reading, scale=1.0)
        strength = Strength.PERCENTAGE if quantity.is_percentage else Strength.NUMBER
        reading = replace(reading, strength=strength)
        clause = self._clause_after(quantity.stop)
        if self._is_about_error(quantity) or _says_wrong(clause, _WRONG):
            return replace(reading, doubt=_WHOSE_ERROR)
        if not _INTERVALS.isdisjoint(self._sentence_before(quantity.start)):
            return replace(reading, doubt=_OF_INTERVAL)
        if self.tokens.text(self._before_hedges(quantity.start)) == "by":
            return replace(reading, doubt=_PART_OF_ANSWER)  # it grew by 90%
        if after == "of":
            of_what = self.tokens.texts(quantity.stop + 1, quantity.stop + 3)
            return reading if of_what == ["the", "time"] else None
        if self.tokens.is_word(quantity.stop) and after not in _FOLLOWERS:
            return replace(reading, doubt=_PART_OF_ANSWER)
        return reading

    def _is_answer(self, quantity: Quantity) -> bool:
        """Whether the quantity is what was asked for: "the answer is 25%"."""
        i = self._before_hedges(quantity.start)
        if self.tokens.text(i) not in _SEPARATORS | _COPULAS:
            return False
        subject = self.tokens.text(i - 1)
        if subject in _ANSWERS:
            return True
        return self.tokens.text(i) != ":" and subject not in _PRONOUNS

    # Words

    def _find_words(self, numbers: set[int]) -> list[Reading]:
        """Words of the table, and levels after a label: "Confidence: high".

        Not those of a number that ends just before, such as "90% sure", and of
        questions.
        """
        readings = []
        i = self._end_of_filler()
        while i < len(self.tokens):
            labelled = self._follows_label(i) or self._is_level_alone(i)
            size, value = self.table.match(self.tokens, i, level=labelled)
            if size and numbers.isdisjoint(range(i - 1, i + 1)) and self._is_told(i):
                reading = self._word_at(i, size, value, labelled=labelled)
                readings += [] if reading is None else [reading]
            i += max(size, 1)
        return readings

    def _word_at(
        self, start: int, size: int, value: float, *, labelled: bool
    ) -> Reading | None:
        before = self.tokens.text(start - 1)
        after = self.tokens.text(start + size)
        if before in _COMPARED:
            return None
        is_verb = after == "to" and before in ("is", "be")
        if is_verb and not labelled:  # possible to, be sure to
            return None
        strength = Strength.WORD
        if labelled:
            strength = Strength.WORD_OF_FIELD
        elif {"i", "am", "feel"} & {*self.tokens.texts(max(start - 3, 0), start)}:
            strength = Strength.WORD_OF_SPEAKER
        if self._is_attribute(start, size):
            return None
        reading = Reading(value, 1.0, strength, start)
        if (
            after == "ish"
            or before in _DEGREES
            or self.tokens.texts(start - 2, start) in _KINDS_OF
        ):
            return replace(reading, value=np.nan, doubt=_OF_DEGREE)
        if labelled and not _UNSURE.isdisjoint(self.tokens.texts(start - 4, start)):
            return replace(reading, value=np.nan, doubt=_NEGATED)  # Uncertainty: low
        if self._is_negated(start) or after == "not":  # probably not
            return replace(reading, value=np.nan, doubt=_NEGATED)
        clause = self._clause_after(start + size)
        if not labelled and _says_wrong(clause, _MISTAKES):  # sure that it is wrong
            return replace(reading, value=np.nan, doubt=_WHOSE_ERROR)
        if self._follows_range(start):
            return replace(reading, value=np.nan, doubt=_SEVERAL)
        second = start + size + (after in ("-", "to", "/", "or"))
        if labelled and self.table.match(self.tokens, second, level=True)[0]:
            return replace(reading, value=np.nan, doubt=_SEVERAL)
        return reading

    def _is_attribute(self, start: int, size: int) -> bool:
        """Whether a word is about what follows it: "certain animals"."""
        if self.tokens.texts(start, start + size) not in (["certain"], ["possible"]):
            return False
        before = self.tokens.text(start - 1)
        is_told = before in _COPULAS | {"am", "be", "feel", "being"}
        after = self.tokens.text(start + size)
        has_noun = self.tokens.is_word(start + size) and after not in _FOLLOWERS
        return has_noun and not is_told

    def _follows_range(self, start: int) -> bool:
        """Whether a level joins this one from before: "medium to high confidence"."""
        joint = self.tokens.text(start - 1)
        level = (self.tokens.text(start - 2),)
        return joint in ("to", "-", "/", "or") and level in self.table.levels

    def _follows_label(self, start: int) -> bool:
        """Whether "Confidence:" or "my confidence in this is" comes just before."""
        link = self.tokens.text(start - 1)
        if link not in _SEPARATORS | {"is", "\n", "level", "-"}:
            return False
        for k in range(start - 1, max(start - 12, -1), -1):
            if self.tokens.text(k) in LABELS:
                return True
            if self.tokens.text(k) in (".", "!", "?", ";", ","):
                return False
        return False

    def _is_level_alone(self, start: int) -> bool:
        """Whether the reply is a level from here on, and nothing else: "Very high."."""
        size, _ = self.table.match(self.tokens, start, level=True)
        around = self.tokens[:start] + self.tokens[start + size :]
        return size > 0 and all(token.kind == "sign" for token in around)

    def _end_of_filler(self) -> int:
        """Where a reply begins behind "Sure!" or "Yes, certainly."; 0 if it has no
        filler.
        """
        i = 0
        while self.tokens.text(i) in _GREETINGS:
            i += 1
        if self.tokens.text(i) not in _FILLERS:
            return 0
        stop = self.tokens.skip(i + 1, "thing")
        is_apart = self.tokens.text(stop) in ("!", ",", ".", ":", "-", "\n")
        has_more = any(token.kind != "sign" for token in self.tokens[stop:])
        return stop if is_apart and has_more else 0

    # Surroundings

    def _before_hedges(self, start: int) -> int:
        """The last position before `start` that is no hedge ("about", "at least")."""
        i = start - 1
        while i >= 0 and self.tokens.text(i) in _HEDGES | {"between", "from"}:
            i -= 1
        return i

    def _clause_after(self, start: int) -> list[str]:
        """The texts from `start` to the end of the clause."""
        clause: list[str] = []
        for token in self.tokens[start : start + _SENTENCE_REACH]:
            if token.text in _CLAUSE_ENDS:
                break
            clause.append(token.text)
        return clause

    def _event_before(self, label: int) -> Sequence[str]:
        """What a probability is of: "error probability", "wrong with probability"."""
        stop = label - 1 if self.tokens.text(label - 1) == "with" else label
        if stop < 1 or self.tokens.text(stop - 1) not in _WRONG:
            return ()
        return self.tokens.texts(max(stop - 3, 0), stop)

    def _is_about_error(self, quantity: Quantity) -> bool:
        """Whether the sentence speaks of an error before: "I could be wrong (20%)"."""
        return _says_wrong(self._sentence_before(quantity.start), _WRONG)

    def _sentence_before(self, stop: int) -> list[str]:
        """The texts of the sentence before `stop`."""
        texts = self.tokens.texts(stop - _SENTENCE_REACH, stop)
        ends = [i for i, text in enumerate(texts) if text in SENTENCE_ENDS]
        return texts[ends[-1] + 1 :] if ends else texts

    def _is_variable(self, i: int) -> bool:
        """Whether there is a single letter, as in "x = 0.5"."""
        text = self.tokens.text(i)
        return len(text) == 1 and text.isalpha()

    def _has_beside(self, quantity: Quantity, words: frozenset[str]) -> bool:
        """Whether one of the words is near: "95% confidence interval", "3:1 odds"."""
        around = [
            *self.tokens.texts(quantity.start - 3, quantity.start),
            *self.tokens.texts(quantity.stop, quantity.stop + 3),
        ]
        return not words.isdisjoint(around)

    def _is_revised(self, stated: Reading, candidates: Sequence[Reading]) -> bool:
        """Whether a weaker number later on replaces it: "90% sure, but now 40%"."""
        return any(
            candidate.start > stated.start
            and candidate.strength >= Strength.NUMBER
            and candidate.value != stated.value
            and self._is_revision(candidate.start)
            for candidate in candidates
        )

    def _is_negated(self, start: int) -> bool:
        """Whether "not" or "if" comes shortly before, in the same clause."""
        for i in range(start - 1, max(start - 1 - _NEGATION_REACH, -1), -1):
            text = self.tokens.text(i)
            if text in _CLAUSE_ENDS:
                return False
            if text in _NEGATIONS or self.tokens.texts(i - 1, i + 1) == ["far", "from"]:
                return True
        return False

    def _is_told(self, start: int) -> bool:
        """Whether the sentence is no question."""
        texts = (token.text for token in self.tokens[start:])
        return next((text for text in texts if text in SENTENCE_ENDS), "") != "?"

    def _is_revision(self, start: int) -> bool:
        """Whether the sentence says so before `start`: "now I am", "final"."""
        for i in range(start - 1, max(start - 9, -1), -1):
            if self.tokens.text(i) in SENTENCE_ENDS:
                return False
            if self.tokens.text(i) in _REVISIONS:
                return True
        return False


def _strongest_doubt(doubts: Sequence[Reading]) -> Reading:
    if not doubts:
        return NO_STATEMENT
    strongest = max(doubts, key=lambda doubt: doubt.strength)
    alike = [doubt for doubt in doubts if doubt.doubt == _PART_OF_ANSWER]
    several = strongest in alike and len(alike) > 1
    return replace(strongest, doubt=_SEVERAL) if several else strongest


def _turned(reading: Reading, texts: Sequence[str]) -> Reading:
    """The confidence of being right, where the probability of being wrong is stated."""
    if _says_wrong(texts, _NOT_TRUE):
        return replace(reading, doubt=_WHOSE_ERROR)
    if not _says_wrong(texts, _WRONG):
        return reading
    scale = reading.scale
    if scale is None:
        scale = 1.0 if reading.value <= 1.0 else 100.0
    return replace(reading, value=scale - reading.value, scale=scale)


def _says_wrong(texts: Sequence[str], words: frozenset[str]) -> bool:
    """Whether one of the words occurs without a "not" before it, or its opposite
    with one.
    """
    for i, text in enumerate(texts):
        is_negated = "not" in texts[max(i - 2, 0) : i]
        if (_OPPOSITES.get(text) if is_negated else text) in words:
            return True
    return False


def _checked(reading: Reading) -> Reading:
    """A reading on [0, 1], or one that names no scale; a doubt outside of it."""
    if reading.doubt:
        return replace(reading, value=np.nan)
    if reading.value < 0.0 or (reading.scale or np.inf) < reading.value:
        return replace(reading, value=np.nan, doubt=BEYOND)
    if reading.scale is None:
        return reading
    unclear = reading.has_point and 0.0 < reading.value < 1.0 and reading.scale >= 5.0
    if unclear and not reading.is_percentage:  # 0.85 on a scale to 100
        return replace(reading, value=np.nan, doubt=_OTHER_SCALE)
    return replace(reading, value=reading.value / reading.scale, scale=1.0)

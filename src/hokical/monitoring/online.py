"""`OnlineSets`: prediction sets whose coverage is kept by feedback."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from hokical._core import checks, reading, storage
from hokical._core.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    to_host,
    to_input_library,
)
from hokical.calibrators import Calibrator
from hokical.calibrators.predictor import input_of
from hokical.guarantees.bounds import check_chance
from hokical.guarantees.scores import confidence_log_odds
from hokical.guarantees.sets import PredictionSets, SetOptions
from hokical.monitoring.saved import SavedStream
from hokical.monitoring.state import (
    as_ids,
    check_ids,
    close_ids,
    drop_oldest,
    refuse_repeated,
)

# Steps, rate and share are tuned on ten classes with labels 200 rows late: steady,
# drifting and after jumps.
#: How far each tracker moves its threshold for a miss, in log-odds.
_STEPS = np.array([0.01, 0.03, 0.1])
#: How fast the weights of trackers follow their loss.
_RATE = 0.3
#: The share of the weight that is dealt out again with each label.
_RENEWED = 0.01
#: Misses beyond what is allowed at which sets hold every class.
_MAX_DEBT = 100.0
#: Misses fewer than allowed that can be saved up.
_MAX_SAVED = 20.0
#: Labels of which the recent coverage is shown.
_RECENT = 1000
#: The largest log-odds that a score may have.
_MAX_ODDS = 40.0


@dataclass(frozen=True)
class OnlineStatus:
    """What `OnlineSets.status` returns, which says what is what."""

    coverage: float
    n: int
    covered: float
    recent: float
    threshold: float
    most_missed: float
    n_waiting: int

    def __str__(self) -> str:
        goal = f"the goal is {self.coverage:.4g}, {self.n_waiting:,} sets wait"
        if not self.n:
            return f"no labels yet; {goal}"
        covered = f"{self.covered:.1%} of {self.n:,} labels covered"
        return f"{covered}, {self.recent:.1%} of the newest; {goal}"


@storage.storable("online-sets")
@dataclass(eq=False)
class OnlineState:
    """Thresholds (3,) of the trackers as log-odds against a class, their weights, what
    waits.

    A waiting row has the log-odds (3 + classes,) of the trackers' thresholds and then
    against each class, and whether each class was in its set.
    """

    coverage: float
    max_waiting: int
    stamp: str
    thresholds: Annotated[
        FloatArray, checks.ArrayOf((_STEPS.size,), -_MAX_ODDS, _MAX_ODDS)
    ]
    weights: Annotated[FloatArray, checks.ArrayOf((_STEPS.size,), 0.0, 1.0)]
    debt: checks.Coefficient = 0.0
    n: int = 0
    n_missed: int = 0
    most_waiting: int = 0
    recent: list[bool] = field(default_factory=list)
    rows: dict[str, tuple[FloatArray, BoolArray]] = field(default_factory=dict)
    labelled: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_chance("coverage", self.coverage)
        self.max_waiting = checks.check_count("max_waiting", self.max_waiting)
        for name in ("n", "n_missed", "most_waiting"):
            checks.check_count(name, getattr(self, name), least=0)
        for name, kind in (("recent", list), ("rows", dict), ("labelled", dict)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"`{name}` must be a {kind.__name__}.")
        self.rows = {key: _read_row(*row) for key, row in self.rows.items()}

    def to_stored(self) -> dict[str, Any]:
        rows = {
            key: [storage.pack_array(odds), storage.pack_array(inside.astype(np.int8))]
            for key, (odds, inside) in self.rows.items()
        }
        return vars(self) | {"rows": rows}

    @property
    def allowed(self) -> float:
        """The share of misses that is aimed at now: less, the more were missed
        before.
        """
        return (1.0 - self.coverage) * (1.0 - self.debt / _MAX_DEBT)

    @property
    def threshold(self) -> float:
        """The largest log-odds against a class of a set; inf where every class is
        needed.
        """
        return float(self.weights @ self.thresholds) if self.allowed > 0.0 else math.inf

    def add(self, odds: FloatArray, covered: bool, label: int) -> None:
        """Count a set's label: move every tracker, and weigh them by the loss of a
        quantile.
        """
        self.n = self.n + 1
        self.n_missed = self.n_missed + (not covered)
        debt = self.debt + (not covered) - (1.0 - self.coverage)
        self.debt = max(debt, -_MAX_SAVED)
        self.recent = [*self.recent[1 - _RECENT :], covered]
        share = max(self.allowed, 0.0)
        used = odds[: _STEPS.size]
        score = float(odds[_STEPS.size + label])
        missed = score > used
        loss = np.where(missed, (1.0 - share) * (score - used), share * (used - score))
        weights = self.weights * np.exp(-_RATE * (loss - loss.min()))
        self.weights = (
            1.0 - _RENEWED
        ) * weights / weights.sum() + _RENEWED / weights.size
        thresholds = self.thresholds + _STEPS * (missed - share)
        self.thresholds = np.clip(thresholds, -_MAX_ODDS, _MAX_ODDS)


class OnlineSets(SavedStream):
    """Prediction sets whose coverage is kept by feedback, whatever the stream does.

    The threshold starts where `certify` puts it and moves with every label that
    arrives, late and in any order: adaptive conformal inference with three step sizes,
    weighed by how well each did (Gibbs and Candes, 2021 and 2024). Where sets have
    missed more than they may, fewer misses are aimed at; 100 misses beyond that, sets
    hold every class. So of any n labels that came, at most (1 - coverage) n + 100 + w
    were missed, where w sets waited for a label at once at most: for any sequence of
    rows and labels, without a distribution. Nothing is said of sets whose label never
    comes, nor of a part of the stream. All methods may be called from several threads.

    Parameters
    ----------
    calibrator : fitted Calibrator, after `certify`
    coverage : float
        The share of sets that is to contain the true class, in the long run.
    max_waiting : int
        Sets that may wait for a label, with a number for each class; beyond it the
        oldest are dropped.

    Examples
    --------
    >>> from hokical import make
    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (logits, labels) = demo_logits()
    >>> cal = make("temps").fit(val_logits[::2], val_labels[::2])
    >>> online = OnlineSets(
    ...     cal.certify(val_logits[1::2], val_labels[1::2]), coverage=0.98
    ... )
    >>> for first in range(0, 10_000, 100):  # the labels of a day come in the evening
    ...     rows = range(first, first + 100)
    ...     sets = online.predict_set(logits[rows], ids=rows)
    ...     _ = online.add_labels(rows, labels[rows])
    >>> print(online.status())
    98.0% of 10,000 labels covered, 98.1% of the newest; the goal is 0.98, 0 sets wait
    """

    kind: ClassVar[str] = "OnlineSets"

    def __init__(
        self,
        calibrator: Calibrator,
        coverage: float = 0.9,
        *,
        max_waiting: int = 10_000,
    ) -> None:
        if not isinstance(calibrator, Calibrator):
            raise TypeError(
                f"`calibrator` must be a fitted calibrator; got {calibrator!r}."
            )
        options = SetOptions(coverage=check_chance("coverage", coverage))
        certified = calibrator.fitted.certified_sets(options)
        if certified.certified_on == "fit":
            raise ValueError(
                "`calibrator` must be certified. Call `certify(logits, labels)` first, "
                "with rows that nothing was fitted on."
            )
        # Where nothing is proven, with every class.
        start = _against(np.clip(-certified.thresholds.values, 0.0, 1.0))[0]
        thresholds = np.full(_STEPS.size, start)
        weights = np.full(_STEPS.size, 1.0 / _STEPS.size)
        stamp = calibrator.fitted.fingerprint()
        self.calibrator = calibrator
        super().__init__(
            OnlineState(
                coverage=float(coverage),
                max_waiting=max_waiting,
                stamp=stamp,
                thresholds=thresholds,
                weights=weights,
            )
        )

    def predict_set(
        self, logits: Any, *, ids: Any, groups: Any = None
    ) -> PredictionSets:
        """Sets for logits (n, classes), which wait for their labels under the `ids`
        (n,).

        All rows of a call get the same threshold; the likeliest class is in every set.
        """
        proba = to_host(self.calibrator.predict_proba(logits, groups=groups)).astype(
            np.float64
        )
        keys = as_ids(ids, len(proba))
        odds = _against(proba)
        with self._lock:
            state = self._state
            check_ids(refuse_repeated(keys), state)
            members = odds <= state.threshold
            members[np.arange(len(proba)), proba.argmax(axis=1)] = True
            for key, row_odds, inside in zip(keys, odds, members, strict=True):
                state.rows[key] = np.append(state.thresholds, row_odds), inside
            drop_oldest(state.rows, state.max_waiting)
            state.most_waiting = max(state.most_waiting, len(state.rows))
            threshold = self.status().threshold
            n_beyond = int(_MAX_DEBT) + state.most_waiting
        guarantee = (
            f"In the long run at least {state.coverage:.4g} of the sets whose label "
            "arrives contain it, whatever the stream is: at most "
            f"{1.0 - state.coverage:.4g} n + {n_beyond:,} of any n are missed."
        )
        return PredictionSets(
            members=to_input_library(members, input_of(logits)),
            sizes=to_input_library(members.sum(axis=1), input_of(logits)),
            options=SetOptions(coverage=state.coverage),
            certified_on="held-out",
            guarantee=guarantee,
            thresholds=np.array([threshold]),
            classes=self.calibrator.class_names or None,
        )

    def add_labels(self, ids: Any, labels: Any) -> Self:
        """Add true classes (n,) of sets that wait under these `ids` (n,), in order of
        arrival.

        An id that is unknown, labelled already or given twice is refused, and then none
        counts.
        """
        keys = as_ids(ids)
        truth = reading.as_labels(
            labels,
            len(keys),
            self.calibrator.n_classes_,
            classes=self.calibrator.class_names,
        )
        with self._lock:
            state = self._state
            check_ids(refuse_repeated(keys), state, state.max_waiting)
            for key, label in zip(keys, truth.tolist(), strict=True):
                odds, inside = state.rows[key]
                state.add(odds, bool(inside[label]), label)
            close_ids(keys, state, state.max_waiting)
        return self

    def status(self) -> OnlineStatus:
        """What is known now: of `n` labels the share `covered`, of the newest 1000
        `recent`.

        `threshold` is the least probability of a class in the next set. `most_missed`
        bounds the share that is missed of these labels, whatever the stream is;
        `n_waiting` sets have no label yet. Shares without labels are NaN.
        """
        with self._lock:
            state = self._state
            n = state.n or math.nan
            n_beyond = _MAX_DEBT + state.most_waiting
            most_missed = 1.0
            if state.n:
                most_missed = min(1.0, 1.0 - state.coverage + n_beyond / n)
            return OnlineStatus(
                coverage=state.coverage,
                n=state.n,
                covered=1.0 - state.n_missed / n,
                recent=float(np.mean(state.recent)) if state.recent else math.nan,
                threshold=1.0 / (1.0 + math.exp(min(state.threshold, 700.0))),
                most_missed=most_missed,
                n_waiting=len(state.rows),
            )

    @classmethod
    def load(cls, path: storage.StrPath, calibrator: Calibrator) -> Self:
        """Sets as `save` left them; pass the calibrator that they were made with."""
        state = cls._read_state(path, OnlineState)
        if state.stamp != calibrator.fitted.fingerprint():
            raise ValueError(
                "`calibrator` must be the one that these sets were made with. Pass that "
                "one, or make new ones."
            )
        n_classes = calibrator.n_classes_
        if any(inside.size != n_classes for _, inside in state.rows.values()):
            raise storage.CalibratorFileError(
                f"{path} has sets of other classes than the {n_classes} of the "
                "calibrator. Make new ones."
            )
        online = cls.__new__(cls)
        online.calibrator = calibrator
        SavedStream.__init__(online, state)
        return online


def _read_row(odds: FloatArray, inside: AnyArray) -> tuple[FloatArray, BoolArray]:
    """A waiting row of a file: log-odds (3 + classes,) and which classes were in."""
    checks.check_array("odds", odds, (None,), -_MAX_ODDS, _MAX_ODDS)
    shape = (odds.size - _STEPS.size,)
    checks.check_array("inside", inside, shape, 0, 1, np.int8)
    return odds, inside != 0


def _against(proba: FloatArray) -> FloatArray:
    """The log-odds (...) against classes of these probabilities."""
    return np.clip(-confidence_log_odds(proba), -_MAX_ODDS, _MAX_ODDS)

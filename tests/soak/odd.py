"""Odd arguments: values of every type, and right arguments that were spoilt; what a call
with them may do.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

import hokical
from hokical import Ensemble, Gaussian, TopK, make
from tests.conftest import synthetic_logits

Generator = np.random.Generator
#: What a bad argument may raise; anything else is a fault of ours.
STATED = (TypeError, ValueError, ImportError, OSError)
#: And where names are looked up, as in a summary.
_LOOKUPS = (KeyError, IndexError)
#: Errors of these libraries are theirs: a scikit-learn model reads its own inputs.
_MODELS = ("sklearn",)
_OURS = str(Path(hokical.__file__).parent)


def odd_value(rng: Generator, folder: Path) -> Any:
    """Numbers, arrays of all shapes and types, frames, text, paths, functions, nothing."""
    n, k = int(rng.integers(0, 9)), int(rng.integers(0, 5))
    logits, labels = synthetic_logits(40, 3, seed=int(rng.integers(100)))
    values: list[Any] = [
        *_odd_scalars(),
        *_odd_containers(rng, logits, labels),
        np.zeros((n, k)),
        np.full((n, k), np.nan),
        np.full((n, k), np.inf),
        np.zeros(n),
        rng.normal(size=(n, 3)),
        rng.integers(0, 3, n),
        np.ones((n, 3), bool),
        np.array(["a"] * n),
        np.array([{}] * n, object),
        rng.normal(size=(n, 3)) + 1j,
        rng.random(n),
        logits,
        labels,
        labels[:-1],
        logits.T,
        logits.astype(np.float16),
        np.asfortranarray(logits),
        logits[:, ::-1],
        -logits[:0],
        rng.random(40),
        rng.random(40) < 0.5,
        rng.multinomial(5, [0.2, 0.3, 0.5], 40),  # votes of five annotators
        folder,
        iter([logits]),
        lambda: [(logits, labels)],
        _fitted(),
    ]
    return values[rng.integers(len(values))]


def _odd_scalars() -> list[Any]:
    return [
        *(None, True, 0, 1, -1, 3, 2**70, -(2**70), 10**400, 10**6),
        *(0.5, -0.0, 1e308, np.nan, np.inf, 1j, Decimal("0.1"), Fraction(1, 3)),
        *("", "auto", "temps", "label", "\ud800", "no/such/file", "a\x00b", b"x"),
        *(np.int8(3), np.str_("a"), np.array("a"), np.array(1.0), np.array(None)),
        *(pd.NA, pd.NaT, np.datetime64("2020-01-01"), np.timedelta64(1, "s")),
        *(object(), print, int, Ellipsis, slice(3), Gaussian(2.0), make("temps")),
    ]


def _odd_containers(rng: Generator, logits: Any, labels: Any) -> list[Any]:
    """Of Python, NumPy and pandas, and inputs of ours."""
    frame = pd.DataFrame(logits, columns=["x", "y", "z"])
    mixed = np.array([1.0, None, "a"] * 13 + [pd.NA], object)
    pairs = np.zeros(40, [("a", float), ("b", "U3")])
    order = -np.sort(-logits)
    return [
        *([], [0.5], [[1.0, 2.0], [3.0]], [[]], [None], ["a", 1, None], [10**400]),
        *({}, {"logits": [1]}, {1: 2}, {"a": logits}, (), {1, 2}, range(40)),
        *(memoryview(b"abc"), bytearray(b"abc"), [{"a": 1.0, "b": 2.0}] * 40),
        *(mixed, mixed.reshape(20, 2), pairs, np.array([Decimal(1)] * 40, object)),
        *(np.ma.masked_array([1.0, 2.0], [True, False]), np.zeros((2, 2, 2))),
        *(frame, frame.set_axis(["x", "x", "y"], axis=1), frame.astype(str)),
        *(frame.set_axis([0, "1", None], axis=1), frame.iloc[:, :0], frame[:0]),
        *(frame.set_axis(pd.MultiIndex.from_product([["a"], [1, 2, 3]]), axis=1),),
        *(frame.astype("Float64").mask(frame > 1), frame.assign(x=[{}] * 40)),
        *(frame["x"], frame["x"].set_axis(labels), pd.Series([pd.NA] * 40)),
        *(pd.Series(labels, dtype="category"), pd.Series([None, "b"] * 20)),
        *(pd.date_range("2020", periods=40), pd.Index(list("ab") * 20)),
        Ensemble([logits, logits[:, ::-1]]),
        Ensemble({"a": logits, "b": np.full((40, 3), np.nan)}),
        Ensemble(np.stack([logits, -logits]), exchangeable=True),
        TopK(order[:, :2], np.tile([0, 1], (40, 1)), 3),
    ]


@cache
def _fitted() -> Any:
    return make("uncalibrated").fit(*synthetic_logits(40, 3, seed=0))


@cache
def right_arguments() -> dict[str, Any]:
    """Right arguments, by the names of parameters."""
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(120, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    confidence = rng.random(120)
    right = rng.random(120) < confidence
    return {
        "logits": logits,
        "labels": labels,
        "y": labels,
        "X": logits,
        "x": logits,
        "confidence": confidence,
        "right": right,
        "correct": right,
        "groups": np.array(["u", "v"] * 60),
        "cluster": np.arange(120) // 2,
        "sample_weight": rng.random(120),
        "ids": np.arange(120),
        "loss": "miscoverage",
        "risk": 0.2,
        "coverage": 0.8,
        "delta": 0.2,
        "recall": 0.8,
        "costs": np.ones((3, 3)) - np.eye(3),
        "label": 1,
        "frequencies": np.array([0.2, 0.3, 0.5]),
        "path": "file.json",
        "metadata": {"a": 1},
        "covered": right,
        "name": "brier",
        "metric": "brier",
        "score": "brier",
        "unseen": "nearest",
        "proba": softmax(logits, axis=1),
        "probabilities": softmax(logits, axis=1),
        "probability": confidence,
        "outcome": right,
        "scores": logits,
        "votes": [["a", "b", None]] * 120,
        "choices": ["a", "b"],
        "samples": [["Paris", "Paris", None]] * 20,
        "answers": ["I am 90% sure", "Confidence: 7/10", ""],
        "cal": _fitted(),
        "calibrator": _fitted(),
        "source": logits,
        "data": logits,
        "hits": 3,
        "trials": 10,
        "n": 500,
        "ece": 0.1,
        "brier": 0.2,
        "n_bins": 10,
        "methods": ["temps", "uncalibrated"],
        "validation": (logits, labels),
        "test": (logits[::-1], labels[::-1]),
        "noise": Gaussian(1.0),
        "expected": confidence,
        "actual": confidence[::-1],
        "events": 20,
        "auroc": 0.8,
        "thresholds": [0.1, 0.2],
        "unlabelled": confidence,
        "edges": [0.0, 0.5, 1.0],
        "class_names": ["cat", "dog", "cow"],
        "estimator": LogisticRegression(),
        "reference": _fitted(),
    }


def spoilt(value: Any, rng: Generator) -> Any:
    """A right argument with entries, rows, columns or a type that are not."""
    if isinstance(value, Ensemble):
        return spoilt_ensemble(value, rng)
    if isinstance(value, (list, tuple)) and not np.isscalar(value[0]):
        return [*value, "odd"] if rng.random() < 0.5 else [spoilt(value[0], rng)]
    array = np.array(value, object)
    if not array.ndim or not array.size:
        return [value]
    odd = _odd_scalars()
    entry = odd[rng.integers(len(odd))]
    match int(rng.integers(8)):
        case 0:
            array[tuple(rng.integers(array.shape))] = entry
            return array
        case 1:
            array[:] = entry
            return array
        case 2:
            return array[: rng.integers(len(array))]
        case 3:
            return array.tolist()
        case 4:
            return array[..., None]
        case 5:
            return pd.DataFrame({k: [column] for k, column in enumerate(array)})
        case 6:
            return pd.Series(array.tolist(), index=rng.permutation(len(array)))
    return np.array(value)[..., ::2]


def spoilt_ensemble(ensemble: Ensemble, rng: Generator) -> Ensemble:
    """With other members, or an array of another type, among those of a fit."""
    first, *others = map(np.asarray, ensemble.members)
    odd = [
        [first],
        [first[:, :2], *(other[:, :2] for other in others)],
        [first.astype(str), *others],
        [first.astype(object), *others],
        [pd.DataFrame(member) for member in (first, *others)],
        [member * np.nan for member in (first, *others)],
        [member[:0] for member in (first, *others)],
        [first + 1j, *others],
    ]
    members = odd[rng.integers(len(odd))]
    return Ensemble(members, exchangeable=bool(rng.integers(2)))


def call_oddly(
    work: Callable[..., Any],
    name: str,
    right: Mapping[str, Any],
    rng: Generator,
    folder: Path,
) -> str:
    """A call with odd arguments among right ones, which are by name, answers, or raises
    an error that is stated and ours.
    """
    given, named = _arguments(work, right, rng, folder)
    here = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            _check_answer(name, work(*given, **named))
    except Exception as error:
        if _is_theirs(error) or _is_stated(error):
            return "refused"
        shown = ", ".join(
            [*map(_show, given), *(f"{k}={_show(v)}" for k, v in named.items())]
        )
        raise AssertionError(f"{name}({shown[:300]}) raised {error!r}") from error
    finally:
        os.chdir(here)
    return "answered"


def _show(value: object) -> str:
    return repr(value)[:100]


def _arguments(
    work: Callable[..., Any], right: Mapping[str, Any], rng: Generator, folder: Path
) -> tuple[list[Any], dict[str, Any]]:
    """Values for the parameters, of which at least one is odd."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    parameters = [
        p
        for p in inspect.signature(work).parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    attacked = rng.integers(max(len(parameters), 1))
    by_place = True
    for k, parameter in enumerate(parameters):
        is_needed = parameter.default is parameter.empty
        if not (is_needed or k == attacked or rng.random() < 0.15):
            by_place = False
            continue
        value = _argument(parameter.name, right, k == attacked, rng, folder)
        if parameter.kind is parameter.KEYWORD_ONLY or not by_place:
            named[parameter.name] = value
        else:
            given.append(value)
    return given, named


def _argument(
    name: str, right: Mapping[str, Any], attacked: bool, rng: Generator, folder: Path
) -> Any:
    if name in right and (not attacked or rng.random() < 0.3):
        return spoilt(right[name], rng) if attacked else right[name]
    return odd_value(rng, folder)


@contextlib.contextmanager
def stated_errors() -> Iterator[None]:
    """Nothing but errors of a stated kind, which are suppressed."""
    try:
        yield
    except Exception as error:
        if not (_is_theirs(error) or _is_stated(error)):
            raise


def _is_theirs(error: BaseException) -> bool:
    """Whether a model raised it, which reads its own inputs."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(
        f"/{library}/" in frame.filename for frame in frames for library in _MODELS
    )


def _is_stated(error: BaseException) -> bool:
    """Whether it is of a stated kind; not where Python or a library raised it and we
    should have looked.
    """
    if isinstance(error, (OSError, ImportError, UnicodeError)):
        return True
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_ours = last.filename.startswith(_OURS) and str(last.line).startswith("raise ")
    return is_ours and isinstance(error, (*STATED, *_LOOKUPS))


def _check_answer(name: str, answer: Any) -> None:
    """Probabilities are numbers in [0, 1], for anything that is accepted."""
    if isinstance(answer, Iterator):  # of batches, which work when they are asked for
        for each in answer:
            _check_answer(name, each)
        return
    if not name.endswith(("predict_proba", "predict_confidence")):
        return
    values = np.asarray(answer)
    assert np.isfinite(values).all(), "an answer that is no number"
    assert ((values >= 0.0) & (values <= 1.0 + 1e-9)).all(), "no probability"

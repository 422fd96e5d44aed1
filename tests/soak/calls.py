"""Attacks by arguments: anything at all to every public function, and extreme logits
to methods.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hokical import (
    Gaussian,
    Gumbel,
    TopK,
    Uniform,
    label_distribution,
    label_stability,
    load,
    make,
)
from hokical.calibrators import method_names
from hokical.guarantees import calibration_bound
from hokical.report.page import json_for_script
from tests.conftest import synthetic_logits
from tests.references import gaussian_stability, uniform_stability
from tests.soak.odd import STATED, call_oddly, right_arguments

Generator = np.random.Generator
PACKAGES = (
    "hokical",
    "hokical.metrics",
    "hokical.stability",
    "hokical.guarantees",
    "hokical.io",
    "hokical.streams",
    "hokical.monitoring",
    "hokical.dense",
    "hokical.calibrators",
    "hokical.plots",
    "hokical.report",
)
#: Not called with odd arguments: they change the whole process, or take minutes by
#: design.
_LEFT_OUT = {"threads", "register", "plan"}
#: Words of annotations that stand for data.
_DATA = {
    "Any",
    "Array",
    "ArrayLike",
    "BoolArray",
    "Callable",
    "Calibrator",
    "Estimator",
    "FloatArray",
    "IntArray",
    "Iterable",
    "Literal",
    "Location",
    "NDArray",
    "Noise",
    "None",
    "PathLike",
    "Sequence",
    "StrPath",
    "What",
}
_METHODS = ("fit", "predict", "predict_confidence", "predict_proba", "predict_interval")


def public_functions() -> dict[str, Callable[..., Any]]:
    """Every public function and class by its full name."""
    found = {}
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and name not in _LEFT_OUT and _takes_data(thing):
                found[f"{package}.{name}"] = thing
    return found


def _takes_data(thing: Any) -> bool:
    """Whether it is called with numbers, arrays, names and calibrators, not with
    parts of ours.
    """
    if isinstance(thing, type) and (
        issubclass(thing, Exception) or is_dataclass(thing)
    ):
        return False
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:
        return False
    needed = [str(p.annotation) for p in parameters if p.default is p.empty]
    return all(set(re.findall(r"\b[A-Z]\w+", kind)) <= _DATA for kind in needed)


def odd_arguments(rng: Generator, folder: Path) -> str:
    """A public function with odd arguments answers, or raises an error that is
    stated.
    """
    known = public_functions()
    name = sorted(known)[rng.integers(len(known))]
    return call_oddly(known[name], name, right_arguments(), rng, folder)


def odd_arguments_to_methods(rng: Generator, folder: Path) -> str:
    """The same for the methods of every calibrator, fitted and not."""
    logits, labels = synthetic_logits(60, 3, seed=int(rng.integers(100)))
    method = str(rng.choice([name for name in method_names(2) if "odir" not in name]))
    calibrator = make(method)
    with contextlib.suppress(*STATED):
        calibrator.fit(logits, labels)
    name = str(rng.choice(_METHODS))
    right = {"logits": logits, "labels": labels} if rng.random() < 0.5 else {}
    work = getattr(calibrator, name)
    return call_oddly(work, f"{method}.{name}", right, rng, folder)


def extreme_logits(rng: Generator, folder: Path) -> str:
    """Any finite logits, ties, masked classes and spreads above 1e308 give
    probabilities.
    """
    n_classes = int(rng.choice([2, 3, 10, 100]))
    logits, labels = _extreme_rows(rng, int(rng.integers(20, 200)), n_classes)
    names = [name for name in method_names(2) if "odir" not in name]
    calibrator = make(str(rng.choice(names)))
    try:
        calibrator.fit(logits, labels)
    except ValueError:
        return "refused"
    rows = _extreme_rows(rng, 50, n_classes)[0]
    confidence, proba = (
        calibrator.predict_confidence(rows),
        calibrator.predict_proba(rows),
    )
    for answer in (confidence, proba):
        assert np.isfinite(answer).all(), f"{calibrator.name} answers no numbers"
        assert ((answer >= 0.0) & (answer <= 1.0 + 1e-9)).all(), (
            f"{calibrator.name}: beyond [0, 1]"
        )
    assert np.allclose(proba.sum(axis=1), 1.0, atol=1e-9), (
        f"{calibrator.name}: sums other than 1"
    )
    calibrator.save(folder / "c.json")
    again = load(folder / "c.json").predict_confidence(rows)
    assert np.allclose(again, confidence, rtol=1e-12, atol=0.0), (
        f"{calibrator.name}: saved other"
    )
    return "probabilities"


def _extreme_rows(rng: Generator, n: int, n_classes: int) -> tuple[Any, Any]:
    scale = (
        10.0 ** rng.uniform(-300, 307.9)
        if rng.random() < 0.3
        else 10.0 ** rng.uniform(-3, 4)
    )
    logits = scale * rng.uniform(-1.0, 1.0, (n, n_classes))
    labels = np.where(
        rng.random(n) < 0.7, logits.argmax(axis=1), rng.integers(n_classes, size=n)
    )
    some = rng.random((n, n_classes)) < 0.1
    if rng.random() < 0.3:
        logits[some] = 0.0
    if rng.random() < 0.3:
        some[np.arange(n), labels] = False
        logits[some] = -np.inf
    if rng.random() < 0.2:
        logits[: n // 2] = logits[0, 0] if np.isfinite(logits[0, 0]) else 1.0
    return logits.astype(
        np.float32
    ) if scale < 1e30 and rng.random() < 0.3 else logits, labels


def stability_against_twins(rng: Generator, folder: Path) -> str:
    """Exact stability equals slow quadrature."""
    n_classes, scale = int(rng.choice([2, 3, 10])), float(10.0 ** rng.uniform(-1, 1))
    rows = rng.normal(size=(3, n_classes)) * 10.0 ** rng.uniform(-1, 1)
    for noise, slow, tolerance in (
        (Gaussian(scale), gaussian_stability, 1e-6),
        (Uniform(-scale, scale), lambda z, s: uniform_stability(z, 2.0 * s), 1e-4),
    ):
        fast = label_stability(rows, noise)
        assert np.allclose(fast, slow(rows, scale), rtol=0.0, atol=tolerance), (
            f"{noise!r}"
        )
    shares = label_distribution(rows, Gumbel(scale))
    softmax = np.exp((rows - rows.max(axis=1, keepdims=True)) / scale)
    softmax /= softmax.sum(axis=1, keepdims=True)
    assert np.allclose(shares, softmax, atol=1e-9), "Gumbel noise is the softmax"
    return "equal"


def bounds_hold(rng: Generator, folder: Path) -> str:
    """The bound lies above the true calibration error at least as often as it says."""
    n, n_bins, delta, trials = 500, 15, 0.1, 60
    gap, failures = float(rng.uniform(0.0, 0.3)), 0
    for _ in range(trials):
        confidence = rng.uniform(0.35, 1.0, n)
        correct = rng.random(n) < confidence - gap
        bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
        sums = np.bincount(bins, confidence - correct, n_bins)
        bound = calibration_bound(float(np.abs(sums).sum() / n), n, n_bins, delta)
        failures += bound < gap
    assert failures <= delta * trials + 8, f"{failures} of {trials} bounds failed"
    return "bounds held"


def hostile_names(rng: Generator, folder: Path) -> str:
    """Names reach HTML as nothing but text."""
    evil = '</script><script>alert(1)</script>"\n} 1\n' + chr(
        int(rng.integers(1, 0x2FF))
    )
    script = json_for_script({"name": evil, evil: [evil]})
    assert not set("<>&\n") & set(script), "a name that HTML reads"
    assert json.loads(script) == {"name": evil, evil: [evil]}, "another name"
    return "only text"


def odd_top_k(rng: Generator, folder: Path) -> str:
    """Best logits that do not fit together are refused in words."""
    n, k, n_classes = (int(rng.integers(0, 6)) for _ in range(3))
    values, indices = (
        rng.normal(size=(n, k)),
        rng.integers(-2, 8, (n, int(rng.integers(0, 6)))),
    )
    came = set()
    for make_input in (
        lambda: TopK(values, indices, n_classes),
        lambda: TopK(-np.sort(-values), indices, n_classes),
    ):
        try:
            given = make_input()
            make("temps").fit(given, rng.integers(0, max(n_classes, 1), n))
            came.add("answered")
        except STATED:
            came.add("refused")
    return max(came)


ATTACKS = {
    "odd arguments, functions": odd_arguments,
    "odd arguments, methods": odd_arguments_to_methods,
    "odd top-k": odd_top_k,
    "extreme logits": extreme_logits,
    "stability against twins": stability_against_twins,
    "bounds hold": bounds_hold,
    "hostile names": hostile_names,
}

"""The same row gets the same bits: whatever came with it, lies around it or ran before
it.

A row's answer may depend on its own numbers, on the number of classes and on the type.
It may not depend on the batch, the memory order, the number of threads, or which
kernels are compiled.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from hokical import TopK, make, metrics, threads
from hokical._core.special import erfcx
from hokical.rules import as_logits
from tests.conftest import synthetic_logits
from tests.fitted import fingerprint
from tests.libraries import answers
from tests.rules.making import FAMILIES, NAMES, make_case

CLASSES = (2, 3, 10, 20, 40, 100, 900)
BATCHES = (1, 3, 7, 33)
N_ROWS = 37
#: Random rules by number of classes; those of `make test` have one, but for the
#: default.
SEEDS = {2: 1, 3: 1, 10: 4, 20: 2, 40: 2, 100: 1, 900: 2}
BINARY = ("platt", "beta", "venn_abers")
#: Sums are taken by columns up to 32 classes, and in pairs beyond; kernels answer from
#: 17 on.
OFTEN = dict.fromkeys(("auto", "adaptive"), (2, 3, 10, 20, 40, 100))
CASES = [
    pytest.param(
        name,
        size,
        marks=[] if size in OFTEN.get(name, (2, 100)) else [pytest.mark.slow],
    )
    for size in CLASSES
    for name in NAMES
    if name not in BINARY or size == 2
]


def arrangements(rows: np.ndarray) -> dict[str, np.ndarray]:
    """The same rows, otherwise in memory."""
    wide = np.zeros((2 * rows.shape[0], 3 * rows.shape[1]), rows.dtype)
    wide[::2, ::3] = rows
    backwards = np.ascontiguousarray(rows[::-1])
    return {
        "Fortran": np.asfortranarray(rows),
        "strided": wide[::2, ::3],
        "turned": backwards[::-1],
    }


def assert_same(
    found: list[np.ndarray], whole: list[np.ndarray], where: slice, how: str
) -> None:
    for part, all_rows in zip(found, whole, strict=True):
        np.testing.assert_array_equal(part, all_rows[where], err_msg=how)


@pytest.mark.sample(6)
@pytest.mark.parametrize(("name", "n_classes"), CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_answers_of_every_rule(name: str, n_classes: int, dtype: type) -> None:
    for seed in range(SEEDS[n_classes]):
        rule, rows = make_case(name, seed, n_classes, N_ROWS)
        most = 1e4 if dtype is np.float16 else 1e30
        rows = np.where(np.isfinite(rows), np.clip(rows, -most, most), rows).astype(
            dtype
        )
        with threads(2):
            whole = answers(rule, rows)
        every = slice(None)
        for how, given in arrangements(rows).items():
            assert_same(answers(rule, given), whole, every, how)
        many = np.concatenate([rows] * (1 + 300_000 // rows.size))
        assert_same(
            [part[:N_ROWS] for part in answers(rule, many)], whole, every, "many"
        )
        calm = slice(8, None)  # without a masked class anywhere
        assert_same(answers(rule, rows[calm]), whole, calm, "no masked class")
        with threads(1):
            logits = as_logits(rows)
            assert_same(answers(rule, logits), whole, every, "one thread")
            for size in BATCHES:
                for start in range(0, N_ROWS, size):
                    some = slice(start, start + size)
                    assert_same(
                        answers(rule, logits.take(some)),
                        whole,
                        some,
                        f"batch of {size}",
                    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n_classes", [2, 10, 100, 900])
def test_stability_and_distribution(family: type, n_classes: int) -> None:
    rows = 3.0 * np.random.default_rng(n_classes).normal(size=(N_ROWS, n_classes))
    rows[5, 0] = -np.inf
    for width in (0.3, 8.0):
        noise = family.of_width(width)
        for work in (noise.stability, noise.distribution):
            whole = work(as_logits(rows))
            for size in BATCHES:
                for i in range(0, N_ROWS, size):
                    part = work(as_logits(rows[i : i + size]))
                    np.testing.assert_array_equal(part, whole[i : i + size])
            for given in arrangements(rows).values():
                np.testing.assert_array_equal(work(as_logits(given)), whole)


def test_few_and_many_elements_of_a_special_function() -> None:
    y = np.abs(5.0 * np.random.default_rng(0).normal(size=20_000))
    whole = erfcx(y)
    for size in (1, 2, 3, 100, 256, 257, 9000):
        for start in range(0, 20_000, 7 * size):
            some = slice(start, start + size)
            np.testing.assert_array_equal(erfcx(y[some]), whole[some])


METHODS = (
    "temps",
    "vecs",
    "ets",
    "structured",
    "adaptive",
    "irm",
    "irova_ts",
    "hoki",
    "auto",
)


@pytest.mark.parametrize("keep_rest", [True, False])
@pytest.mark.parametrize(("n_classes", "k"), [(12, 3), (40, 10), (40, 20), (100, 40)])
@pytest.mark.parametrize("name", ["temps", "ets", "adaptive"])
def test_the_best_classes_alone(
    name: str, n_classes: int, k: int, keep_rest: bool
) -> None:
    rule, rows = make_case(name, 0, n_classes, N_ROWS)
    rows = np.where(np.isfinite(rows), np.clip(rows, -1e30, 1e30), rows)
    best = TopK.from_logits(rows, k, keep_rest=keep_rest)
    whole = answers(rule, best)
    for some in (slice(0, 1), slice(3, 4), slice(8, 10), slice(9, 37)):
        fresh = TopK.from_logits(rows[some], k, keep_rest=keep_rest)
        assert_same(answers(rule, fresh), whole, some, "fresh")
        assert_same(answers(rule, best[some]), whole, some, "taken")


@pytest.mark.parametrize("n_classes", [3, 10, 20])
def test_rows_with_groups(n_classes: int) -> None:
    logits, labels = synthetic_logits(900, n_classes, seed=3)
    site = np.arange(900) % 3
    labels = np.where((site == 1) & (np.arange(900) % 2 == 0), 0, labels)
    cal = make("auto").fit(logits, labels, groups={"site": site})
    assert cal.groups_
    logits[5, 1:] = -np.inf
    whole = cal.predict_proba(logits, groups={"site": site})
    for some in (slice(0, 1), slice(5, 6), slice(6, 8), slice(6, 900)):
        for given in (logits[some], np.asfortranarray(logits[some])):
            found = cal.predict_proba(given, groups={"site": site[some]})
            np.testing.assert_array_equal(found, whole[some])


@pytest.mark.sample(6)
@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("n_classes", [20, 40])
@pytest.mark.parametrize("method", METHODS)
def test_a_fit_and_its_repetition(method: str, n_classes: int) -> None:
    logits, labels = synthetic_logits(300, n_classes, seed=3)
    with threads(2):
        first = make(method).fit(logits, labels)
    with threads(1):
        again = make(method).fit(np.asfortranarray(logits), labels)
    assert fingerprint(again) == fingerprint(first)
    np.testing.assert_array_equal(
        again.predict_proba(logits), first.predict_proba(logits)
    )


HISTORY = """
import hashlib, json, sys, warnings
import numpy as np
from hokical import Gaussian, Gumbel, label_distribution, label_stability, make

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)


def examples(n, n_classes):
    logits = 3.0 * rng.normal(size=(n, n_classes))
    return logits, np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)


def found():
    kept = {}
    for n_classes, (logits, labels) in data.items():
        for method in ("temps", "hoki", "adaptive", "auto"):
            cal = make(method).fit(logits, labels)
            kept[f"{method} {n_classes}"] = cal.fitted.fingerprint()
            kept[f"{method} {n_classes} rows"] = digest(cal.predict_proba(logits[:9]))
        for noise in (Gaussian(1.5), Gumbel(1.5)):
            for work in (label_stability, label_distribution):
                kept[f"{work.__name__} {noise} {n_classes}"] = digest(work(logits[:9], noise))
    return kept


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


data = {size: examples(400, size) for size in (2, 10, 40)}
many = [examples(*shape) for shape in ((150_000, 10), (1200, 1000))]
before = found()
for logits, labels in many:
    for method in ("temps", "hoki"):
        make(method).fit(logits, labels).predict_proba(logits)
    label_distribution(logits, Gaussian(1.0))
after = found()
print(json.dumps([key for key in before if before[key] != after[key]]))
"""


@pytest.mark.slow
def test_what_ran_before_changes_nothing() -> None:
    """Calls with more than a million logits, between two fits and answers of a fresh
    process.
    """
    done = subprocess.run(
        [sys.executable, "-c", HISTORY], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


OF_CONFIDENCE = (
    "ece",
    "debiased_ece",
    "brier",
    "log_loss",
    "smooth_ece",
    "auroc",
    "aurc",
)
OF_CLASSES = ("brier", "log_loss", "classwise_ece")


@pytest.mark.sample(20)
@pytest.mark.parametrize("n_classes", CLASSES)
@pytest.mark.parametrize(
    ("name", "vectors"),
    [
        *((name, False) for name in OF_CONFIDENCE),
        *((name, True) for name in OF_CLASSES),
    ],
)
def test_metrics(name: str, vectors: bool, n_classes: int) -> None:
    """Of the same rows in any memory order, with one thread and with two."""
    rng = np.random.default_rng(1)
    proba = rng.dirichlet(np.full(n_classes, 0.3), size=501)
    labels = rng.integers(n_classes, size=501)
    labels[:50] = proba[:50].argmax(axis=1)  # some are right
    metric = getattr(metrics, name)

    def value(array: np.ndarray) -> float:
        if vectors:
            return float(metric(array, labels))
        confidence = array.max(axis=1)
        return float(metric(confidence, array.argmax(axis=1) == labels))

    with threads(1):
        expected = value(proba)
    with threads(2):
        for given in (proba, *arrangements(proba).values()):
            assert value(given) == expected

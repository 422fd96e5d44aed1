"""Guarantees where data change: new groups, many classes, drift, few labels, covariate
shift.

    python paper/studies/guarantees.py groups [llm_answers.npz]
    python paper/studies/guarantees.py classes
    python paper/studies/guarantees.py online
    python paper/studies/guarantees.py labels [llm_answers.npz]
    python paper/studies/guarantees.py shift

Each prints how often a claim failed beside what it allows, and what it costs. Answers
of language models are keyed `MODEL/subject`, `MODEL/right`, `MODEL/verbal` and
`MODEL/token`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from hokical import ConfidenceCalibrator, make
from hokical.guarantees import control, density_ratios
from hokical.guarantees.sets import CertifiedSets, Conformity, SetOptions
from hokical.metrics import prediction_powered_accuracy
from hokical.monitoring import OnlineSets

SUITE = Path(__file__).parents[2] / "suite"


def groups(path: Path | None) -> None:
    """A new group: shown rate and true rate above the risk, by groups, sizes and
    differences.
    """
    print(
        "| groups | rows each | differ by | accepted | shown above 20 % | true above "
        "20 % |"
    )
    print("|---|---|---|---|---|---|")
    for n_groups in (9, 13, 50):
        for sizes in ((20, 20), (200, 200), (20, 2000)):
            for spread in (0.0, 0.3, 1.0):
                found = np.mean(
                    [_one_group(n_groups, sizes, spread, k) for k in range(60)], axis=0
                )
                rows = "-".join(map(str, dict.fromkeys(sizes)))
                print(
                    f"| {n_groups} | {rows} | {spread} |"
                    + " |".join(f" {x:.1%}" for x in found)
                )
    if path:
        _subjects(path)


def _one_group(
    n_groups: int, sizes: tuple[int, int], spread: float, seed: int
) -> list[float]:
    rng = np.random.default_rng(seed)
    each = np.exp(rng.uniform(*np.log(sizes), n_groups + 1)).round().astype(int)
    group = np.repeat(np.arange(n_groups + 1), each)
    stated = expit(rng.normal(1.5, 1.5, group.size))
    chance = expit(
        np.log(stated / (1.0 - stated)) + spread * rng.normal(size=n_groups + 1)[group]
    )
    right, old = rng.random(group.size) < chance, group < n_groups
    cal = ConfidenceCalibrator()
    score = rng.random(400)
    cal.fit(score, rng.random(400) < score)
    cal.certify(stated[old], right[old], groups=group[old])
    kept = cal.predict_or_abstain(stated[~old], risk=0.2, by="new group").accepted
    if not kept.any():
        return [0.0, 0.0, 0.0]
    return [
        kept.mean(),
        (~right[~old])[kept].mean() > 0.2,
        1.0 - chance[~old][kept].mean() > 0.2,
    ]


def models(
    path: Path, *signals: str
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Signals, whether right, and the subject of the answers of each model."""
    stored = np.load(path)
    for name in sorted({key.split("/")[0] for key in stored.files if "/" in key}):
        table = np.stack(
            [stored[f"{name}/{signal}"].astype(float) for signal in signals], axis=1
        )
        usable = ((table >= 0.0) & (table <= 1.0)).all(axis=1)
        if usable.sum() > 5000:
            right, subject = (
                stored[f"{name}/{what}"][usable] for what in ("right", "subject")
            )
            yield table[usable], right.astype(bool), subject


def _subjects(path: Path) -> None:
    """Each subject left out: fitted on half of the others' answers, certified with
    the rest.
    """
    found: dict[str, list[tuple[float, bool]]] = {"all": [], "new group": []}
    for table, right, subject in models(path, "verbal", "token"):
        half = np.random.default_rng(0).random(right.size) < 0.5
        for left_out in np.unique(subject):
            new, rest = subject == left_out, (subject != left_out) & ~half
            cal = ConfidenceCalibrator().fit(
                *(a[(subject != left_out) & half] for a in (table, right))
            )
            cal.certify(table[rest], right[rest], groups=subject[rest])
            for by, each in found.items():
                kept = cal.predict_or_abstain(table[new], risk=0.2, by=by).accepted
                wrong = (~right[new])[kept]
                each.append((kept.mean(), bool(wrong.size) and wrong.mean() > 0.2))
    for by, each in found.items():
        kept, broken = np.mean(each, axis=0)
        print(
            f"models, by={by!r}: {kept:.1%} accepted, broken in {broken:.1%} of "
            f"{len(each)}"
        )


def classes(_: Path | None) -> None:
    """Long tails: size of the sets at the same macro coverage."""
    imagenet = [
        SUITE / f"imagenet_efficientnet_lite0_{part}.npz" for part in ("val", "test")
    ]
    cases = [(100, 2000, [[path] for path in sorted(SUITE.glob("cifar100_*.npz"))])]
    cases += [(1000, 1200, [imagenet] * 2)]
    for n_classes, n, networks in cases:
        for ratio in (1, 100):
            sums: dict[str, list[list[float]]] = {}
            for seed, files in enumerate(networks):
                for name, row in _long_tail(files, n_classes, n, ratio, seed).items():
                    sums.setdefault(name, []).append(row)
            print(f"{n_classes} classes, {n} certified, frequencies {ratio}:1")
            for name, rows in sums.items():
                small, large, covered, macro, size = np.mean(rows, axis=0)
                print(
                    f"  {name:24} size {small:.2f} at macro coverage .85, {large:.2f} "
                    f"at .90; asked for .9: covered {covered:.3f}, macro {macro:.3f}, "
                    f"size {size:.2f}"
                )


def _long_tail(
    files: Any, n_classes: int, n: int, ratio: int, seed: int
) -> dict[str, list[float]]:
    stored = [np.load(path) for path in files]
    logits, labels = (
        np.concatenate(
            [each[key] for each in stored for key in each.files if what in key]
        )
        for what in ("logits", "labels")
    )
    rng = np.random.default_rng(seed)
    share = rng.permutation(np.exp(-np.linspace(0.0, np.log(ratio), n_classes)))
    share /= share.sum()
    logits = logits.astype(float) + np.log(
        share * n_classes
    )  # a classifier of that world
    part = rng.random(labels.size) < 0.5
    pool = np.flatnonzero(part)
    odds = (share / np.bincount(labels[pool], minlength=n_classes))[labels[pool]]
    rows = rng.choice(
        pool, size=min(n, pool.size // 2), replace=False, p=odds / odds.sum()
    )
    proba = softmax(
        logits / make("temps").fit(logits[rows], labels[rows]).temperature_, axis=1
    )
    known, new = -proba[rows, labels[rows]], -proba[~part]
    curves: dict[str, list[tuple[float, ...]]] = {}
    for coverage in (0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.96, 0.98):
        for name, limits in _thresholds(
            known, labels[rows], n_classes, coverage, seed
        ).items():
            members = new <= limits
            members[np.arange(len(new)), new.argmin(axis=1)] = True
            curves.setdefault(name, []).append(_averages(members, labels[~part], share))
    found = {}
    for name, curve in curves.items():
        covered, macro, size = np.array(curve).T
        order = np.argsort(macro)
        at = np.interp([0.85, 0.9], macro[order], size[order])
        found[name] = [*at, covered[3], macro[3], size[3]]
    return found


def _averages(
    members: np.ndarray, labels: np.ndarray, share: np.ndarray
) -> tuple[float, ...]:
    """Coverage, its mean over classes, and size, if classes are that frequent."""
    counts = np.bincount(labels, minlength=share.size)
    seen = counts > 0
    inside = members[np.arange(labels.size), labels]
    covered, size = (
        np.bincount(labels, each, share.size)[seen] / counts[seen]
        for each in (inside, members.sum(axis=1))
    )
    weights = share[seen]
    return (
        *(np.average(a, weights=weights) for a in (covered,)),
        covered.mean(),
        np.average(size, weights=weights),
    )


def _thresholds(
    scores: np.ndarray, labels: np.ndarray, n_classes: int, coverage: float, seed: int
) -> dict[str, np.ndarray]:
    """Thresholds (classes,) of each method; for what is published see
    docs/guarantees.md.
    """
    one = np.zeros(labels.size, np.int64)
    common = control.find_thresholds(scores, one, 1, coverage).values[0]
    own = control.find_thresholds(
        scores, labels, n_classes, coverage, pool=False
    ).values
    own = np.minimum(own, 0.0)
    part = np.random.default_rng(seed).random(labels.size) < 0.5
    own_part = [scores[part & (labels == k)] for k in range(n_classes)]
    middle = np.array([np.median(each) if each.size else common for each in own_part])
    cluster = np.argsort(np.argsort(middle)) * 8 // n_classes
    parts = control.find_thresholds(
        scores[~part], cluster[labels[~part]], 8, coverage
    ).values
    given = (scores, labels, n_classes, coverage)
    found = {"one threshold": np.full(n_classes, common)}
    found["by class"] = control.find_thresholds(*given).values
    found |= {
        f"interpolated {t}": t * own + (1.0 - t) * common for t in (0.25, 0.5, 0.75)
    }
    found["eight clusters"] = parts[cluster]
    asked, zeros = SetOptions(coverage, by="class", pooled=True), np.zeros(labels.size)
    known = Conformity(labels, -scores, zeros, np.ones(labels.size, np.int64))
    pooled = CertifiedSets(known, asked, "held-out", n_classes).thresholds.values
    found["prevalence (pooled=True)"] = pooled
    return found


def online(_: Path | None) -> None:
    """Ten classes, 6000 rows, labels 200 rows late."""
    n = 6000
    streams = {
        "steady": np.ones(n),
        "drift": np.linspace(1.0, 2.5, n),
        "jump": np.where(np.arange(n) < n // 3, 1.0, 3.0),
        "back and forth": np.where(np.arange(n) // 1500 % 2, 2.0, 1.0),
    }
    for name, temperatures in streams.items():
        found = [_stream(temperatures, seed) for seed in range(8)]
        low, high = np.min(found, axis=0), np.max(found, axis=0)
        print(
            f"{name}: covered {low[0]:.3f} to {high[0]:.3f}, worst 1500 rows "
            f"{low[1]:.3f} to {high[1]:.3f}; fixed threshold {low[2]:.3f} to "
            f"{high[2]:.3f}"
        )


def _rows(temperatures: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.normal(size=(len(temperatures), 10))
    noise = temperatures[:, None] * rng.gumbel(size=logits.shape)
    return logits, np.argmax(logits + noise, axis=1)


def _stream(temperatures: np.ndarray, seed: int) -> list[float]:
    cal = make("temps").fit(*_rows(np.ones(500), 100 + seed))
    sets = OnlineSets(cal.certify(*_rows(np.ones(2000), 200 + seed)), coverage=0.9)
    logits, labels = _rows(temperatures, seed)
    hits = []
    for first in range(0, len(labels), 10):
        now = np.arange(first, first + 10)
        hits += (
            sets.predict_set(logits[now], ids=now)
            .members[np.arange(10), labels[now]]
            .tolist()
        )
        if first >= 200:
            sets.add_labels(now - 200, labels[now - 200])
    fixed = cal.predict_set(logits, coverage=0.9).members[
        np.arange(len(labels)), labels
    ]
    return [
        np.mean(hits),
        np.convolve(hits, np.ones(1500) / 1500, "valid").min(),
        fixed.mean(),
    ]


def labels(path: Path | None) -> None:
    """Coverage and width of prediction-powered intervals beside those of the labels
    alone.
    """
    cases: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for file in sorted(SUITE.glob("cifar100_*.npz")):
        proba, truth = (
            softmax(np.load(file)["test_logits"].astype(float), axis=1),
            np.load(file),
        )
        cases.setdefault("networks", []).append(
            (proba.max(axis=1), proba.argmax(axis=1) == truth["test_labels"])
        )
    for signals in (("verbal",), ("token",), ("verbal", "token")) if path else ():
        cases["+".join(signals)] = [
            (table, right) for table, right, _ in models(path, *signals)
        ]
    rng = np.random.default_rng(0)
    noise = rng.random(20_000)
    cases["no signal"] = [
        (noise, rng.random(20_000) < share) for share in (0.5, 0.8, 0.95)
    ]
    for name, rows in cases.items():
        for n in (100, 300):
            found = []
            for confidence, right in rows:
                for _ in range(max(30, 600 // len(rows))):
                    order = rng.permutation(right.size)
                    own, rest = order[:n], order[n:]
                    got = prediction_powered_accuracy(
                        confidence[own], right[own], confidence[rest]
                    )
                    _, low, high = got.labels_alone
                    width = (got.high - got.low) / (high - low)
                    found.append((got.low <= right.mean() <= got.high, width))
            held, width = np.mean(found, axis=0)
            widest = max(each[1] for each in found)
            width_of = f"width {width:.3f} of that of the labels, at most {widest:.3f}"
            print(f"{name}, {n} labels: held {held:.1%}, {width_of}")


def shift(_: Path | None) -> None:
    """Known covariate shift: true ratios, and those of a logistic regression of
    inputs.
    """
    from sklearn.linear_model import LogisticRegression

    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, fresh, new = (rng.normal(m, size=(1500, 3)) for m in (0.0, 0.0, 0.5))
        cal = make("uncalibrated").fit(*_answers(x[:50], rng))
        old, truth = _answers(x, rng)
        logits, target = _answers(rng.normal(0.5, size=(20_000, 3)), rng)
        both, which = np.vstack([fresh, new]), np.repeat([0, 1], 1500)
        learned = LogisticRegression().fit(both, which).predict_proba(x)[:, 1]
        exact = expit(0.5 * x.sum(axis=1) - 0.375)
        risk = float((cal.predict(logits) != target).mean()) - 0.01
        for name, chance in (
            ("none", None),
            ("true ratios", exact),
            ("learned ratios", learned),
        ):
            ratios = None if chance is None else density_ratios(chance)
            cal.certify(
                old, truth, None if ratios is None else ratios.weights, reused="ignore"
            )
            sets = cal.predict_set(logits, coverage=0.9, allow_empty=True)
            covered = sets.members[np.arange(20_000), target].mean()
            rows = np.arange(1500) if ratios is None else ratios.sample(seed)
            cal.certify(old[rows], truth[rows], reused="ignore")
            kept = cal.predict_or_abstain(logits, risk=risk)
            wrong = (kept.labels != target)[kept.accepted]
            found.setdefault(name, []).append(
                (covered, bool(wrong.size) and wrong.mean() > risk)
            )
    for name, each in found.items():
        covered, broken = np.mean(each, axis=0)
        print(
            f"{name}: sets for 90 % cover {covered:.1%}, abstention broken in "
            f"{broken:.1%}"
        )


def _answers(x: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    logits = np.stack([np.zeros(len(x)), 2.0 * rng.normal(size=len(x))], axis=1)
    truth = np.argmax(logits + 0.3 * rng.gumbel(size=logits.shape), axis=1)
    return logits, np.where(
        rng.random(len(x)) < 0.4 * expit(x.sum(axis=1)), 1 - truth, truth
    )


def main() -> None:
    warnings.simplefilter("ignore")
    todo = {each.__name__: each for each in (groups, classes, online, labels, shift)}
    if len(sys.argv) < 2 or sys.argv[1] not in todo:
        sys.exit(__doc__)
    todo[sys.argv[1]](Path(sys.argv[2]) if len(sys.argv) > 2 else None)


if __name__ == "__main__":
    main()

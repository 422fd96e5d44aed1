"""Label shift: how well class frequencies are estimated, and what adapting to them
gains.

    python paper/studies/shift.py [FILE.npz ...] [--draws 4] [--rows 2000]
    python paper/studies/shift.py [FILE.npz ...] --other | --cases | --cost | --large

Files hold `val_logits`, `val_labels`, `test_logits`, `test_labels` (or the last two
alone, which are split); without files those of `suite/` are used. A draw takes rows of
the test set, with replacement, with class frequencies of a Dirichlet distribution of .1
or 1 per class. Every method sees the same draws: the default with `estimate_shift`, and
EM without a prior after temperature scaling with a bias per class (Alexandari, Kundaje
and Shrikumar, ICML 2020) and without. `--other` makes changes other than label shift,
`--cases` asks of batches of 50 to 2000 rows of many kinds (`_shift_cases.py`) how often
intervals hold where verdicts do, `--large` measures streams of 10^7 rows of 10 classes
and of 10^5 of 1000. With QuaPy installed, its EMQ is run on the default's
probabilities; with nannyml, its CBPE on those of the classifier, which it calibrates
itself.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import warnings
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

import _shift_cases
import hokical

SUITE = Path(__file__).parents[2] / "suite"
#: Squared error of the weights / gain in accuracy (points) over 100 trials, Dirichlet
#: .1.
PUBLISHED = {
    "CIFAR-10, 8000 rows": "plain .0080/6.94, temperature .0069/7.22, bias-corrected .0002/7.35",
    "CIFAR-100, 10,000 rows": "plain 1.72/14.5, temperature .305/26.1, bias-corrected .116/26.7",
}


def read(path: Path) -> tuple[Any, ...]:
    """Validation and test logits and labels; a file of one part is split."""
    arrays = np.load(path)
    names = [
        f"{part}_{what}" for part in ("val", "test") for what in ("logits", "labels")
    ]
    if "val_logits" in arrays:
        val_logits, val_labels, logits, labels = (arrays[name] for name in names)
    else:
        order = np.random.default_rng(0).permutation(len(arrays["test_labels"]))
        some, rest = np.array_split(order, 2)
        logits, labels = arrays["test_logits"], arrays["test_labels"]
        val_logits, val_labels, logits, labels = (
            logits[some],
            labels[some],
            logits[rest],
            labels[rest],
        )
    return (
        val_logits.astype(np.float32),
        val_labels.astype(int),
        logits.astype(np.float32),
        labels.astype(int),
    )


def bias_corrected(logits: Any, labels: Any, *, bias: bool) -> Any:
    """Temperature scaling, with a bias per class if asked for, by least log loss."""
    wide, rows = logits.astype(np.float64), np.arange(len(labels))
    truth = np.eye(wide.shape[1])[labels]

    def loss(x: Any) -> Any:
        scores = wide * np.exp(x[0]) + x[1:]
        gap = (softmax(scores, axis=1) - truth) / len(labels)
        slope = np.append((gap * wide).sum() * np.exp(x[0]), gap.sum(axis=0) * bias)
        return -log_softmax(scores, axis=1)[rows, labels].mean(), slope

    best = minimize(loss, np.zeros(1 + wide.shape[1]), jac=True, method="L-BFGS-B").x
    return lambda new: softmax(
        new.astype(np.float64) * np.exp(best[0]) + best[1:], axis=1
    )


def plain_em(proba: Any, old: Any, steps: int = 1000) -> Any:
    """Most likely class frequencies, without a prior (Saerens, Latinne,
    Decaestecker, 2002).
    """
    odds, share = proba / old, old
    for _ in range(steps):
        new = share * (odds / (odds @ share)[:, None]).mean(axis=0)
        if np.abs(new - share).sum() < 1e-7:
            break
        share = new
    return share


def draw(labels: Any, rows: int, concentration: float, rng: Any) -> Any:
    """Rows with class frequencies of a Dirichlet distribution."""
    n_classes = int(labels.max()) + 1
    places = [np.flatnonzero(labels == k) for k in range(n_classes)]
    share = rng.dirichlet(np.full(n_classes, concentration))
    share = np.where([len(each) > 0 for each in places], share, 0.0)
    classes = rng.choice(n_classes, rows, p=share / share.sum())
    return np.array([rng.choice(places[k]) for k in classes])


def judge(share: Any, proba: Any, old: Any, labels: Any) -> dict[str, float]:
    raised = proba * (share / old)
    raised /= raised.sum(axis=1, keepdims=True)
    own = raised[np.arange(len(labels)), labels]
    true = np.bincount(labels, minlength=len(share)) / len(labels)
    return {
        "class frequencies off by": float(np.abs(share - true).sum()),
        "accuracy after": float((raised.argmax(axis=1) == labels).mean()),
        "log loss after": float(-np.log(np.maximum(own, 1e-12)).mean()),
    }


def measure(path: Path, args: argparse.Namespace, found: dict[str, Any]) -> None:
    val_logits, val_labels, logits, labels = read(path)
    n_classes, rng = val_logits.shape[1], np.random.default_rng(1)
    counts = np.bincount(val_labels, minlength=n_classes) + 0.5
    old = counts / counts.sum()
    cal = hokical.auto(val_logits, val_labels)
    rivals = {
        "EM, bias-corrected temperature": bias_corrected(
            val_logits, val_labels, bias=True
        ),
        "EM, temperature": bias_corrected(val_logits, val_labels, bias=False),
    }
    for concentration in (0.1, 1.0):
        for _ in range(args.draws):
            some = draw(labels, args.rows, concentration, rng)
            rows, truth = logits[some], labels[some]
            right = float((cal.predict(rows) == truth).mean())
            mean = float(cal.predict_confidence(rows).mean())
            proba = cal.predict_proba(rows)
            new = cal.estimate_shift(rows)
            low, high = new.accuracy_interval
            held = new.class_frequencies_interval
            true = np.bincount(truth, minlength=n_classes) / len(truth)
            ours = judge(new.weights, proba, np.ones(n_classes), truth)
            ours["class frequencies off by"] = float(
                np.abs(new.class_frequencies - true).sum()
            )
            ours |= {
                "estimated accuracy off by": abs(new.accuracy - right),
                "interval holds": float(low <= right <= high),
                "their intervals hold": float(
                    ((held[:, 0] <= true) & (true <= held[:, 1])).mean()
                ),
                "verdict holds": float(new.holds),
            }
            found["hokical"].append(ours)
            nothing = judge(old, proba, old, truth) | {
                "class frequencies off by": np.nan
            }
            found["no adaptation"].append(
                nothing | {"estimated accuracy off by": abs(mean - right)}
            )
            for name, predict in rivals.items():
                answer = predict(rows)
                found[name].append(judge(plain_em(answer, old), answer, old, truth))
            measured = cbpe(val_logits, val_labels, rows)
            if measured is not None:
                own = float((rows.argmax(axis=1) == truth).mean())
                found["nannyml's CBPE"].append(
                    {"estimated accuracy off by": abs(measured - own)}
                )
            quapy_frequencies = emq(proba, old)
            if quapy_frequencies is not None:
                found["QuaPy's EMQ on ours"].append(
                    judge(quapy_frequencies, proba, old, truth)
                )


def cbpe(reference: Any, labels: Any, logits: Any) -> float | None:
    """The accuracy that nannyml expects, or None where it is not installed."""
    os.environ["NML_DISABLE_USAGE_LOGGING"] = "1"
    try:
        import nannyml
        import pandas as pd
    except ImportError:
        return None
    names = {str(k): f"p{k}" for k in range(logits.shape[1])}

    def frame(scores: Any) -> Any:
        table = pd.DataFrame(
            softmax(scores.astype(np.float64), axis=1), columns=[*names.values()]
        )
        return table.assign(label=scores.argmax(axis=1).astype(str))

    estimator = nannyml.CBPE(
        problem_type="classification_multiclass",
        y_pred_proba=names,
        y_pred="label",
        y_true="truth",
        metrics=["accuracy"],
        chunk_number=1,
    )
    estimator.fit(frame(reference).assign(truth=labels.astype(str)))
    found = estimator.estimate(frame(logits)).filter(period="analysis").to_df()
    return float(found[("accuracy", "value")].iloc[0])


def emq(proba: Any, old: Any) -> Any:
    """QuaPy's class frequencies, or None where it is not installed."""
    try:
        from quapy.method.aggregative import EMQ
    except ImportError:
        return None
    return EMQ.EM(old, proba)[0]


def other_changes(path: Path, args: argparse.Namespace, found: dict[str, Any]) -> None:
    """How often changes other than label shift are detected, and how often an
    interval is wrong.
    """
    val_logits, val_labels, logits, labels = read(path)
    cal, rng = hokical.auto(val_logits, val_labels), np.random.default_rng(2)
    spread = float(logits[np.isfinite(logits)].std())
    confidence = cal.predict_confidence(logits)
    changes = {
        "no change": lambda rows: rows,
        "logits x 0.9": lambda rows: 0.9 * rows,
        "logits x 1.1": lambda rows: 1.1 * rows,
        "noise of .2 deviations": lambda rows: (
            rows + 0.2 * spread * rng.normal(size=rows.shape)
        ),
        "noise of .5 deviations": lambda rows: (
            rows + 0.5 * spread * rng.normal(size=rows.shape)
        ),
        "half blended with others": lambda rows: (
            0.8 * rows + 0.2 * rng.permutation(rows)
        ),
        "harder rows twice as often": None,
        "noise of .5 deviations in a class of five": None,
        "a tenth of rows by another network": None,
    }
    strangers = [
        other
        for each in SUITE.glob(f"{path.stem.split('_')[0]}_*.npz")
        if each != path
        for other in [read(each)[2]]
        if other.shape == logits.shape
    ]
    for name, change in changes.items():
        for _ in range(args.draws):
            chance = 1.0 + ("harder" in name) * (confidence < np.median(confidence))
            size = min(args.rows, len(labels) // 2)
            some = rng.choice(len(labels), size, replace=False, p=chance / chance.sum())
            rows = logits[some] if change is None else change(logits[some])
            if "class of five" in name:
                noise = 0.5 * spread * rng.normal(size=rows.shape)
                rows = rows + noise * (labels[some, None] % 5 == 0)
            if "another network" in name:
                if not strangers:
                    break
                rows = np.where(rng.random((size, 1)) < 0.1, strangers[0][some], rows)
            found[name].append(
                measure_change(cal, rows.astype(np.float32), labels[some])
            )
    n_classes = val_logits.shape[1]
    n_known = n_classes - max(1, n_classes // 5)
    seen = val_labels < n_known
    few = hokical.auto(val_logits[seen][:, :n_known], val_labels[seen])
    for _ in range(args.draws):
        some = rng.permutation(len(labels))[: args.rows]
        alien = np.flatnonzero(labels[some] >= n_known)[args.rows * 3 // 40 :]
        some = np.delete(some, alien)
        name = f"8 % of rows of unseen classes, {n_classes} classes"
        found[name].append(measure_change(few, logits[some][:, :n_known], labels[some]))


def measure_change(cal: Any, rows: Any, labels: Any) -> dict[str, float]:
    """Whether a change is detected, whether the interval is wrong, how far estimates
    are off.
    """
    new, right = cal.estimate_shift(rows), float((cal.predict(rows) == labels).mean())
    low, high = new.accuracy_interval
    measured = {
        "detected": float(not new.holds),
        "wrong": float(not low <= right <= high),
    }
    measured["off by"] = abs(new.accuracy - right)
    measured["mean confidence off by"] = abs(
        float(cal.predict_confidence(rows).mean()) - right
    )
    return measured


def measure_cases(files: list[Path]) -> None:
    """How often intervals hold where verdicts do: label shift alone, and other
    changes.
    """
    every = [data for path in files for data in _shift_cases.read_data_sets(path)]
    rows: list[tuple[Any, ...]] = []
    for place, data in enumerate(every):
        cal, rng = (
            hokical.auto(data.val_logits, data.val_labels),
            np.random.default_rng(place),
        )
        strangers = [
            other.logits
            for other in every
            if other is not data
            and other.logits.shape == data.logits.shape
            and np.array_equal(other.labels, data.labels)
        ]
        real = bool(data.groups) or data.ordered
        for size in (
            size for size in _shift_cases.SIZES if size <= len(data.labels) // 2
        ):
            kinds = (
                {"real groups and streams": _shift_cases.parts(data, size, rng)}
                if real
                else {
                    "label shift alone": _shift_cases.label_shifts(
                        data, size, draw, rng
                    ),
                    "changed logits": _shift_cases.changes(data, size, strangers, rng),
                }
            )
            for kind, batches in kinds.items():
                for case, logits, labels in batches:
                    found = judge_batch(cal, logits.astype(np.float32), labels)
                    rows.append(
                        (f"half {place % 2}", kind, case, f"{size} rows", found)
                    )
        print(f"{place + 1} of {len(every)}: {data.name}", file=sys.stderr, flush=True)
    for parts in ((0, 1), (1, 3), (1, 2), (0, 1, 3)):
        table: dict[str, Any] = defaultdict(list)
        for row in rows:
            table[", ".join(row[part] for part in parts)].append(row[-1])
        show({name: table[name] for name in sorted(table)})


def judge_batch(cal: Any, rows: Any, labels: Any) -> dict[str, float]:
    """Whether the verdict holds; there, whether the interval does, and how wide it
    is.
    """
    new, right = cal.estimate_shift(rows), float((cal.predict(rows) == labels).mean())
    low, high = new.accuracy_interval
    found = {
        "verdict holds": float(new.holds),
        "interval holds": np.nan,
        "width": np.nan,
    }
    if new.holds:
        found["interval holds"] = float(low - 1e-9 <= right <= high + 1e-9)
        found["width"] = float(high - low)
    found["off by"] = abs(new.accuracy - right) if new.holds else np.nan
    mean = float(cal.predict_confidence(rows).mean())
    return found | {
        "mean confidence off by": abs(mean - right) if new.holds else np.nan
    }


def cost(path: Path) -> None:
    """An estimate from 10,000 rows in predictions of them, medians of five that
    alternate.
    """
    val_logits, val_labels, logits, _ = read(path)
    rows = np.resize(logits, (10_000, logits.shape[1]))
    cal = hokical.auto(val_logits, val_labels)
    times = []
    for _ in range(6):
        start = time.perf_counter()
        cal.predict_proba(rows)
        middle = time.perf_counter()
        cal.estimate_shift(rows)
        times.append((time.perf_counter() - middle) / (middle - start))
    print(f"{path.stem}: {np.median(times[1:]):.1f} predictions")


def large() -> None:
    """Streams that do not fit into memory: seconds, and the most memory of the
    process.
    """
    for n_rows, n_classes in ((10**5, 1000), (10**7, 10)):
        rng = np.random.default_rng(0)
        labels = rng.integers(0, n_classes, 20 * n_classes)
        logits = (
            rng.normal(size=(labels.size, n_classes)) + 4.0 * np.eye(n_classes)[labels]
        )
        cal = hokical.make("temps").fit(logits.astype(np.float32), labels)
        step = 10**7 // (10 * n_classes)

        def chunks(
            step: int = step, n_rows: int = n_rows, width: int = n_classes
        ) -> Any:
            draws = np.random.default_rng(1)
            for first in range(0, n_rows, step):
                rows = draws.normal(size=(min(step, n_rows - first), width)).astype(
                    np.float32
                )
                rows[np.arange(len(rows)), draws.integers(0, width, len(rows))] += 4.0
                yield rows

        source = hokical.streams.open_source(chunks)
        start = time.perf_counter()
        for _ in source:
            pass
        reading = time.perf_counter() - start
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
        start = time.perf_counter()
        found = hokical.streams.estimate_shift(cal, source)
        seconds = time.perf_counter() - start - reading
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
        print(
            f"{n_rows:,} rows of {n_classes} classes: {found.n:,} kept, "
            f"{found.verdict}; {seconds:.1f} s without the {reading:.1f} s that making "
            f"the rows takes; {after:,.0f} MB at most, {before:,.0f} MB before.",
            flush=True,
        )


def show(found: dict[str, Any]) -> None:
    columns = list(
        dict.fromkeys(c for rows in found.values() for row in rows for c in row)
    )
    print("| | " + " | ".join(columns) + " |\n|---" * 1 + "|--:" * len(columns) + "|")
    for name, rows in found.items():
        means = [
            np.nanmean([row.get(column, np.nan) for row in rows]) for column in columns
        ]
        cells = ["" if np.isnan(mean) else f"{mean:.3f}" for mean in means]
        print(f"| {name} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--other", action="store_true")
    parser.add_argument("--cases", action="store_true")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    files = args.files or sorted(
        path
        for path in SUITE.glob("*.npz")
        if "_val" not in path.stem and "_test" not in path.stem
    )
    warnings.simplefilter("ignore")
    if args.large:
        large()
        return
    if args.cases:
        measure_cases(files)
        return
    if args.cost:
        for path in files:
            cost(path)
        return
    found: dict[str, Any] = defaultdict(list)
    for path in files:
        (other_changes if args.other else measure)(path, args, found)
    show(found)
    if not args.other:
        for name in ("quapy", "nannyml"):
            if find_spec(name) is None:
                print(f"{name} is not installed: left out.")
        for name, numbers in PUBLISHED.items():
            print(f"Published, {name}: {numbers}.")


if __name__ == "__main__":
    main()

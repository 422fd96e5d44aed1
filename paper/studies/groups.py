"""Partial pooling: confidences of language models by subject, multilabel, and doing no
harm.

    python paper/studies/groups.py FOLDER

FOLDER holds `llm_answers.npz` (by model: `subject`, `right`, and the confidences
`verbal` and `token`), `ecg_multilabel.npz` (`labels`, `probabilities`) and
`employment.npz` (`probability`, `employed`, and columns of groups); files that are not
there are left out. Constants were chosen on the models of even number. With `pip
install mcgrad` its numbers come beside ours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hokical

SIZES, KINDS = (500, 2000, 6000), ("verbal", "token")


def log_loss(proba: Any, right: Any) -> Any:
    """Of each example."""
    return -np.log(np.clip(np.where(right, proba, 1.0 - proba), 1e-6, 1.0))


def worst_gap(proba: Any, right: Any, groups: Any) -> float:
    """The largest difference, over groups, between the mean confidence and the
    accuracy.
    """
    return max(
        abs((proba - right)[groups == name].mean()) for name in np.unique(groups)
    )


def by_pooling(fit: tuple[Any, ...], confidence: Any, subject: Any) -> Any:
    return hokical.calibrate_confidence(*fit[:2], groups=fit[2]).predict(
        confidence, groups=subject
    )


def by_isotonic(fit: tuple[Any, ...], confidence: Any, subject: Any) -> Any:
    from sklearn.isotonic import IsotonicRegression

    return IsotonicRegression(out_of_bounds="clip").fit(*fit[:2]).predict(confidence)


def by_mcgrad(fit: tuple[Any, ...], confidence: Any, subject: Any) -> Any:
    import logging

    import pandas as pd
    from mcgrad import methods

    logging.disable(logging.CRITICAL)
    columns = {
        "prediction_column_name": "prediction",
        "categorical_feature_column_names": ["subject"],
    }

    def frame(stated: Any, names: Any, **more: Any) -> Any:
        cut = np.clip(stated, 1e-3, 1.0 - 1e-3)
        return pd.DataFrame({"prediction": cut, "subject": names.astype(str), **more})

    model = methods.MCGrad()
    model.fit(
        frame(fit[0], fit[2], label=fit[1].astype(int)),
        label_column_name="label",
        **columns,
    )
    return np.asarray(model.predict(frame(confidence, subject), **columns))


def answers(
    path: Path,
) -> Iterator[tuple[int, str, int, tuple[Any, ...], tuple[Any, ...]]]:
    """Number of the model, kind, size, and (confidence, right, subject) to fit and
    to test on.
    """
    arrays = np.load(path)
    models = sorted({name.split("/")[0] for name in arrays.files if "/" in name})
    for number, model in enumerate(models):
        for kind in KINDS:
            stated = arrays[f"{model}/{kind}"].astype(np.float64)
            known = np.isfinite(stated)
            if known.sum() < SIZES[-1] + 2000:
                continue
            right, subject = (
                arrays[f"{model}/{name}"][known] for name in ("right", "subject")
            )
            for size in SIZES:
                rows = np.random.default_rng([number, size]).permutation(right.size)
                data = (stated[known], right, subject)
                parts = [
                    tuple(a[part] for a in data) for part in (rows[:size], rows[size:])
                ]
                yield number, kind, size, parts[0], parts[1]


def compare_answers(path: Path) -> None:
    ways = {"pooled": by_pooling, "isotonic": by_isotonic, "mcgrad": by_mcgrad}
    try:
        import mcgrad  # noqa: F401
    except ImportError:
        ways.pop("mcgrad")
    found: dict[tuple[Any, ...], list[Any]] = {}
    for number, kind, size, fit, (stated, right, subject) in answers(path):
        row = []
        for way in ways.values():
            start = time.process_time()
            proba = way(fit, stated, subject)
            took = time.process_time() - start
            row.append(
                (log_loss(proba, right).mean(), worst_gap(proba, right, subject), took)
            )
        for models in ("all", "others" if number % 2 else "chosen on"):
            found.setdefault((models, kind, size), []).append(row)
    print(
        f"{'log loss / worst subject / CPU s':34}"
        + "".join(f"{name:>24}" for name in ways)
    )
    for (models, kind, size), rows in sorted(found.items()):
        table = np.array(rows)
        means = [f"{a:.4f} / {b:.3f} / {c:.2f}" for a, b, c in table.mean(axis=0)]
        wins = ""
        if "mcgrad" in ways:
            better = (table[:, 0] < table[:, -1])[:, :2].mean(axis=0)
            wins = f"   better than mcgrad on {better[0]:.0%}, {better[1]:.0%}"
        name = f"{models}, {kind}, {size}, {len(rows)} models"
        print(f"{name:34}" + "".join(f"{text:>24}" for text in means) + wins)


def compare_labels(path: Path) -> None:
    """Log loss per label, fitted on one half of the records, over six halves."""
    from sklearn.linear_model import LogisticRegression

    arrays = np.load(path)
    scores, labels = (
        hokical.from_binary_probabilities(arrays["probabilities"]),
        arrays["labels"],
    )
    found: dict[str, list[float]] = {"own": [], "Platt": [], "pooled": []}
    for seed in range(6):
        rows = np.random.default_rng(seed // 2).permutation(len(labels))
        fit, test = rows[seed % 2 :: 2], rows[1 - seed % 2 :: 2]
        own = 1.0 / (1.0 + np.exp(-scores[test]))
        platt = own.copy()
        for k in range(labels.shape[1]):
            if 0 < labels[fit, k].sum() < fit.size:
                model = LogisticRegression().fit(scores[fit, k : k + 1], labels[fit, k])
                platt[:, k] = model.predict_proba(scores[test, k : k + 1])[:, 1]
        cal = hokical.MultilabelCalibrator().fit(scores[fit], labels[fit])
        pooled = cal.predict_proba(scores[test])
        for name, proba in zip(found, (own, platt, pooled), strict=True):
            found[name].append(float(log_loss(proba, labels[test] == 1).mean()))
    for name, losses in found.items():
        print(
            f"multilabel, {name:7}{np.mean(losses):.5f}   "
            f"{np.round(losses, 5).tolist()}"
        )


def check_no_harm(path: Path) -> None:
    """Of three divisions: the log loss of all, and of every group, beside the
    uncalibrated one.
    """
    arrays = np.load(path)
    groups = {name: arrays[name] for name in ("sex", "race", "age", "year")}
    right, stated = arrays["employed"] == 1, arrays["probability"].astype(np.float64)
    for size, seed in ((size, seed) for size in (2000, 20_000) for seed in range(3)):
        rows = np.random.default_rng(seed).permutation(right.size)
        fit, test = rows[:size], rows[size:]
        own = [
            {name: column[part] for name, column in groups.items()}
            for part in (fit, test)
        ]
        cal = hokical.calibrate_confidence(stated[fit], right[fit], groups=own[0])
        proba = cal.predict(stated[test], groups=own[1])
        harm = log_loss(proba, right[test]) - log_loss(stated[test], right[test])
        error = harm.std() / np.sqrt(harm.size)
        print(
            f"employment, {size} fitted: log loss {harm.mean():+.6f} (error "
            f"{error:.6f})"
        )
        bands = own[1] | {"age": own[1]["age"] // 10}
        found = []
        for name, band in bands.items():
            for k in np.unique(band):
                here = harm[band == k]
                if here.size >= 200:
                    error = float(here.std() / np.sqrt(here.size)) + 1e-9
                    found.append(
                        (float(here.mean()) / error, float(here.mean()), f"{name} {k}")
                    )
        beyond = [each for each in found if each[0] > 1.0]
        print(
            f"  {len(beyond)} of {len(found)} groups lose more than their standard "
            "error:"
        )
        for z, mean, name in sorted(beyond, key=lambda each: -each[1])[:3]:
            print(f"    {name}: {mean:+.5f}, {z:.1f} standard errors")
        print(f"  {cal.reason_}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    folder = parser.parse_args().folder
    if folder is None:
        print("No FOLDER with data is given: nothing to measure.")
        return
    for name, work in (
        ("ecg_multilabel.npz", compare_labels),
        ("employment.npz", check_no_harm),
        ("llm_answers.npz", compare_answers),
    ):
        if (folder / name).exists():
            work(folder / name)


if __name__ == "__main__":
    main()

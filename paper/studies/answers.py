"""Answers of language models: which signal to use, and whether a guarantee holds for
new subjects.

    python paper/studies/answers.py FOLDER [--few]

FOLDER has `llm_answers.npz` (by model: `subject`, `right`, the stated confidence
`verbal` and the token probability `token`) and `mmlu_subjects.npz` (`scores` of 10
prompts, `labels`, `subject`). Prints the tables of docs/language-models.md; a file that
is not there is skipped. `--few` prints instead what 40 to 1000 answers are enough for,
and what is lost on calibrated confidences.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

import hokical
from hokical.io import agreement
from hokical.metrics import auroc, log_loss

N_FIT, N_CERTIFY, RISK = 1000, 2000, 0.2
#: A small model and a larger one, of those with both signals.
CASCADES = (
    ("Qwen3-8B", "gpt-4.1"),
    ("gemma-2-9b-it", "gpt-4o-2024-08-06"),
    ("Llama-3.2-3B-Instruct", "Qwen3-235B-A22B-fp8-tput"),
    ("gemini-1.5-flash", "grok-3-beta"),
)
#: Answers to fit, how often, and the answers of which a model is right so often for the
#: last rows.
FEW, SEEDS, OFTEN = (40, 80, 150, 300, 1000), 1, 0.78


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--few", action="store_true")
    given = parser.parse_args()
    folder = given.folder
    warnings.simplefilter("ignore", UserWarning)  # subjects that the fit has not seen
    studies = [("llm_answers.npz", models), ("llm_answers.npz", cascades)]
    studies.append(("mmlu_subjects.npz", prompts))
    if given.few:
        already_calibrated()
        studies = [("llm_answers.npz", few_answers)]
    for name, study in studies:
        if (folder / name).is_file():
            study(np.load(folder / name))
        else:
            print(f"{name} is not in {folder}: skipped")


def models(data: Any) -> None:
    """Signals beside each other, then guarantees about subjects that were held out."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    transfer: dict[str, list[tuple[float, ...]]] = {}
    for signals, right, subject in answers(data):
        columns = {
            "stated confidence": signals[:, 0],
            "token probability": signals[:, 1],
            "both": signals,
        }
        for name, confidence in columns.items():
            for groups in (None, subject):
                label = name + ("" if groups is None else ", by subject")
                rows.setdefault(label, []).append(one_split(confidence, right, groups))
        for name, found in held_out_subjects(signals, right, subject):
            transfer.setdefault(name, []).append(found)
    print(f"{len(rows['both'])} models, {N_FIT} answers to fit, {N_CERTIFY} to certify")
    print(
        "| signal | log loss | AUROC | accepted at 20 % risk | wrong among accepted |"
    )
    print("|---|--:|--:|--:|--:|")
    for name, found in rows.items():
        loss, order, share, wrong = np.nanmean(found, axis=0)
        print(f"| {name} | {loss:.3f} | {order:.3f} | {share:.0%} | {wrong:.1%} |")
    print(
        "\n| guarantee (risk 20 %) | subject | accepted | wrong among accepted | "
        "exceeds 20 % |"
    )
    print("|---|---|--:|--:|--:|")
    for name, found in transfer.items():
        share, wrong = np.array(found).T
        print(
            f"| {name} | {share.mean():.0%} | {mean_or_none(wrong)} | "
            f"{exceeded(wrong)} |"
        )


def already_calibrated() -> None:
    """What 60 and 300 calibrated confidences lose by a fit: the mean and the worst
    of many.
    """
    print(
        "| calibrated confidences | 60: mean, worst | 300: mean, worst |\n|---|--:|--:|"
    )
    kinds = {
        "uniform": lambda rng, n: rng.uniform(0.02, 0.98, n),
        "beta(5, 1.5)": lambda rng, n: rng.beta(5.0, 1.5, n),
        "seven values": lambda rng, n: rng.choice(
            [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99], n
        ),
        "very sure": lambda rng, n: 1.0 / (1.0 + np.exp(-rng.normal(2.0, 2.5, n))),
    }
    for kind, draw in kinds.items():
        cells = []
        for n in (60, 300):
            lost = []
            for seed in range(50):
                rng = np.random.default_rng([seed, n])
                p, new = draw(rng, n), draw(rng, 4000)
                q = hokical.calibrate_confidence(p, rng.random(n) < p).predict(new)
                ratios = new * np.log(new / q) + (1 - new) * np.log((1 - new) / (1 - q))
                lost.append(ratios.mean())
            cells.append(f"{np.mean(lost):.4f}, {np.max(lost):.3f}")
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def few_answers(data: Any) -> None:
    """Log loss by the number of answers; models on all questions, or where they are
    often right.
    """
    rows: dict[str, list[list[float]]] = {}
    for k, (signals, right, subject) in enumerate(answers(data)):
        columns = {"stated": signals[:, 0], "token": signals[:, 1], "both": signals}
        for name, confidence in columns.items():
            for about in (None, subject):
                label = name + ("" if about is None else ", by subject")
                found = losses_by_size(confidence, right, about, k, FEW)
                rows.setdefault(label, []).append(found)
            for one in np.unique(subject):
                here = subject == one
                if here.sum() > 600 and right[here].mean() > OFTEN:
                    found = losses_by_size(
                        confidence[here], right[here], None, k, FEW[:-1]
                    )
                    rows.setdefault(f"{name}, mostly right", []).append(
                        [*found, np.nan]
                    )
    print(
        f"\n| log loss | {' | '.join(map(str, FEW))} | fits "
        f"|\n|---|{'--:|' * (len(FEW) + 1)}"
    )
    for name, found in sorted(rows.items()):
        cells = " | ".join(f"{loss:.4f}" for loss in np.mean(found, axis=0))
        print(f"| {name} | {cells} | {SEEDS * len(found)} |")


def losses_by_size(
    confidence: Any, right: Any, groups: Any, model: int, sizes: tuple[int, ...]
) -> list[float]:
    """Mean log loss on other answers, after a fit of each size."""
    found = []
    for n in sizes:
        losses = []
        for seed in range(SEEDS):
            order = np.random.default_rng([seed, model]).permutation(right.size)
            fit, test = order[:n], order[max(sizes) : max(sizes) + 4000]
            some, others = (None if groups is None else groups[i] for i in (fit, test))
            cal = hokical.calibrate_confidence(confidence[fit], right[fit], groups=some)
            losses.append(
                log_loss(cal.predict(confidence[test], groups=others), right[test])
            )
        found.append(float(np.mean(losses)))
    return found


def answers(data: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Both signals (n, 2), right (n,) and subject (n,) of every model that has both."""
    names = sorted({name.split("/")[0] for name in data.files if "/" in name})
    for name in names:
        signals = np.column_stack(
            [data[f"{name}/{kind}"] for kind in ("verbal", "token")]
        )
        known = ((signals >= 0.0) & (signals <= 1.0)).all(
            axis=1
        )  # NaN: none was stated
        if known.sum() > N_FIT + N_CERTIFY + 2000:
            subject = data["subjects"][data[f"{name}/subject"][known]]
            yield (
                signals[known].astype(float),
                data[f"{name}/right"][known].astype(bool),
                subject,
            )


def one_split(confidence: Any, right: Any, groups: Any) -> tuple[float, ...]:
    """Log loss, AUROC, accepted share and its errors on answers used for nothing
    else.
    """
    order = np.random.default_rng(0).permutation(right.size)
    fit, certify, test = np.split(order, [N_FIT, N_FIT + N_CERTIFY])
    part = [
        (confidence[i], right[i], None if groups is None else groups[i])
        for i in (fit, certify, test)
    ]
    cal = hokical.calibrate_confidence(*part[0][:2], groups=part[0][2])
    cal.certify(*part[1][:2], groups=part[1][2])
    new, truth, about = part[2]
    proba = cal.predict(new, groups=about)
    accepted = cal.predict_or_abstain(new, groups=about, risk=RISK).accepted
    wrong = float(np.mean(~truth[accepted])) if accepted.any() else np.nan
    return log_loss(proba, truth), auroc(proba, truth), accepted.mean(), wrong


def held_out_subjects(
    signals: Any, right: Any, subject: Any
) -> Iterator[tuple[str, Any]]:
    """Fit and certify without one subject, and accept answers on it and on the
    others.
    """
    for name in np.unique(subject):
        new = subject == name
        rows = np.random.default_rng(1).permutation(np.flatnonzero(~new))
        fit, certify, test = np.split(rows, [N_FIT, N_FIT + N_CERTIFY])
        cal = hokical.calibrate_confidence(
            signals[fit], right[fit], groups=subject[fit]
        )
        cal.certify(signals[certify], right[certify], groups=subject[certify])
        yield "for all together | seen", accepted_at(cal, signals, right, subject, test)
        yield (
            "for all together | held out",
            accepted_at(cal, signals, right, subject, np.flatnonzero(new)),
        )
        seen = str(subject[test[0]])
        one = certify[subject[certify] == seen]
        alone = copy.deepcopy(cal).certify(
            signals[one], right[one], groups=subject[one]
        )
        rows = test[subject[test] == seen]
        yield (
            "for one subject | seen",
            accepted_at(alone, signals, right, subject, rows),
        )


def accepted_at(
    cal: Any, signals: Any, right: Any, subject: Any, rows: Any
) -> tuple[float, float]:
    chosen = cal.predict_or_abstain(
        signals[rows], groups=subject[rows], risk=RISK
    ).accepted
    wrong = float(np.mean(~right[rows][chosen])) if chosen.any() else np.nan
    return float(chosen.mean()), wrong


def cascades(data: Any) -> None:
    """A small model answers first, then a larger one, then a person; 20 splits of
    each pair.
    """
    print(f"\nCascades: at most {RISK:.0%} of all answers wrong, with 90 % confidence")
    print(
        "| small, larger model | right | alone | small | larger | person | wrong | "
        "exceeds |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for small, large in CASCADES:
        signals = [
            np.column_stack([data[f"{name}/{kind}"] for kind in ("verbal", "token")])
            for name in (small, large)
        ]
        known = ((np.hstack(signals) >= 0.0) & (np.hstack(signals) <= 1.0)).all(axis=1)
        first, second = (each[known].astype(float) for each in signals)
        right, right_too = (
            data[f"{name}/right"][known].astype(bool) for name in (small, large)
        )
        alone, found = zip(
            *(one_cascade(first, right, second, right_too, seed) for seed in range(20)),
            strict=True,
        )
        *shares, wrong = np.array(found).T
        listed = " | ".join(
            f"{share.mean():.0%}" for share in (np.array(alone), *shares)
        )
        print(
            f"| {small}, {large} | {right.mean():.0%}, {right_too.mean():.0%} | "
            f"{listed} | {wrong.mean():.1%} | {exceeded(wrong)} |"
        )


def one_cascade(
    first: Any, right: Any, second: Any, right_too: Any, seed: int
) -> tuple[float, tuple[float, ...]]:
    """What the larger model answers alone; shares of small, larger, person, and
    errors of all.
    """
    order = np.random.default_rng(seed).permutation(right.size)
    fit, held_out, test = np.split(order, [N_FIT, N_FIT + N_CERTIFY])
    small = hokical.calibrate_confidence(first[fit], right[fit])
    large = hokical.calibrate_confidence(second[fit], right_too[fit])
    thresholds = np.linspace(1.0, 0.0, 201)

    def control(rule: Any, rows: Any) -> float:
        p, q = small.predict(first[rows]), large.predict(second[rows])
        losses = [rule(p, q, t) for t in thresholds]
        table = [
            np.select([who == 0, who == 1], [~right[rows], ~right_too[rows]], False)
            for who in losses
        ]
        found = small.control_risk(
            first[rows],
            right[rows],
            loss=np.transpose(table),
            risk=RISK,
            delta=0.1,
            thresholds=thresholds,
        )
        return found.threshold

    def both(p: Any, q: Any, t: float) -> Any:
        return np.select([p >= t, q >= t], [0, 1], 2)

    def larger(p: Any, q: Any, t: float) -> Any:
        return np.where(q >= t, 1, 2)

    p, q = small.predict(first[test]), large.predict(second[test])
    alone = np.mean(larger(p, q, control(larger, held_out)) == 1)
    who = both(p, q, control(both, held_out))
    wrong = np.select([who == 0, who == 1], [~right[test], ~right_too[test]], False)
    return float(alone), (*(np.mean(who == k) for k in range(3)), wrong.mean())


def prompts(data: Any) -> None:
    """One model asked with ten prompts: probability of the letter, agreement of the
    prompts.
    """
    scores, labels = data["scores"].astype(float), data["labels"]
    samples = agreement(scores.argmax(axis=2).T.tolist())
    picked = np.asarray(samples.answers, int)
    share = samples.share
    token = softmax(scores[0], axis=1)[np.arange(labels.size), picked]
    right, subject = picked == labels, data["subjects"][data["subject"]]
    print(f"\n{labels.size} questions, ten prompts, {right.mean():.0%} right")
    print("| signal | log loss | AUROC |\n|---|--:|--:|")
    both = np.column_stack([token, share])
    for name, signal in {
        "token probability": token,
        "agreement": share,
        "both": both,
    }.items():
        found = []
        for seed in range(10):
            order = np.random.default_rng(seed).permutation(labels.size)
            fit, test = order[:N_FIT], order[N_FIT:]
            cal = hokical.calibrate_confidence(
                signal[fit], right[fit], groups=subject[fit]
            )
            proba = cal.predict(signal[test], groups=subject[test])
            found.append((log_loss(proba, right[test]), auroc(proba, right[test])))
        print(
            f"| {name} | {np.mean(found, axis=0)[0]:.3f} | "
            f"{np.mean(found, axis=0)[1]:.3f} |"
        )


def mean_or_none(wrong: Any) -> str:
    return "-" if np.isnan(wrong).all() else f"{np.nanmean(wrong):.1%}"


def exceeded(wrong: Any) -> str:
    """How often the error rate among accepted answers is above the risk, of those
    with any.
    """
    known = wrong[~np.isnan(wrong)]
    return "-" if not known.size else f"{np.mean(known > RISK):.0%} of {known.size}"


if __name__ == "__main__":
    main()

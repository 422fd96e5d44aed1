"""What a study says: means, ranks, wins and harm, with intervals from resampled data
sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from hokical_paper.core.reports import Cell, TableOutput, TextCells
from hokical_paper.study.outcomes import SCORES, Outcome
from hokical_paper.study.standings import Standing

BASE = "uncalibrated"
#: Scores that agree to so many digits are equal: they differ by where a solver stopped.
EQUAL_DIGITS = 6


@dataclass(frozen=True)
class StudyStanding(Standing):
    """One method in one group of experiments; intervals are (low, high)."""

    rank_interval: tuple[float, float]
    subject_wins: float
    subject_gap: float
    gap_interval: tuple[float, float]
    worse_than_base: float
    impossible: int
    failed: int
    fit_ratio: float


@dataclass(frozen=True)
class Group(TableOutput):
    """All methods that ran on every experiment of a group, the best mean rank first.

    `subject` is the method that the others are compared with.
    """

    title: str
    score: str
    subject: str
    n_experiments: int
    n_data_sets: int
    standings: tuple[StudyStanding, ...]

    def records(self) -> list[dict[str, Any]]:
        """Every number, by method."""
        return [asdict(row) for row in self.standings]

    def cells(self) -> TextCells:
        """Means and ranks, and how each method compares with the subject."""
        heads = [
            "method",
            f"mean {self.score.replace('_', ' ')}",
            "mean rank",
            f"behind {self.subject}",
            f"{self.subject} is better in",
            f"worse than {BASE} in",
            "impossible truths",
            "failed",
            f"fit time, in {self.subject}'s",
        ]
        rows = []
        for row in self.standings:
            own = row.method == self.subject
            texts = (
                row.method,
                f"{row.mean:.4f} ({_ends(row.mean_interval)})",
                f"{row.rank:.2f} ({_ends(row.rank_interval, 1)})",
                "" if own else f"{row.subject_gap:+.4f} ({_ends(row.gap_interval)})",
                "" if own else f"{row.subject_wins:.0%}",
                "" if row.method == BASE else f"{row.worse_than_base:.0%}",
                f"{row.impossible}",
                f"{row.failed}",
                f"{row.fit_ratio:.2f}",
            )
            rows.append([Cell(text) for text in texts])
        return heads, rows

    def _markdown(self) -> str:
        """A table, below its title."""
        counts = f"{self.n_experiments} classifiers, {self.n_data_sets} data sets"
        return f"**{self.title}**: {counts}\n\n{super()._markdown()}"


def summarise(
    outcomes: Sequence[Outcome],
    *,
    subject: str,
    score: str = "log_loss",
    resamples: int = 1000,
) -> list[Group]:
    """Standings overall, by task and by the size of the calibration set."""
    if score not in SCORES:
        raise ValueError(f"`score` must be one of {SCORES}; got {score!r}.")
    groups: dict[str, list[Outcome]] = {"all": list(outcomes)}
    for outcome in outcomes:
        for title in (outcome.task, outcome.size):
            groups.setdefault(title, []).append(outcome)
    return [
        _group(title, members, subject, score, resamples)
        for title, members in groups.items()
    ]


def draw_rows(
    data_sets: NDArray[Any], resamples: int, seed: int = 0
) -> list[NDArray[Any]]:
    """Rows of experiments for each resample: all of a drawn data set, as often as it
    is drawn.
    """
    rng = np.random.default_rng(seed)
    rows = [np.flatnonzero(data_sets == name) for name in np.unique(data_sets)]
    drawn = rng.integers(len(rows), size=(resamples, len(rows)))
    return [np.concatenate([rows[i] for i in draw]) for draw in drawn]


def interval(values: NDArray[Any], draws: list[NDArray[Any]]) -> tuple[float, float]:
    """Quantiles of the mean over resamples, 95 %."""
    low, high = np.quantile([values[rows].mean() for rows in draws], [0.025, 0.975])
    return float(low), float(high)


def _group(
    title: str, outcomes: Sequence[Outcome], subject: str, score: str, resamples: int
) -> Group:
    cells: dict[tuple[str, str], Outcome] = {}
    # An experiment with no more examples than asked for is the same in every draw.
    for outcome in outcomes:
        name = outcome.experiment
        while (name, outcome.method) in cells:
            name += " again"
        cells[name, outcome.method] = outcome
    experiments = sorted({experiment for experiment, _ in cells})
    everywhere = {
        method: all((experiment, method) in cells for experiment in experiments)
        for _, method in cells
    }
    methods = [method for method, whole in everywhere.items() if whole]
    table = np.array(
        [
            [getattr(cells[name, method], score) for method in methods]
            for name in experiments
        ]
    ).round(EQUAL_DIGITS)
    data_sets = np.array([cells[name, methods[0]].data_set for name in experiments])
    draws = draw_rows(data_sets, resamples)
    ranks = rankdata(table, axis=1)
    of_subject = table[:, methods.index(subject)]
    clock = np.array([cells[name, subject].seconds for name in experiments])
    base = table[:, methods.index(BASE)] if BASE in methods else None
    standings = []
    for index, method in enumerate(methods):
        column = table[:, index]
        gap = table[:, index] - of_subject
        own_cells = [cells[name, method] for name in experiments]
        standings.append(
            StudyStanding(
                method,
                float(column.mean()),
                interval(column, draws),
                float(ranks[:, index].mean()),
                interval(ranks[:, index], draws),
                float(np.mean(gap > 0.0) + 0.5 * np.mean(gap == 0.0)),
                float(gap.mean()),
                interval(gap, draws),
                float("nan") if base is None else float(np.mean(column > base)),
                sum(outcome.impossible for outcome in own_cells),
                sum(outcome.failed for outcome in own_cells),
                float(np.median([outcome.seconds for outcome in own_cells] / clock)),
            )
        )
    standings.sort(key=lambda standing: standing.rank)
    counts = len(experiments), np.unique(data_sets).size
    return Group(title, score, subject, *counts, tuple(standings))


def _ends(interval: tuple[float, float], digits: int = 4) -> str:
    return f"{interval[0]:.{digits}f} to {interval[1]:.{digits}f}"


def compare_by_size(
    outcomes: Mapping[str, Sequence[Outcome]],
    *,
    subject: str = "auto",
    resamples: int = 1000,
) -> list[dict[str, Any]]:
    """A record for each number of examples, kind of task and method: what a comparison
    shows.

    Log loss with its gap to the subject, classwise ECE, Brier score, the share of
    classifiers whose log loss is worse than uncalibrated, the fits that failed, and the
    fit's time as the median of ratios to the subject's on the same examples.
    """
    records = []
    for size, of_size in outcomes.items():
        binary = [outcome for outcome in of_size if outcome.task == "binary"]
        more = [outcome for outcome in of_size if outcome.task != "binary"]
        for task, members in {
            "all": of_size,
            "two classes": binary,
            "more classes": more,
        }.items():
            if members:
                records += _compare(size, task, members, subject, resamples)
    return records


def _compare(
    size: str, task: str, outcomes: Sequence[Outcome], subject: str, resamples: int
) -> list[dict[str, Any]]:
    by_score = {
        score: {
            row.method: row.mean
            for row in _group(task, outcomes, subject, score, 1).standings
        }
        for score in ("classwise_ece", "brier")
    }
    group = _group(task, outcomes, subject, "log_loss", resamples)
    return [
        {
            "size": size,
            "task": task,
            "classifiers": group.n_experiments,
            "method": row.method,
            "log_loss": row.mean,
            "gap": row.subject_gap,
            "gap_interval": row.gap_interval,
            **{score: means[row.method] for score, means in by_score.items()},
            "worse": row.worse_than_base,
            "failed": row.failed,
            "fit_ratio": row.fit_ratio,
        }
        for row in sorted(group.standings, key=lambda row: row.mean)
    ]


def size_table(
    outcomes: Mapping[str, Sequence[Outcome]], score: str = "log_loss"
) -> str:
    """A row for every task and method: mean scores by the number of examples to fit
    on.
    """
    if score not in SCORES:
        raise ValueError(f"`score` must be one of {SCORES}; got {score!r}.")
    cells: dict[tuple[str, str], dict[str, list[float]]] = {}
    for size, of_size in outcomes.items():
        for outcome in of_size:
            row = cells.setdefault((outcome.task, outcome.method), {})
            row.setdefault(size, []).append(getattr(outcome, score))
    sizes = list(outcomes)
    lines = [
        f"| task | method | {' | '.join(sizes)} |",
        "|---|---" + "|--:" * len(sizes) + "|",
    ]
    for (task, method), row in sorted(cells.items()):
        texts = [f"{np.mean(row[size]):.4f}" if size in row else "" for size in sizes]
        lines.append(f"| {task} | {method} | {' | '.join(texts)} |")
    return "\n".join(lines)

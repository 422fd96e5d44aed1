"""Compare CalibratedClassifier with scikit-learn's CalibratedClassifierCV on real
tabular data.

    python paper/studies/tabular.py [--splits 6] > table.md

Nothing is downloaded. Four data sets come with scikit-learn, three more with
statsmodels if that is installed (`pip install statsmodels`; without it they are left
out, and the tables differ from those in the documentation). Each data set is cut into
halves, with the same share of every class, several times; one half trains and
calibrates, by five folds, the other half tests. Takes a few minutes.

    python paper/studies/tabular.py --binary [--splits 6] > table.md

Two classes: five data sets of scikit-learn, of more classes one against the others or
even against odd digits, and the probability of the event; means over all pairs of data
and model, with Student's 95 % intervals over the splits.

    python paper/studies/tabular.py --given benchmarks/tabular_probabilities.npz

Classifiers of two classes with many examples: the default beside isotonic regression,
both with probabilities cut to [0.001, 0.999], and how uncertain each difference is.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from scipy.special import stdtrit
from sklearn import datasets
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from hokical import CalibratedClassifier
from hokical.calibrators import make
from hokical.metrics import binary_summary, brier, ece, log_loss
from hokical_paper.study.outcomes import Experiment, choose_experiments

Data = tuple[np.ndarray, np.ndarray]

SEED = 0
FOLDS = 5
#: Larger data sets are cut down to this many rows, so that the script takes minutes.
MOST_ROWS = 2000
#: Classifiers with fewer examples are not among those with many.
MANY = 500
#: Several methods give exactly 1. Without a bound, one such mistake makes a log loss
#: infinite.
CLIP = 1e-3

OURS = ("auto", "temps", "ets", "irm", "vecs", "hoki")
THEIRS = ("sigmoid", "isotonic", "temperature")

MODELS: dict[str, BaseEstimator] = {
    "random forest": RandomForestClassifier(50, random_state=SEED),
    "gradient boosting": HistGradientBoostingClassifier(max_iter=30, random_state=SEED),
    "naive Bayes": GaussianNB(var_smoothing=1e-6),
    "SVM": make_pipeline(StandardScaler(), SVC()),
}


# --- data


def shipped_data() -> Iterator[tuple[str, Data]]:
    """Names, features and labels of everything that is on this machine already."""
    for name in ("iris", "wine", "breast_cancer", "digits"):
        yield name, getattr(datasets, f"load_{name}")(return_X_y=True)
    if find_spec("statsmodels") is None:
        print("statsmodels is not installed: three data sets left out", file=sys.stderr)
        return
    for name, prepare in (
        ("anes96", party),
        ("fair", affairs),
        ("randhie", doctor_visits),
    ):
        module = getattr(__import__("statsmodels.datasets", fromlist=[name]), name)
        X, y = prepare(module.load_pandas().data)
        rows = np.random.default_rng(SEED).permutation(len(y))[:MOST_ROWS]
        yield name, (X[rows], y[rows])


def party(frame: Any) -> Data:
    """Seven degrees of party identification, from age, education, income and
    opinions.
    """
    features = frame[
        ["TVnews", "selfLR", "ClinLR", "DoleLR", "age", "educ", "income", "logpopul"]
    ]
    return features.to_numpy(float), frame["PID"].to_numpy(int)


def affairs(frame: Any) -> Data:
    """Whether there was an affair."""
    return frame.drop(columns="affairs").to_numpy(float), (
        frame["affairs"] > 0
    ).to_numpy(int)


def doctor_visits(frame: Any) -> Data:
    """Whether a doctor was seen at all."""
    return frame.drop(columns="mdvis").to_numpy(float), (frame["mdvis"] > 0).to_numpy(
        int
    )


def events() -> Iterator[tuple[str, Data]]:
    """Data of two classes that come with scikit-learn: features, and whether the
    event happened.
    """
    tumour, wine, iris, digits, blood = (
        getattr(datasets, f"load_{name}")(return_X_y=True)
        for name in ("breast_cancer", "wine", "iris", "digits", "diabetes")
    )
    yield "malignant tumour", (tumour[0], (tumour[1] == 0).astype(int))
    yield "second cultivar", (wine[0], (wine[1] == 1).astype(int))
    yield "versicolor", (iris[0], (iris[1] == 1).astype(int))
    yield "even digit", (digits[0], (digits[1] % 2 == 0).astype(int))
    yield "progression above 200", (blood[0], (blood[1] > 200.0).astype(int))


# --- models


class Remembered(ClassifierMixin, BaseEstimator):
    """A classifier that fits and scores the same data once: all methods use the same
    folds.
    """

    shelf: dict[str, Any] = {}  # noqa: RUF012 (shared by all copies, that is the point)

    def __init__(self, estimator: BaseEstimator) -> None:
        self.estimator = estimator

    def fit(self, X: np.ndarray, y: np.ndarray) -> Remembered:
        self.key_ = joblib.hash((repr(self.estimator), X, y))
        self.fitted_ = self._once(self.key_, lambda: clone(self.estimator).fit(X, y))
        self.classes_ = self.fitted_.classes_
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.fitted_.predict(X))

    def _scores(self, X: np.ndarray, name: str) -> np.ndarray:
        key = f"{self.key_} {joblib.hash(X)}"
        return np.array(self._once(key, lambda: getattr(self.fitted_, name)(X)))

    def _once(self, key: str, make: Callable[[], Any]) -> Any:
        if key not in self.shelf:
            self.shelf[key] = make()
        return self.shelf[key]


class Scoring(Remembered):
    """With decision scores."""

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return self._scores(X, "decision_function")


class Voting(Remembered):
    """With probabilities."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self._scores(X, "predict_proba")


def candidates(model: BaseEstimator) -> Iterator[tuple[str, BaseEstimator]]:
    """Every way to get confidence from the model: as it is, ours, scikit-learn's."""
    inner = (Scoring if hasattr(model, "decision_function") else Voting)(model)
    yield (
        "uncalibrated",
        CalibratedClassifier(inner, ensemble=False, method="uncalibrated"),
    )
    yield "hokical, the default", CalibratedClassifier(inner)
    for ensemble in (True, False):
        options = {"cv": FOLDS, "ensemble": ensemble}
        suffix = "" if ensemble else ", ensemble=False"
        for method in OURS:
            yield (
                f"hokical {method}{suffix}",
                CalibratedClassifier(inner, method=method, **options),
            )
        for method in THEIRS:
            yield (
                f"sklearn {method}{suffix}",
                CalibratedClassifierCV(inner, method=method, **options),
            )


def binary_candidates(model: BaseEstimator) -> Iterator[tuple[str, BaseEstimator]]:
    """The default, and what users of scikit-learn compare it with."""
    inner = (Scoring if hasattr(model, "decision_function") else Voting)(model)
    yield (
        "uncalibrated",
        CalibratedClassifier(inner, ensemble=False, method="uncalibrated"),
    )
    yield "hokical, the default", CalibratedClassifier(inner)
    for method in THEIRS:
        yield (
            f"sklearn {method}",
            CalibratedClassifierCV(inner, method=method, cv=FOLDS),
        )


# --- measuring


@dataclass(frozen=True)
class Result:
    """What one method did on one half of one data set."""

    data: str
    model: str
    method: str
    split: int
    scores: dict[str, float]


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "log loss": lambda confidence, right: log_loss(confidence, right, clip=CLIP),
    "Brier": brier,
    "ECE": lambda confidence, right: ece(confidence, right, n_bins=15),
    "ECE, equal mass": lambda confidence, right: ece(
        confidence, right, n_bins=15, bins="mass"
    ),
    "accuracy": lambda confidence, right: right.mean(),
    "certain and wrong": lambda confidence, right: np.mean(
        (confidence == 1.0) & ~right
    ),
}


def measure(
    model: BaseEstimator, train: Data, test: Data, *, raw: bool
) -> dict[str, float]:
    """Fit on one half, and judge the top label's confidence on the other."""
    model.fit(*train)
    if raw and hasattr(
        model.estimator_, "predict_proba"
    ):  # a forest's votes as they are
        model = model.estimator_
    proba = model.predict_proba(test[0])
    labels, predict = model.predict(test[0]), getattr(model, "predict_confidence", None)
    confidence = proba.max(axis=1) if predict is None else predict(test[0])
    confidence = np.minimum(confidence, 1.0)  # a sum of votes can exceed 1 by rounding
    return {
        name: metric(confidence, labels == test[1]) for name, metric in METRICS.items()
    }


def measure_event(
    model: BaseEstimator, train: Data, test: Data, *, raw: bool
) -> dict[str, float]:
    """Fit on one half, and judge the probability of the event on the other."""
    model.fit(*train)
    if raw and hasattr(model.estimator_, "predict_proba"):
        model = model.estimator_
    p = np.clip(model.predict_proba(test[0])[:, 1], 0.0, 1.0)
    found = binary_summary(p, test[1])
    scores = {name: found[name].value for name in ("brier", "auroc", "oe_ratio", "ici")}
    return {"log_loss": log_loss(p, test[1], clip=CLIP)} | scores


def run(n_splits: int, binary: bool = False) -> Iterator[Result]:
    """Every method on every split of every data set with every model."""
    judge, choose = (
        (measure_event, binary_candidates) if binary else (measure, candidates)
    )
    for data, (X, y) in events() if binary else shipped_data():
        started = time.perf_counter()
        halves = StratifiedShuffleSplit(n_splits, test_size=0.5, random_state=SEED)
        for split, (train, test) in enumerate(halves.split(X, y)):
            for model_name, model in MODELS.items():
                Remembered.shelf.clear()
                for method, candidate in choose(model):
                    parts = (X[train], y[train]), (X[test], y[test])
                    scores = judge(candidate, *parts, raw=method == "uncalibrated")
                    yield Result(data, model_name, method, split, scores)
        seconds = time.perf_counter() - started
        print(f"{data}: {y.size} rows, {seconds:.0f} s", file=sys.stderr)


# --- classifiers as they are given


def compare_given(path: Path) -> str:
    """The default and isotonic regression on classifiers of two classes with many
    examples.
    """
    rows = [["classifier", "examples", "default", "isotonic", "default less isotonic"]]
    chosen = [
        e
        for e in choose_experiments(path)
        if e.n_classes == 2 and e.val_labels.size >= MANY
    ]
    losses = [event_losses(experiment) for experiment in chosen]
    for experiment, (ours, theirs) in zip(chosen, losses, strict=True):
        gap = ours - theirs
        cells = [
            f"{experiment.val_labels.size}",
            f"{ours.mean():.4f}",
            f"{theirs.mean():.4f}",
        ]
        error = gap.std(ddof=1) / np.sqrt(gap.size)
        rows.append([experiment.name, *cells, f"{gap.mean():+.4f} ± {error:.4f}"])
    means = np.mean([[loss.mean() for loss in pair] for pair in losses], axis=0)
    rows.append(
        ["mean", "", *(f"{mean:.4f}" for mean in means), f"{means[0] - means[1]:+.4f}"]
    )
    return markdown(rows)


def event_losses(experiment: Experiment) -> tuple[np.ndarray, np.ndarray]:
    """Log loss of each test row, by the default and by isotonic regression of the
    log-odds.
    """
    scores, new = (
        z[:, 1] - z[:, 0] for z in (experiment.val_logits, experiment.test_logits)
    )
    default = make("auto").fit(experiment.val_logits, experiment.val_labels)
    isotonic = IsotonicRegression(out_of_bounds="clip").fit(
        scores, experiment.val_labels
    )
    found = default.predict_proba(experiment.test_logits)[:, 1], isotonic.predict(new)
    cut = [np.clip(p, CLIP, 1.0 - CLIP) for p in found]
    ours, theirs = (
        -np.log(np.where(experiment.test_labels == 1, p, 1.0 - p)) for p in cut
    )
    return ours, theirs


# --- tables


def mean_and_error(results: list[Result], metric: str) -> tuple[float, float]:
    """Mean over everything, and its standard error from how the means of the splits
    differ.
    """
    splits = sorted({result.split for result in results})
    means = [
        np.mean([result.scores[metric] for result in results if result.split == split])
        for split in splits
    ]
    return float(np.mean(means)), float(np.std(means, ddof=1) / np.sqrt(len(means)))


def overall_table(results: list[Result]) -> str:
    """One row per method, one column per metric: mean ± standard error, log loss in
    nats, the rest in percent.
    """
    rows = [["method", *METRICS]]
    for method in dict.fromkeys(result.method for result in results):
        own = [result for result in results if result.method == method]
        cells = []
        for metric in METRICS:
            mean, error = mean_and_error(own, metric)
            scale, digits = (1, 4) if metric == "log loss" else (100, 2)
            cells.append(f"{scale * mean:.{digits}f} ± {scale * error:.{digits}f}")
        rows.append([method, *cells])
    return markdown(rows)


def event_table(results: list[Result]) -> str:
    """One row per method: means over data and models, with 95 % intervals over the
    splits.
    """
    names = list(results[0].scores)
    rows = [["method", *names, "log loss less the default's"]]
    methods = list(dict.fromkeys(result.method for result in results))
    by_split: dict[str, np.ndarray] = {}
    for method in methods:
        own = [result for result in results if result.method == method]
        by_split[method] = np.array(
            [
                [
                    np.nanmean([r.scores[name] for r in own if r.split == split])
                    for name in names
                ]
                for split in sorted({result.split for result in own})
            ]
        )
    default = by_split["hokical, the default"][:, 0]
    for method in methods:
        cells = [_with_ends(column) for column in by_split[method].T]
        gap = by_split[method][:, 0] - default
        rows.append([method, *cells, _with_ends(gap) if gap.any() else ""])
    return markdown(rows)


def _with_ends(values: np.ndarray) -> str:
    """A mean over splits with Student's interval."""
    width = stdtrit(values.size - 1, 0.975) * values.std(ddof=1) / np.sqrt(values.size)
    return (
        f"{values.mean():.4f} ({values.mean() - width:.4f} to "
        f"{values.mean() + width:.4f})"
    )


def table_by(results: list[Result], field: str, metric: str) -> str:
    """One row per method, one column per model or data set, the least of each column
    in bold.
    """
    cells: dict[tuple[str, str], list[float]] = {}
    for result in results:
        key = (result.method, getattr(result, field))
        cells.setdefault(key, []).append(result.scores[metric])
    means = {key: float(np.mean(values)) for key, values in cells.items()}
    methods, columns = (
        list(dict.fromkeys(names)) for names in zip(*means, strict=True)
    )
    least = {
        column: min(means[method, column] for method in methods) for column in columns
    }
    rows = [[metric, *columns]]
    for method in methods:
        line = [(means[method, column], least[column]) for column in columns]
        rows.append(
            [method, *(f"**{v:.4f}**" if v == best else f"{v:.4f}" for v, best in line)]
        )
    return markdown(rows)


def markdown(rows: list[list[str]]) -> str:
    """A Markdown table; the first row is the head, numbers stand at the right."""
    head, *body = rows
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *body))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=6, help="halvings per data set")
    parser.add_argument("--binary", action="store_true", help="two classes, the event")
    parser.add_argument(
        "--given", type=Path, metavar="FILE.npz", help="classifiers, as in a study"
    )
    options = parser.parse_args()
    if options.given:
        print(compare_given(options.given))
        return
    with threadpool_limits(1), warnings.catch_warnings():
        # Small folds: fits that end at a bound, and rare classes. Neither is news here.
        warnings.simplefilter("ignore")
        results = list(run(options.splits, options.binary))
    if options.binary:
        print(event_table(results), end="\n\n")
        print(table_by(results, "data", "log_loss"))
        return
    print(overall_table(results), end="\n\n")
    for field, metric in (
        ("model", "log loss"),
        ("data", "log loss"),
        ("model", "ECE"),
    ):
        print(table_by(results, field, metric), end="\n\n")


if __name__ == "__main__":
    main()

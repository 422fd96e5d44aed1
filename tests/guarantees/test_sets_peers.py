"""The same sets as other libraries, to the element, where the method is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from hokical import make
from tests.conftest import softmax_examples

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]
#: (n + 1) coverage is no whole number, where MAPIE and crepes take one example more
#: than needed.
N, CLASSES = 700, 8


@pytest.fixture(scope="module")
def data() -> Any:
    """Probabilities as logits, so that every library has the same scores."""
    rows, labels = softmax_examples(N, CLASSES, seed=1)
    new = softmax_examples(900, CLASSES, seed=2)[0]
    softmax = [np.exp(z - np.logaddexp.reduce(z, axis=1)[:, None]) for z in (rows, new)]
    cal = make("uncalibrated").fit(rows, labels).certify(rows, labels)
    return cal, rows, labels, new, *softmax


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("kind", ["LAC", "APS", "RAPS", "by class"])
def test_torchcp(data: Any, coverage: float, kind: str, monkeypatch: Any) -> None:
    """Its draws are all 1: then a class has the sum of the likelier ones, as here."""
    torch = pytest.importorskip("torch")
    predictor = pytest.importorskip("torchcp.classification.predictor")
    scores = pytest.importorskip("torchcp.classification.score")
    cal, rows, labels, new, *_ = data
    monkeypatch.setattr(
        torch, "rand", lambda *shape, **options: torch.ones(*shape, **options)
    )
    made = {
        "LAC": lambda: scores.LAC(),
        "APS": lambda: scores.APS(),
        "RAPS": lambda: scores.RAPS(penalty=0.02, kreg=2),
        "by class": lambda: scores.LAC(),
    }[kind]()
    options: dict[str, Any] = {
        "LAC": {},
        "APS": {"kind": "adaptive"},
        "RAPS": {"kind": "adaptive", "penalty": 0.02, "free_ranks": 2},
        "by class": {"by": "class"},
    }[kind]
    home = (
        predictor.ClassConditionalPredictor
        if kind == "by class"
        else predictor.SplitPredictor
    )
    theirs = home(made, device=torch.device("cpu"))
    theirs.calculate_threshold(torch.tensor(rows), torch.tensor(labels), 1.0 - coverage)
    sets = np.asarray(theirs.predict_with_logits(torch.tensor(new))) > 0
    found = cal.predict_set(new, coverage=coverage, allow_empty=True, **options)
    np.testing.assert_array_equal(found.members, sets)


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_mapie(data: Any, coverage: float) -> None:
    mapie = pytest.importorskip("mapie.classification")
    from sklearn.base import BaseEstimator, ClassifierMixin

    cal, _, labels, new, proba, new_proba = data

    class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        classes_ = np.arange(CLASSES)
        fitted_ = True

        def fit(self, X: Any, y: Any) -> Any:
            return self

        def predict(self, X: Any) -> Any:
            return X.argmax(axis=1)

        def predict_proba(self, X: Any) -> Any:
            return X

    theirs = mapie.SplitConformalClassifier(
        Given(), confidence_level=coverage, conformity_score="lac", prefit=True
    )
    sets = theirs.conformalize(proba, labels).predict_set(new_proba)[1][:, :, 0]
    found = cal.predict_set(new, coverage=coverage, allow_empty=True)
    np.testing.assert_array_equal(found.members, sets)


@pytest.mark.parametrize("by", ["all", "class"])
def test_crepes(data: Any, by: str) -> None:
    crepes = pytest.importorskip("crepes")
    extras = pytest.importorskip("crepes.extras")
    cal, _, labels, new, proba, new_proba = data
    alphas = extras.hinge(proba, np.arange(CLASSES), labels)
    bins = {"bins": labels} if by == "class" else {}
    theirs = crepes.ConformalClassifier().fit(alphas, **bins)
    given = extras.hinge(new_proba)
    if by == "class":
        columns = [
            theirs.predict_set(
                given[:, [k]],
                bins=np.full(len(new), k),
                confidence=0.903,
                smoothing=False,
            )
            for k in range(CLASSES)
        ]
        sets = np.concatenate(columns, axis=1)
    else:
        sets = theirs.predict_set(given, confidence=0.903, smoothing=False)
    found = cal.predict_set(new, coverage=0.903, by=by, allow_empty=True)
    np.testing.assert_array_equal(found.members, sets > 0)


def test_torch_uncertainty_takes_a_quantile_of_n(data: Any) -> None:
    """`torch.quantile(scores, coverage)`: no example more for the new one, so a
    little less.
    """
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_uncertainty")
    try:
        from torch_uncertainty.post_processing import ConformalClsTHR
    except ImportError as error:
        pytest.skip(f"torch-uncertainty lacks a package: {error}")
    cal, rows, labels, new, *_ = data
    theirs = ConformalClsTHR(
        alpha=0.1, model=torch.nn.Identity(), enable_ts=False, device="cpu"
    )
    pairs = [(torch.tensor(rows), torch.tensor(labels))]
    theirs.fit(pairs)
    sets = theirs.conformal(torch.tensor(new)).numpy() > 0
    found = cal.predict_set(new, coverage=0.9)
    noted = cal.predictor_.held_out.conformity
    assert float(theirs.q_hat) == pytest.approx(
        np.quantile(1.0 - noted.proba, 0.9), abs=1e-12
    )
    assert (sets <= found.members).all()
    assert 0 < (found.members & ~sets).mean() < 0.005


def test_mapie_controls_precision_as_well() -> None:
    """The same guarantee and splits: ours finds no less, and neither breaks it too
    often.
    """
    control = pytest.importorskip("mapie.risk_control")
    new, truth = softmax_examples(20_000, 2, seed=3, spread=1.0)
    proba = softmax(new, axis=1)[:, 1]
    thresholds, broken, found = np.linspace(0.99, 0.0, 100), np.zeros(2), np.zeros(2)
    for seed in range(20):
        rows, labels = softmax_examples(500, 2, seed=100 + seed, spread=1.0)
        theirs = control.BinaryClassificationController(
            lambda X: X, risk="precision", target_level=0.8, confidence_level=0.9
        ).calibrate(softmax(rows, axis=1), labels)
        cal = (
            make("uncalibrated")
            .fit(*softmax_examples(50, 2))
            .control_risk(
                rows,
                labels,
                risk=0.2,
                delta=0.1,
                thresholds=thresholds,
                loss=lambda p, y, t: np.where(p[:, 1] >= t, y != 1, np.nan),
            )
        )
        for k, limit in enumerate((cal.threshold, theirs.best_predict_param)):
            flagged = proba >= (2.0 if limit is None or np.isnan(limit) else limit)
            found[k] += flagged.mean()
            broken[k] += flagged.any() and (truth[flagged] != 1).mean() > 0.2
    assert broken[0] <= 0.1 * 20 + 2.0 * (0.09 * 20) ** 0.5
    assert found[0] >= 0.97 * found[1]

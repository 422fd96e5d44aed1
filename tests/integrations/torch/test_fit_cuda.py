"""Fits on a GPU are the fits on the host, and nothing with a number per class leaves
the GPU.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from hokical import Gaussian, Hoki, Uniform, label_stability, select_noise
from hokical.calibrators import make

torch = pytest.importorskip("torch")


pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU"
)

N_ROWS, N_CLASSES = 2500, 12
METHODS: dict[str, dict[str, Any]] = {
    "uncalibrated": {},
    "temps": {},
    "ets": {},
    "vecs": {},
    "irm": {},
    "irova_ts": {},
    "hoki": {},
    "auto": {},
}


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    labels = rng.integers(N_CLASSES, size=N_ROWS)
    logits = 2.0 * (
        rng.normal(size=(N_ROWS, N_CLASSES)) + 1.5 * np.eye(N_CLASSES)[labels]
    )
    hidden = rng.random(logits.shape) < 0.05
    hidden[np.arange(N_ROWS), labels] = False
    logits[hidden] = -np.inf
    logits = logits.astype(np.float32)
    weights = rng.integers(0, 3, size=N_ROWS) * 0.7
    return {"logits": logits, "labels": labels, "weights": weights}


def fitted(name: str, data: dict[str, Any], weighted: bool, device: str) -> Any:
    given = {key: torch.from_numpy(value).to(device) for key, value in data.items()}
    weights = given["weights"] if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibrator = make(name, **METHODS[name])
        return calibrator.fit(given["logits"], given["labels"], weights)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("name", METHODS)
def test_a_fit_on_the_gpu_is_the_fit_on_the_host(
    name: str, weighted: bool, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fitted(name, data, weighted, "cpu")
    plain = torch.Tensor.cpu

    def guarded(self: Any, *args: Any, **options: Any) -> Any:
        sorts = name in (
            "irm",
            "irova_ts",
        )  # SciPy fits isotonic regressions, on the host
        assert sorts or self.device.type == "cpu" or self.numel() < N_ROWS * N_CLASSES
        return plain(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "cpu", guarded)
        found = fitted(name, data, weighted, "cuda")
    for method in ("predict_confidence", "predict_proba"):
        one, other = (getattr(cal, method)(data["logits"]) for cal in (expected, found))
        np.testing.assert_allclose(other, one, atol=1e-6)
    there = torch.from_numpy(data["logits"]).cuda()
    confidence = found.predict_confidence(there)
    assert confidence.is_cuda
    assert found.predict(there).is_cuda
    if name != "irova_ts":  # whose functions have steps
        wanted = expected.predict_confidence(data["logits"])
        np.testing.assert_allclose(confidence.cpu(), wanted, atol=1e-5)


def test_other_answers_stay_on_the_gpu(data: dict[str, Any]) -> None:
    logits = torch.from_numpy(data["logits"]).cuda()
    labels = torch.from_numpy(data["labels"]).cuda()
    cal = Hoki(noise=Gaussian(2.0)).fit(logits, labels)
    answers = [cal.stability(logits), cal.predict_interval(logits)]
    found = cal.certify(1.01 * logits, labels).predict_or_abstain(logits, risk=0.2)
    answers += [found.labels, found.accepted, found.labels_or(-1)]
    answers += [
        label_stability(logits, noise) for noise in (Gaussian(2.0), Uniform(-3.0, 3.0))
    ]
    assert all(answer.is_cuda for answer in answers)
    twin = Hoki(noise=Gaussian(2.0)).fit(data["logits"], data["labels"])
    np.testing.assert_array_equal(cal.table_.weight, twin.table_.weight)
    assert cal.score(logits, labels) == pytest.approx(
        twin.score(data["logits"], data["labels"])
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_float_type_is_taken(dtype: Any, data: dict[str, Any]) -> None:
    logits = torch.from_numpy(data["logits"]).to(dtype)
    labels = torch.from_numpy(data["labels"])
    found = select_noise(logits.cuda(), labels.cuda())
    assert found.noise == select_noise(logits, labels).noise


def test_fits_are_the_same_every_time(data: dict[str, Any]) -> None:
    for name in ("irm", "irova_ts", "vecs", "ets"):
        one, other = (fitted(name, data, True, "cuda") for _ in range(2))
        np.testing.assert_array_equal(
            one.predict_confidence(data["logits"]),
            other.predict_confidence(data["logits"]),
        )


def test_bad_logits_are_refused_in_the_words_for_arrays(data: dict[str, Any]) -> None:
    bad = data["logits"].copy()
    bad[7, 2] = np.nan
    with pytest.raises(ValueError, match="got NaN in row 7, column 2"):
        Hoki().fit(torch.from_numpy(bad).cuda(), data["labels"])
    with pytest.raises(ValueError, match=r"must be 2-D \(n, classes\)"):
        Hoki().fit(torch.from_numpy(bad).cuda()[0], data["labels"])

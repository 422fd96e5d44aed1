"""What is computed per pair, that it is stored and found again, and that runs
resume.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from tests.conftest import synthetic_logits

from hokical import Gaussian, Hoki, Uniform, label_stability
from hokical.calibrators import make
from hokical.metrics import brier, ece
from hokical_paper.from_confidence import HokiFromConfidence
from hokical_paper.running import cache as cache_module
from hokical_paper.running import cells as running
from hokical_paper.running import experiments
from hokical_paper.running.cache import Cache
from hokical_paper.running.experiments import run_method
from hokical_paper.running.input_stability import (
    StabilityCalibrator,
    fit_beside,
    fit_inputs,
    fit_mix,
    input_stability,
)
from hokical_paper.running.isotonic import fit_irm, fit_irova_ts
from hokical_paper.running.methods import (
    AUTO_BESIDE,
    EXACT,
    INPUT,
    IRM,
    MIXED,
    SAMPLED,
    why_absent,
)
from hokical_paper.running.noise_grid import select_on_grid
from hokical_paper.running.results import Result, Results
from hokical_paper.suite.manifest import Pair, PairData, Suite, open_suite
from paper.tests.tiny_suite import run_quick


@pytest.fixture
def pair(suite_folder: Path) -> Pair:
    return open_suite(suite_folder).pairs[0]


@pytest.mark.slow
def test_the_whole_grid_has_1640_settings_each_with_its_own_draws() -> None:
    logits, labels = synthetic_logits(30, 3, seed=5)
    found = select_on_grid(logits, labels, draws=6, seed=3, within=0.0)
    noises = [trial.noise for trial in found.trials]
    assert len(set(noises)) == len(noises) == 1640
    assert {Gaussian(2, -20), Uniform(-16, -8)} <= set(noises)
    for place in (0, 777, 1639):
        trial = found.trials[place]
        gamma = label_stability(logits, trial.noise, draws=6, random_state=3 + place)
        confidence = trial.alpha * gamma + trial.beta * (1.0 - gamma)
        assert confidence.mean() == pytest.approx(
            (logits.argmax(axis=1) == labels).mean()
        )
        assert confidence.std() == pytest.approx(trial.sigma_hat, abs=1e-12)
    assert found.sigma_hat == max(trial.sigma_hat for trial in found.trials)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", [0, 1])
def test_settings_left_out_cannot_win(seed: int) -> None:
    logits, labels = synthetic_logits(60, 4, seed=seed)
    whole = select_on_grid(logits, labels, draws=150, seed=seed, within=0.75)
    part = select_on_grid(logits, labels, draws=150, seed=seed)
    assert (part.noise, part.sigma_hat) == (whole.noise, whole.sigma_hat)
    assert len(part.trials) < len(whole.trials)


def test_registered_method_is_fitted_and_measured(pair: Pair) -> None:
    data = pair.load()
    result = run_method(pair, data, "irova_ts")
    fitted = make("irova_ts").fit(data.val_logits, data.val_labels)
    rows = (
        fitted.predict_confidence(data.test_logits),
        fitted.predict(data.test_logits) == data.test_labels,
    )
    assert result.score("brier") == pytest.approx(brier(*rows), rel=1e-12)
    assert result.ece_by_bins == {
        bins: ece(*rows, n_bins=bins) for bins in (5, 10, 15, 30, 50, 100)
    }
    assert result.score("ece") == result.ece_by_bins[15] == result.diagram.ece
    assert result.fit_seconds is not None
    assert result.scores["ece"].low <= result.scores["ece"].high


def test_uncalibrated_learns_nothing(pair: Pair) -> None:
    assert run_method(pair, pair.load(), "uncalibrated").fit_seconds is None


def test_recal_is_what_was_stored(pair: Pair, suite_folder: Path) -> None:
    data = pair.load()
    result = run_method(pair, data, "recal")
    assert data.recal_confidence is not None
    assert result.score("ece") == ece(data.recal_confidence, data.test_correct)
    assert result.fit_seconds == 1.5
    without = open_suite(suite_folder)["imagenet_small"]
    with pytest.raises(ValueError, match="no ReCal confidences"):
        run_method(without, without.load(), "recal")


def test_hoki_exact_is_the_library_default(pair: Pair) -> None:
    data = pair.load()
    result = run_method(pair, data, EXACT)
    plain = Hoki().fit(data.val_logits, data.val_labels)
    start = HokiFromConfidence(noise=plain.noise_).fit(data.val_logits, data.val_labels)
    assert result.score("ece") == ece(
        plain.predict_confidence(data.test_logits), data.test_correct
    )
    assert result.facts["ece_from_confidence"] == ece(
        start.predict_confidence(data.test_logits), data.test_correct
    )
    assert result.facts["sigma_hat"] == plain.selection_.sigma_hat


@pytest.mark.slow
def test_hoki_sampled_is_the_paper_s(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "N_DRAWS", 8)
    data = pair.load()
    result = run_method(pair, data, SAMPLED)
    found = select_on_grid(data.val_logits, data.val_labels, draws=8, seed=0)
    plain = Hoki(noise=found.noise, draws=8, unseen="as_printed", random_state=0)
    plain.fit(data.val_logits, data.val_labels)
    assert result.facts["noise"] == experiments.noise_text(found.noise)
    assert result.score("ece") == ece(
        plain.predict_confidence(data.test_logits), data.test_correct
    )


def test_recursion_on_a_stability_is_hoki_s(pair: Pair) -> None:
    data = pair.load()
    hoki = Hoki(unseen="as_printed").fit(data.val_logits, data.val_labels)
    correct = data.val_logits.argmax(axis=1) == data.val_labels
    twin = StabilityCalibrator.fit(
        hoki.stability(data.val_logits), correct, levels=1 << 16
    )
    np.testing.assert_array_equal(
        twin.confidence(hoki.stability(data.test_logits)),
        hoki.predict_confidence(data.test_logits),
    )


def test_input_stability_counts_views() -> None:
    rng = np.random.default_rng(0)
    kept = rng.uniform(size=(400, 20)) < 0.7
    correct = rng.uniform(size=400) < input_stability(kept)
    found = fit_inputs(kept, correct)
    confidence = found.confidence(input_stability(kept))
    assert found.levels == 20
    assert (
        ece(confidence, correct) < 1e-12
    )  # a fixed point: every bin is right on average
    by_count = [set(confidence[kept.sum(axis=1) == n].tolist()) for n in range(21)]
    assert all(len(values) <= 1 for values in by_count)


def test_the_mix_takes_what_tells_more() -> None:
    rng = np.random.default_rng(1)
    correct = rng.uniform(size=2000) < 0.7
    telling = np.where(correct, 0.9, 0.2) + rng.uniform(-0.1, 0.1, size=2000)
    idle = rng.uniform(size=2000)
    assert fit_mix(telling, idle, correct).weight <= 0.2
    mix = fit_mix(idle, telling, correct)
    assert mix.weight >= 0.5
    alone = StabilityCalibrator.fit(idle, correct, levels=1 << 16)
    assert brier(mix.confidence(idle, telling), correct) < brier(
        alone.confidence(idle), correct
    )


def test_views_are_compared_with_plain_hoki(pair: Pair) -> None:
    data = pair.load()
    both = run_method(pair, data, MIXED)
    plain = Hoki(unseen="as_printed").fit(data.val_logits, data.val_labels)
    rows = (plain.predict_confidence(data.test_logits), data.test_correct)
    difference = both.score("brier") - brier(*rows)
    assert both.facts["change"]["brier"] == pytest.approx(difference, abs=1e-12)
    assert 0.0 <= both.facts["weight"] <= 1.0


def test_input_stability_beside_a_confidence(pair: Pair) -> None:
    """The suite's views tell more than its logits do; the changes are from `auto`."""
    data = pair.load()
    result = run_method(pair, data, AUTO_BESIDE)
    fitted = make("auto").set_params(keep_labels=True)
    fitted.fit(data.val_logits, data.val_labels)
    before = fitted.predict_confidence(data.test_logits)
    change = result.facts["change"]
    expected = result.score("brier") - brier(before, data.test_correct)
    assert change["brier"] == pytest.approx(expected, abs=1e-12)
    assert change["brier"] < -2.0 * change["brier_error"]
    assert result.facts["slope"] > 0.0


def test_no_information_in_the_inputs_gets_no_weight() -> None:
    rng = np.random.default_rng(0)
    calibrated = rng.uniform(0.3, 0.95, size=20_000)
    correct = rng.uniform(size=calibrated.size) < calibrated
    stability = rng.integers(21, size=calibrated.size) / 20
    beside = fit_beside(calibrated, stability, correct)
    np.testing.assert_allclose(
        beside.confidence(calibrated, stability), calibrated, atol=0.03
    )


def test_what_cannot_be_run_says_why(suite_folder: Path) -> None:
    pair = open_suite(suite_folder)["imagenet_small"]
    assert why_absent(pair, "recal", slow=False) == "not available"
    assert why_absent(pair, INPUT, slow=False) == "not available"
    assert why_absent(pair, "ms_odir", slow=False) is None
    large = Pair(pair.folder, {**pair.entry, "n_classes": 1000})
    assert why_absent(large, "ms_odir", slow=False) == "minutes (--slow)"
    assert why_absent(large, "ms_odir", slow=True) is None


def test_results_survive_the_cache(results: Results) -> None:
    for result in results.by_cell.values():
        again = Result.from_dict(json.loads(json.dumps(result.to_dict())))
        assert json.dumps(again.to_dict()) == json.dumps(result.to_dict())


def test_a_second_run_computes_nothing(
    ran: tuple[Path, Path, Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache, first = ran
    monkeypatch.setattr(running, "run_method", _refuse)
    again = run_quick(folder, cache)
    found, before = (
        {str(key): r.to_dict() for key, r in each.by_cell.items()}
        for each in (again, first)
    )
    assert json.dumps(found, sort_keys=True) == json.dumps(
        before, sort_keys=True
    )  # NaN is NaN


def _refuse(*_: Any, **__: Any) -> Result:
    raise AssertionError("this was to come from the cache")


def test_an_interrupted_run_keeps_what_it_has(
    suite_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def interrupted(pair: Pair, data: PairData, method: str, **options: Any) -> Result:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(pair.name)
        return run_method(pair, data, method, **options)

    monkeypatch.setattr(running, "run_method", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_quick(suite_folder, tmp_path / "cache", methods=["temps"])
    assert len(list((tmp_path / "cache").iterdir())) == 2
    done.clear()
    finished = run_quick(suite_folder, tmp_path / "cache", methods=["temps"])
    assert len(done) == 1
    assert len(finished.by_cell) == 3


@pytest.mark.slow
def test_processes_change_no_score(suite_folder: Path, tmp_path: Path) -> None:
    methods = ["temps", "hoki"]
    alone = run_quick(suite_folder, tmp_path / "one", methods=methods)
    beside = run_quick(suite_folder, tmp_path / "two", methods=methods, jobs=2)
    for key, result in alone.by_cell.items():
        # A process that has compiled kernels integrates at other nodes, to the errors
        # they state.
        for name, expected in result.scores.items():
            found = beside.by_cell[key].scores[name]
            both = zip(astuple(found), astuple(expected), strict=True)
            pairs = [pair for pair in both if isinstance(pair[1], float)]
            one, other = zip(*pairs, strict=True)
            assert one == pytest.approx(other, rel=1e-6, abs=1e-7, nan_ok=True)
        assert (result.n_parallel, beside.by_cell[key].n_parallel) == (1, 2)


def test_a_damaged_entry_is_computed_anew(suite_folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run_quick(suite_folder, cache, methods=["temps"])
    for path in cache.iterdir():
        path.write_text(path.read_text()[:40])
    assert len(run_quick(suite_folder, cache, methods=["temps"]).by_cell) == 3


def test_other_data_settings_or_code_are_another_entry(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path)
    result = run_method(pair, pair.load(), "temps")
    cache.put(pair, result)
    assert cache.get(pair, "temps") is not None
    assert cache.get(pair, "vecs") is None
    assert cache.get(pair, "temps", 6) is None
    changed = Pair(pair.folder, {**pair.entry, "files": {"mnist_lenet5.npz": "0" * 64}})
    assert cache.get(changed, "temps") is None
    monkeypatch.setattr(cache_module, "code_digest", lambda *entries: "other code")
    assert cache.get(pair, "temps") is None


def test_pairs_of_a_data_set_stand_together(results: Results) -> None:
    suite: Suite = results.suite
    assert list(suite.datasets) == ["MNIST", "CIFAR-10", "ImageNet"]
    assert results.reason(suite["imagenet_small"], "recal") == "not available"


@pytest.mark.slow
def test_a_sigterm_leaves_no_processes_behind() -> None:
    handler, others = (
        signal.getsignal(signal.SIGTERM),
        set(multiprocessing.active_children()),
    )
    children: set[Any] = set()

    def be_terminated() -> None:
        with running._pool(1) as pool:
            assert pool.submit(abs, -1).result() == 1
            children.update(set(multiprocessing.active_children()) - others)
            pool.submit(time.sleep, 60)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)

    with pytest.raises(SystemExit):
        be_terminated()
    assert len(children) == 1
    for child in children:
        for _ in range(
            3000
        ):  # `join` gives up where a thread of the pool has just reaped the child
            if child.exitcode is None:
                time.sleep(0.01)
        assert child.exitcode == -signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is handler


def test_published_isotonic_regressions_are_pooled_adjacent_violators() -> None:
    """Against the definition: the max over starts of the min over ends of means."""
    logits, labels = synthetic_logits(60, 3, seed=4)
    new, _ = synthetic_logits(40, 3, seed=5)

    def softmax(rows: np.ndarray, t: float) -> np.ndarray:
        shares = np.exp(rows / t - (rows / t).max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def curve(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
        order = np.argsort(x)
        x, y = x[order], y[order].astype(float)
        sums = np.concatenate([[0.0], np.cumsum(y)])
        n = y.size
        means = np.array(
            [
                [
                    (sums[j + 1] - sums[i]) / (j + 1 - i) if j >= i else np.inf
                    for j in range(n)
                ]
                for i in range(n)
            ]
        )
        fitted = [max(means[i, k:].min() for i in range(k + 1)) for k in range(n)]
        return np.interp(at, x, fitted)

    hits = np.arange(3) == labels[:, None]
    p, q = softmax(logits, 1.0), softmax(new, 1.0)
    expected = curve(p.ravel(), hits.ravel(), q.ravel()).reshape(q.shape) + 1e-9 * q
    np.testing.assert_allclose(fit_irm(logits, labels)(new), expected, atol=1e-12)

    def loss(log_t: float) -> float:
        return float(((softmax(logits, np.exp(log_t)) - hits) ** 2).sum())

    t = float(
        np.exp(
            minimize_scalar(
                loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-10}
            ).x
        )
    )
    p, q = softmax(logits, t), softmax(new, t)
    columns = [curve(p[:, k], hits[:, k], q[:, k]) for k in range(3)]
    expected = np.stack(columns, axis=1) + 1e-9 * q
    np.testing.assert_allclose(fit_irova_ts(logits, labels)(new), expected, atol=1e-5)


def test_published_rows_are_not_normalised(results: Results) -> None:
    pair = results.suite.pairs[0]
    data = pair.load()
    values = fit_irm(data.val_logits, data.val_labels)(data.test_logits)
    assert np.abs(values.sum(axis=1) - 1.0).max() > 0.01
    found = run_method(pair, data, IRM)
    top = values.max(axis=1).clip(0, 1)
    assert found.score("ece") == pytest.approx(ece(top, data.test_correct))
    assert found.score("ece") != results.score(pair, "irm", "ece")

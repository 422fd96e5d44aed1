"""On a CUDA device: the kernels, fits and predictions give what the host gives.

Needs few packages, so that it can be run on a bare machine with a GPU, from the repository's root:
`python -m pytest --noconftest -c /dev/null --rootdir=. tests/torch/test_cuda.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from hokical.guarantees import scores as core_scores
from hokical.logits import as_logits
from hokical.noise import Gaussian, Noise, Uniform
from hokical.stability import gaussian as core_gaussian
from hokical.stability import gumbel as core_gumbel
from hokical.stability import profile as core_profile
from hokical.stability import sampled as core_sampled
from hokical.stability import uniform as core_uniform
from tests.torch.examples import extreme_rows, off

torch = pytest.importorskip("torch")

from hokical import Hoki  # noqa: E402
from hokical.calibrators import make  # noqa: E402
from hokical.integrations.torch import as_module  # noqa: E402
from hokical.integrations.torch.kernels import (  # noqa: E402
    chebyshev,
    gaussian,
    gumbel,
    profile,
    rows,
    sampled,
    scores,
    uniform,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def normal(n: int, n_classes: int, spread: float) -> np.ndarray:
    return spread * np.random.default_rng(n_classes).normal(size=(n, n_classes))


CASES = {
    "awkward": extreme_rows(),
    "two classes": normal(300, 2, 3.0),
    "ten": normal(333, 10, 3.0).astype(np.float32),
    "few ties": np.rint(normal(300, 30, 1.0)).astype(np.float16),
    "hundred": normal(200, 100, 2.0).astype(np.float32),
    "thousand": normal(100, 1000, 2.0).astype(np.float16),
    "long": normal(10, 20_000, 0.5).astype(np.float32),
    "crowded": normal(20, 700, 0.01),
}


@pytest.fixture(params=list(CASES))
def values(request: pytest.FixtureRequest) -> np.ndarray:
    return CASES[request.param]


def tensors(values: np.ndarray) -> Iterator[torch.Tensor]:
    """The logits on the device, row by row and column by column."""
    there = torch.from_numpy(values).cuda()
    yield there
    yield there.T.contiguous().T


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("scale", [0.7, 4.0])
def test_stability(values: np.ndarray, scale: float, plain: bool) -> None:
    core = as_logits(values)
    for there in tensors(values):
        for theirs, ours, limit in (
            (core_gaussian, gaussian, 1e-11),
            (core_gumbel, gumbel, 1e-14),
            (core_uniform, uniform, 2e-7),
        ):
            got = ours.stability(there, scale, plain=plain)
            assert got.dtype == torch.float64
            assert off(theirs.stability(core, scale), got) < limit


@pytest.mark.parametrize("noise", [Gaussian(2.0), Uniform(-1.0, 2.0)])
def test_sampled(values: np.ndarray, noise: Noise) -> None:
    draws = core_sampled.Draws(noise, 5, 150, values.shape[1])
    expected = core_sampled.survivals(as_logits(values), draws)
    for there in tensors(values):
        assert off(expected, sampled.survivals(there, draws)) == 0.0


@pytest.mark.parametrize("n_draws", [1, 256, 257, 700])
def test_sampled_with_any_number_of_draws(n_draws: int) -> None:
    for name in ("awkward", "ten"):
        draws = core_sampled.Draws(Gaussian(2.0), 5, n_draws, CASES[name].shape[1])
        expected = core_sampled.survivals(as_logits(CASES[name]), draws)
        for there in tensors(CASES[name]):
            assert off(expected, sampled.survivals(there, draws)) == 0.0


def test_one_row(values: np.ndarray) -> None:
    core, there = as_logits(values[7:8]), torch.from_numpy(values[7:8]).cuda()
    draws = core_sampled.Draws(Gaussian(2.0), 5, 150, values.shape[1])
    assert off(core_sampled.survivals(core, draws), sampled.survivals(there, draws)) == 0.0
    assert off(core_gaussian.stability(core, 2.0), gaussian.stability(there, 2.0)) < 1e-11
    assert off(core_gumbel.stability(core, 2.0), gumbel.stability(there, 2.0)) < 1e-14
    assert off(core_uniform.stability(core, 2.0), uniform.stability(there, 2.0)) < 5e-7
    step = torch.tensor(0.2, dtype=torch.float64)
    for plain in (False, True):
        totals = chebyshev.sums(there, step, plain=plain)
        expected = chebyshev.sums(there.cpu(), step)
        np.testing.assert_allclose(totals.cpu(), expected, rtol=1e-11, atol=1e-11)


def test_torch_func() -> None:
    there = torch.from_numpy(normal(6, 30, 2.0)).cuda()
    leaf = there.clone().requires_grad_()
    for kernel in (gaussian.stability, gumbel.stability):
        expected = kernel(there, 2.0)
        got = torch.func.vmap(lambda row, kernel=kernel: kernel(row[None], 2.0)[0])(there)
        torch.testing.assert_close(got, expected, rtol=0.0, atol=1e-11)
        (slope,) = torch.autograd.grad(kernel(leaf, 2.0).sum(), leaf)
        got = torch.func.grad(lambda z, kernel=kernel: kernel(z, 2.0).sum())(there)
        torch.testing.assert_close(got, slope, rtol=0.0, atol=1e-11)


def test_sampled_ties() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(0, 3, (300, 40), generator=generator).float().cuda()
    noise = torch.randint(0, 2, (200, 40), generator=generator).float().cuda()
    fused, plain = (sampled.survivals(logits, noise, plain=plain) for plain in (False, True))
    assert torch.equal(fused, plain)


def test_the_rest(values: np.ndarray) -> None:
    core = as_logits(values)
    log_odds, chances = core_profile.log_odds_and_profile(core, 1.5, [0.5, 3.0])
    for there in tensors(values):
        got = profile.log_odds_and_profile(there, 1.5, [0.5, 3.0])
        assert off(log_odds, got[0]) < 1e-11
        assert off(np.maximum(chances, -700.0), got[1].clamp(min=-700.0)) < 1e-5
        assert off(core_scores.label_log_odds(core), scores.label_log_odds(there)) < 1e-5
        assert off(core_gaussian.distribution(core, 2.0), gaussian.distribution(there, 2.0)) < 1e-12
        assert off(core.labels, rows.labels(there)) == 0


def test_bfloat16() -> None:
    there = torch.from_numpy(CASES["hundred"]).cuda().bfloat16()
    core = as_logits(there.float().cpu().numpy())
    draws = core_sampled.Draws(Gaussian(1.0), 5, 37, 100)
    assert off(core_gaussian.stability(core, 2.0), gaussian.stability(there, 2.0)) < 1e-11
    assert off(core_gumbel.stability(core, 2.0), gumbel.stability(there, 2.0)) < 1e-14
    assert off(core_uniform.stability(core, 2.0), uniform.stability(there, 2.0)) < 2e-7
    assert off(core_sampled.survivals(core, draws), sampled.survivals(there, draws)) == 0


def test_a_row_does_not_see_its_batch() -> None:
    there = torch.from_numpy(CASES["hundred"]).cuda()
    for kernel in (gaussian.stability, gumbel.stability, uniform.stability):
        assert torch.equal(kernel(there, 2.0)[7:12], kernel(there[7:12], 2.0))


def test_no_rows() -> None:
    for kernel in (gaussian.stability, gumbel.stability, uniform.stability):
        assert kernel(torch.empty(0, 5, device="cuda"), 1.0).shape == (0,)


@pytest.mark.parametrize("kernel", [gaussian.stability, gaussian.distribution, gumbel.stability])
def test_gradients(kernel: object) -> None:
    values = torch.from_numpy(normal(4, 60, 2.0)).cuda().requires_grad_()
    scale = torch.tensor(1.3, dtype=torch.float64, device="cuda", requires_grad=True)
    assert torch.autograd.gradcheck(kernel, (values, scale))


def examples(n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    labels = rng.integers(n_classes, size=n)
    logits = 3.0 * (rng.normal(size=(n, n_classes)) + 2.0 * np.eye(n_classes)[labels])
    return logits.astype(np.float32), labels


METHODS = ("hoki", "temps", "ets", "vecs", "irm", "irova_ts", "ms_odir", "dir_odir", "profile")


@pytest.mark.parametrize("method", METHODS)
def test_fit_and_predict(method: str) -> None:
    logits, labels = examples(1500, 12)
    there, truth = torch.from_numpy(logits).cuda(), torch.from_numpy(labels).cuda()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here_fit = make(method).fit(logits, labels)
        there_fit = make(method).fit(there, truth)
    expected = here_fit.predict_confidence(logits)
    # A solver stops where it is close enough, and the two sums differ in their last digits.
    assert off(expected, there_fit.predict_confidence(there)) < 1e-5
    # The same calibrator, on either side.
    assert off(expected, here_fit.predict_confidence(there)) < 1e-6
    answer = here_fit.predict_proba(there)
    assert answer.is_cuda
    assert off(here_fit.predict_proba(logits), answer) < 1e-5
    assert off(here_fit.predict(logits), here_fit.predict(there)) == 0


def test_sampled_hoki() -> None:
    logits, labels = examples(1500, 12)
    there = torch.from_numpy(logits).cuda()
    both = [
        Hoki(noise=Gaussian(2.0), draws=100, random_state=0).fit(data, labels)
        for data in (logits, there)
    ]
    assert off(both[0].predict_confidence(logits), both[1].predict_confidence(there)) < 1e-6


def test_module_under_autocast() -> None:
    logits, labels = examples(1500, 12)
    module = as_module(Hoki().fit(logits, labels)).cuda()
    there = torch.from_numpy(logits).cuda()
    expected = module(there).confidence
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.equal(module(there).confidence, expected)

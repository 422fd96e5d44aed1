"""Confidence that can be differentiated: by autograd what finite differences say."""

from __future__ import annotations

import pytest

from hokical.stability.tables import EXACT_LEVELS
from tests.integrations.torch.examples import MAKERS, fitted, synthetic_logits

torch = pytest.importorskip("torch")

from hokical.integrations.torch import CalibratedModel, as_module  # noqa: E402

SMOOTH = ["uncalibrated", "temps", "vecs", "ets", "structured"]
STEPS = ["hoki gaussian", "hoki gumbel", "hoki uniform"]


def rows(n: int = 6, seed: int = 9) -> torch.Tensor:
    return torch.tensor(synthetic_logits(n, 5, seed=seed)[0])


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_methods_pass_gradcheck(name: str) -> None:
    module = as_module(fitted(name))
    logits = rows().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: module(z).confidence, (logits,), atol=1e-7
    )
    assert torch.autograd.gradcheck(module.proba, (logits,), atol=1e-7)


@pytest.mark.parametrize("name", STEPS)
def test_gradient_of_hoki_is_the_slope_of_its_step(name: str) -> None:
    """Central differences wide enough to cross many levels, on rows that stay on their
    step.

    Without the short steps that fill gaps between the calibration examples.
    """
    calibrator = MAKERS[name]().set_params(unseen="as_printed")
    module = as_module(calibrator.fit(*synthetic_logits(800, 5, seed=0)))
    # Close calls, where stability moves, from many rows: those next to a jump are left
    # out.
    logits = torch.tensor(
        synthetic_logits(400, 5, seed=9, stretch=1.0)[0]
    ).requires_grad_()
    (slope,) = torch.autograd.grad(module(logits).confidence.sum(), logits)
    differences = torch.zeros_like(slope)
    inside = torch.ones(400, dtype=torch.bool)
    reach = 0.05
    with torch.no_grad():
        for k in range(5):
            step = reach * torch.eye(5, dtype=torch.float64)[k]
            up, down = module(logits + step), module(logits - step)
            differences[:, k] = (up.confidence - down.confidence) / (2.0 * reach)
            inside &= up.labels == down.labels
    inside &= (differences.abs() < 0.05).all(dim=1)
    assert inside.sum() > 200
    # Rounding to levels moves a difference by slope / levels / reach at most, and
    # little else does.
    rounding = float(module.link_slope.abs().max()) / EXACT_LEVELS / reach
    gap = (slope - differences)[inside].abs().max()
    assert gap < rounding + 1e-5
    assert slope[inside].abs().max() > 50.0 * gap


@pytest.mark.parametrize("name", STEPS)
def test_asking_for_a_gradient_changes_no_confidence(name: str) -> None:
    module = as_module(fitted(name))
    plain = module(rows(50)).confidence
    assert torch.equal(module(rows(50).requires_grad_()).confidence.detach(), plain)


def test_confidence_without_a_gradient_says_so() -> None:
    module = as_module(fitted("hoki sampled"))
    assert not module(rows().requires_grad_()).confidence.requires_grad


@pytest.mark.parametrize("name", [*SMOOTH, *STEPS, "irm", "irova_ts"])
def test_gradients_are_finite_on_masked_tied_and_huge_rows(name: str) -> None:
    module = as_module(fitted(name))
    logits = rows(5)
    logits[0, 1:] = -torch.inf
    logits[1, 2:] = -torch.inf
    logits[2] = 0.0
    logits[3] *= 1e4
    logits.requires_grad_()
    weights = torch.arange(5.0, dtype=torch.float64)
    for answer in (module(logits).confidence, module.proba(logits) @ weights):
        (slope,) = torch.autograd.grad(answer.sum(), logits)
        assert torch.isfinite(slope).all()
        assert (slope[logits == -torch.inf] == 0.0).all()


@pytest.mark.parametrize("name", ["temps", "ets", *STEPS])
def test_torch_func_gives_what_autograd_gives(name: str) -> None:
    module = as_module(fitted(name))
    logits = torch.tensor(
        synthetic_logits(6, 5, seed=9, stretch=1.0)[0]
    ).requires_grad_()
    answer = module(logits).confidence
    (slope,) = torch.autograd.grad(answer.sum(), logits)
    assert slope.abs().max() > 1e-3
    plain = logits.detach()

    def of_row(row: torch.Tensor) -> torch.Tensor:
        return module(row).confidence

    close = {"rtol": 0.0, "atol": 1e-12}
    torch.testing.assert_close(torch.func.vmap(of_row)(plain), answer.detach(), **close)
    got = torch.func.grad(lambda z: module(z).confidence.sum())(plain)
    torch.testing.assert_close(got, slope, **close)
    torch.testing.assert_close(
        torch.func.vmap(torch.func.grad(of_row))(plain), slope, **close
    )


def test_confidence_can_train_a_network() -> None:
    torch.manual_seed(0)
    network = torch.nn.Linear(4, 5)
    model = CalibratedModel(network, fitted("temps"))
    inputs = torch.randn(32, 4)
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    before = model(inputs).confidence.mean()
    for _ in range(5):
        optimizer.zero_grad()
        (-model(inputs).confidence.mean()).backward()
        optimizer.step()
    assert model(inputs).confidence.mean() > before + 0.01


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script`:DeprecationWarning"
)  # torch's own
def test_forward_mode() -> None:
    module, x, along = as_module(fitted("temps")), rows(), rows(seed=10)
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        answer = module(forward_ad.make_dual(x, along)).confidence
        tangent = forward_ad.unpack_dual(answer).tangent
    x.requires_grad_()
    (slope,) = torch.autograd.grad(module(x).confidence.sum(), x)
    torch.testing.assert_close(tangent, (slope * along).sum(dim=1))

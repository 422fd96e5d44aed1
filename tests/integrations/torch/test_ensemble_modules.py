"""Modules of calibrators that pool members, against the calibrators themselves."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hokical import Ensemble, auto, make  # noqa: E402
from hokical.calibrators import with_sets  # noqa: E402
from hokical.integrations.torch import as_module  # noqa: E402
from tests.ensembles import named  # noqa: E402

VALIDATION = named(600, seed=1)
NEW, NEW_LABELS = named(300, seed=2)
STACK = torch.asarray(np.stack(NEW.members))
OPTIONS: list[dict[str, Any]] = [{}, {"keep_labels": True}, {"most_members": 2}]


def assert_as_in_python(module: Any, stack: Any, ensemble: Ensemble) -> None:
    labels, confidence = module(stack)
    calibrator = module.fitted
    assert (labels.numpy() == calibrator.predict(ensemble)).all()
    expected = calibrator.predict_confidence(ensemble)
    np.testing.assert_allclose(confidence, expected, rtol=1e-12)
    expected = calibrator.predict_proba(ensemble)
    np.testing.assert_allclose(module.proba(stack), expected, rtol=1e-12)
    expected = calibrator.predict_support(ensemble)
    assert (module.support(stack).numpy() == expected).all()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_answers_are_those_of_the_calibrator(options: dict[str, Any]) -> None:
    calibrator = auto(*VALIDATION, **options)
    module = as_module(calibrator)
    assert_as_in_python(module, STACK, NEW)
    needed = NEW.select(calibrator.needed_members_)
    assert_as_in_python(module, torch.asarray(np.stack(needed.members)), NEW)
    gappy = STACK.clone()
    gappy[2, ::3] = torch.nan
    assert_as_in_python(module, gappy, Ensemble(gappy.numpy(), NEW.names))
    assert "4 members" in repr(module)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_and_graphs_give_the_same(options: dict[str, Any]) -> None:
    module = as_module(auto(*VALIDATION, **options))
    labels, confidence = module(STACK)
    traced = STACK.clone().requires_grad_()
    smooth = module(traced)
    assert torch.equal(smooth.labels, labels)
    torch.testing.assert_close(smooth.confidence.detach(), confidence)
    (slope,) = torch.autograd.grad(smooth.confidence.sum(), traced)
    assert slope.isfinite().all()
    assert bool((slope != 0.0).any())
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        module, (STACK[:, :3].contiguous(),), dynamic_shapes=({1: batch},)
    ).module()
    assert torch.equal(program(STACK).labels, labels)
    torch.testing.assert_close(program(STACK).confidence, confidence)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_module_is_one_graph() -> None:
    module = as_module(auto(*VALIDATION, keep_labels=True))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(STACK).confidence, module(STACK).confidence)


def test_members_of_maps_have_more_axes() -> None:
    module = as_module(make("temps").fit(*VALIDATION))
    maps = STACK.reshape(4, 30, 10, 4)
    labels, confidence = module(maps)
    assert labels.shape == confidence.shape == (30, 10)
    assert torch.equal(labels.flatten(), module(STACK).labels)
    assert module.proba(maps).shape == module.pool(maps).shape == (30, 10, 4)


def test_rows_that_are_no_logits_have_no_confidence() -> None:
    module = as_module(make("temps").fit(*VALIDATION))
    stack = STACK.float()
    stack[1, :2] = torch.nan  # not evaluated: others were
    stack[:, 3] = torch.nan
    stack[0, 4, 1] = torch.inf
    stack[0, 5] = -torch.inf
    _, confidence = module(stack)
    assert confidence.dtype == torch.float32
    assert torch.isnan(confidence).nonzero().flatten().tolist() == [3, 4, 5]
    expected = module(stack.clone().requires_grad_()).confidence
    torch.testing.assert_close(confidence, expected.detach(), equal_nan=True)


def test_any_number_of_exchangeable_members() -> None:
    validation, labels = VALIDATION
    passes = Ensemble(np.stack(validation.members), exchangeable=True)
    module = as_module(make("temps").fit(passes, labels))
    more = torch.cat([STACK, STACK[:2]])
    ensemble = Ensemble(more.numpy(), exchangeable=True)
    assert_as_in_python(module, more, ensemble)
    with pytest.warns(UserWarning, match="1 exchangeable members; the fit had 4"):
        module(STACK[:1])


def test_groups_and_sets() -> None:
    validation, labels = VALIDATION
    grouped = auto(validation, labels, groups=labels % 2)
    codes = torch.as_tensor(grouped.group_codes(NEW_LABELS % 2))
    confidence = as_module(grouped)(STACK, codes).confidence
    expected = grouped.predict_confidence(NEW, groups=NEW_LABELS % 2)
    np.testing.assert_allclose(confidence, expected, rtol=1e-12)
    certified = auto(*VALIDATION).certify(*named(1500, seed=6))
    members = as_module(with_sets(certified, coverage=0.9)).members(STACK)
    assert (members.numpy() == certified.predict_set(NEW, coverage=0.9).members).all()


def test_a_state_dict_holds_the_pool() -> None:
    module = as_module(auto(*VALIDATION, most_members=2))
    other = as_module(make("temps").fit(*VALIDATION))
    stream = io.BytesIO()
    torch.save(module.state_dict(), stream)
    stream.seek(0)
    other.load_state_dict(torch.load(stream, weights_only=True))
    assert torch.equal(other(STACK).confidence, module(STACK).confidence)
    assert other.fitted.needed_members_ == module.fitted.needed_members_


def test_what_cannot_be_pooled_is_refused() -> None:
    module = as_module(make("temps").fit(*VALIDATION))
    with pytest.raises(ValueError, match=r"must be \(members, n, classes\) for a cal"):
        module(STACK[0])
    with pytest.raises(ValueError, match="got 3 without names"):
        module(STACK[:3])
    validation, labels = VALIDATION
    single = as_module(make("temps").fit(validation.members[0], labels))
    with pytest.raises(ValueError, match="nothing to pool"):
        single.pool(STACK[0])

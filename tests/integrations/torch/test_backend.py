"""Tensors at the edge: what is read, what is refused, what stays where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical._core.arrays import NUMPY, backend_of, to_host, to_input_library
from hokical._core.reading import as_labels, as_weights
from hokical.rules import as_logits
from tests.integrations.torch.examples import torch_backend

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from hokical.integrations.torch import backend as module  # noqa: E402

LOGITS = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)

BAD = {
    "nan": np.array([[1.0, 2.0, 3.0], [1.0, np.nan, 0.0]]),
    "inf": np.array([[1.0, 2.0, 3.0], [1.0, np.inf, 0.0]]),
    "no finite value": np.array([[1.0, 2.0, 3.0], [-np.inf] * 3]),
    "one dimension": np.zeros(3),
    "three dimensions": np.zeros((2, 2, 3)),
    "no rows": np.zeros((0, 3)),
    "one column": np.zeros((2, 1)),
    "complex": np.zeros((2, 3), complex),
}


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_tensors_are_refused_in_the_words_for_arrays(
    bad: np.ndarray, tracked: bool
) -> None:
    with pytest.raises(ValueError, match="`scores`") as expected:
        as_logits(bad, name="scores")
    with pytest.raises(ValueError, match="`scores`") as found:
        as_logits(torch.from_numpy(bad).requires_grad_(tracked), name="scores")
    assert str(found.value) == str(expected.value)


class Elsewhere:
    """As much of a tensor on an Apple GPU as the check looks at."""

    layout, is_nested = torch.strided, False
    device = torch.device("mps")

    def __init__(self, *, floating: bool = True, is_quantized: bool = False) -> None:
        self.is_floating_point = lambda: floating
        self.is_quantized = is_quantized


def test_what_torch_cannot_compute_with_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"`scores` must be a dense tensor.*`.to_dense\(\)`"
    ):
        as_logits(torch.zeros(2, 3).to_sparse(), name="scores")
    nested = torch.nested.nested_tensor(
        [torch.zeros(2), torch.zeros(3)], layout=torch.jagged
    )
    with pytest.raises(TypeError, match=r"must be a dense tensor.*`.to_padded"):
        as_logits(nested)
    with pytest.raises(TypeError, match=r"must be a dense tensor.*`.dequantize\(\)`"):
        torch_backend().check(Elsewhere(is_quantized=True), "logits")
    with pytest.raises(TypeError, match=r"floating point; got dtype torch\.bool"):
        as_logits(torch.zeros(2, 3, dtype=torch.bool, device="meta"))
    with pytest.raises(
        TypeError, match=r"a device with float64; got mps. Pass `.cpu\(\)`"
    ):
        torch_backend().check(Elsewhere(), "logits")
    labels = Elsewhere(floating=False)
    assert torch_backend().check(labels, "labels") is labels


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (torch.float16, "float"),
        (torch.bfloat16, "float"),
        (torch.float64, "float"),
        (torch.int32, "integer"),
        (torch.uint8, "integer"),
        (torch.bool, "bool"),
        (torch.complex64, "complex"),
    ],
)
def test_kinds(dtype: torch.dtype, kind: str) -> None:
    assert torch_backend().kind(torch.zeros(2, dtype=dtype)) == kind


def test_integers_and_tiny_floats_are_widened() -> None:
    whole = as_logits(torch.tensor([[1, 3], [2, 0]]))
    assert whole.values.dtype == np.float64
    np.testing.assert_array_equal(whole.labels, [1, 0])
    tiny = torch.tensor([[1.0, 3.0]]).to(torch.float8_e4m3fn)
    assert as_logits(tiny).values.dtype == np.float32


def test_tensors_on_the_host_are_read_where_they_lie() -> None:
    tensor = torch.from_numpy(LOGITS)
    for given_ in (tensor, torch.nn.Parameter(tensor, requires_grad=False)):
        read = as_logits(given_)
        assert read.is_numpy
        assert np.shares_memory(read.values, LOGITS)
    np.testing.assert_array_equal(as_logits(tensor.T).values, LOGITS.T)
    assert as_logits(tensor.bfloat16()).values.dtype == np.float32


def test_tensors_with_a_gradient_to_keep_stay_tensors() -> None:
    tracked = torch.from_numpy(LOGITS).requires_grad_()
    kept = as_logits(tracked)
    assert kept.values is tracked
    assert kept.top.requires_grad
    assert kept.without_gradient().values.requires_grad is False
    with torch.no_grad():
        assert as_logits(tracked).is_numpy


def test_a_subclass_is_a_tensor() -> None:
    class Special(torch.Tensor):
        pass

    Special.__module__ = "elsewhere"
    assert backend_of(torch.zeros(2, 3).as_subclass(Special)) is torch_backend()
    assert backend_of(LOGITS) is NUMPY


def test_labels_and_weights_come_to_the_host() -> None:
    labels = as_labels(torch.tensor([0, 2, 1], dtype=torch.int32), 3, 3)
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, [0, 2, 1])
    weights = as_weights(
        torch.tensor([1.0, 0.5, 2.0], dtype=torch.bfloat16, requires_grad=True), 3
    )
    np.testing.assert_array_equal(weights, [1.0, 0.5, 2.0])
    with pytest.raises(TypeError, match="must be integers"):
        as_labels(torch.tensor([0.0, 1.0]), 2, 3)
    with pytest.raises(ValueError, match=r"must lie in \[0, 2\].* got 3 in row 1"):
        as_labels(torch.tensor([0, 3]), 2, 3)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_answers_have_the_precision_of_what_was_given(dtype: torch.dtype) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    answer = to_input_library(np.array([0.5]), torch.zeros(1, 2, dtype=dtype))
    assert answer.dtype == wide
    assert (
        to_input_library(np.array([1]), torch.zeros(1, 2, dtype=dtype)).dtype
        == torch.int64
    )
    assert (
        to_input_library(np.array([0.5]), torch.zeros(1, 2, dtype=torch.int32)).dtype
        == torch.float64
    )


@given(
    st.sampled_from(["float64", "float32", "int64", "bool"]),
    st.lists(st.integers(0, 4), max_size=3),
)
def test_arrays_there_and_back(dtype: str, shape: list[int]) -> None:
    array = np.random.default_rng(0).normal(size=shape).astype(dtype)
    fixed = array.copy()
    fixed.flags.writeable = False
    for one in (array, fixed, array.T):
        there = torch_backend().from_host(one, torch.zeros(2))
        assert there.shape == one.shape
        np.testing.assert_array_equal(to_host(there), one)


def test_numbers_of_conjugate_views_come_out_right() -> None:
    number = torch.tensor([1.0 + 2.0j])
    np.testing.assert_array_equal(torch_backend().to_host(number.conj().imag), [-2.0])


class Device:
    """As much of a tensor on a GPU as `from_host` looks at; the device itself is
    `meta`.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device = torch.device("meta")
        monkeypatch.setattr(
            torch_backend(), "is_traced", lambda _: False, raising=False
        )


def test_tables_are_brought_to_a_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    like = Device(monkeypatch)
    table = np.arange(6.0)
    with torch.inference_mode():
        first = torch_backend().from_host(table, like)
    assert not first.is_inference()
    assert torch_backend().from_host(table.copy(), like) is first
    table[2] = 7.0  # changes in place are seen
    assert torch_backend().from_host(table, like) is not first
    assert torch_backend().from_host(table.reshape(2, 3), like).shape == (2, 3)
    large = np.zeros(module._LARGEST_SHARED_TABLE + 1)
    assert torch_backend().from_host(large, like) is not torch_backend().from_host(
        large, like
    )


def seen_in(transform: Any, values: Any) -> list[bool]:
    seen = []

    def look(row: Any) -> Any:
        seen.append(torch_backend().is_traced(row))
        return row.sum()

    transform(look)(values)
    return seen


def test_values_are_unknown_in_graphs_and_under_vmap() -> None:
    values = torch.zeros(3, 2)
    assert not torch_backend().is_traced(values)
    assert torch_backend().is_traced(values.to("meta"))
    with FakeTensorMode() as mode:
        assert torch_backend().is_traced(mode.from_tensor(values))
    assert seen_in(torch.func.vmap, values) == [True]
    assert seen_in(torch.func.grad, values) == [False]
    assert seen_in(lambda look: torch.func.vmap(torch.func.grad(look)), values) == [
        True
    ]


def test_numbers_of_a_differentiated_function_can_be_read() -> None:
    read = []

    def look(row: Any) -> Any:
        read.append(torch_backend().to_host(row))
        assert torch_backend().host_view(row) is None
        return row.sum()

    torch.func.grad(look)(torch.tensor([1.0, 2.0]))
    np.testing.assert_array_equal(read, [[1.0, 2.0]])


def test_rounded_numbers_follow_the_gradient_of_the_smooth_ones() -> None:
    smooth = torch.tensor([0.4, 1.6], requires_grad=True)
    followed = torch_backend().follow(torch.round(smooth), smooth)
    assert followed.tolist() == [0.0, 2.0]
    followed.sum().backward()
    assert smooth.grad.tolist() == [1.0, 1.0]
    rounded = torch.zeros(2)
    assert torch_backend().follow(rounded, smooth.detach()) is rounded

"""Arrays of any library: told apart, read, and answered in kind."""

from __future__ import annotations

import numpy as np
import pytest

from hokical._core import arrays
from hokical._core.arrays import (
    NUMPY,
    Backend,
    announce_backend,
    backend_of,
    float64_scope,
    is_from,
    to_float64,
    to_host,
    to_input_library,
)
from tests.libraries import NAMES, get_library

VALUES = np.array([[1.0, 2.5], [-3.0, 0.0]])


@pytest.mark.parametrize("name", NAMES)
def test_arrays_are_read(name: str) -> None:
    library = get_library(name)
    with library.scope():
        array = library.make(VALUES.copy())
        backend = backend_of(array)
        assert isinstance(backend, Backend)
        assert backend.kind(array) == "float"
        np.testing.assert_array_equal(to_host(array), VALUES)
        xp = backend.namespace(array)
        assert backend.kind(array > 0.0) == "bool"
        assert backend.kind(xp.argmax(array, axis=1)) == "integer"
        assert to_float64(array, xp) is array
        assert library.owns(backend.from_host(VALUES, array))
        assert not backend.is_traced(array)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", ["float32", "float64", "int64"])
def test_answers_are_given_in_kind(name: str, given: str) -> None:
    if name == "torch with gradient" and given == "int64":
        pytest.skip("integers have no gradient")
    library = get_library(name)
    with library.scope():
        array = library.make(VALUES.astype(given))
        answer = to_input_library(VALUES[:, 0], array)
        labels = to_input_library(np.array([1, 0]), array)
        assert library.owns(answer)
        narrow = given == "float32" and name != "numpy"
        assert str(answer.dtype).endswith("float32" if narrow else "float64")
        assert str(labels.dtype).endswith("int64")
        np.testing.assert_array_equal(library.read(answer), VALUES[:, 0])


def test_what_is_no_array_gets_numpy_back() -> None:
    answer = np.ones(3)
    assert backend_of([1.0, 2.0]) is None
    assert to_input_library(answer, [1.0, 2.0]) is answer
    assert not is_from([], "numpy")
    assert is_from(VALUES, "numpy")
    np.testing.assert_array_equal(to_host([1.0, 2.0]), [1.0, 2.0])
    with float64_scope([1.0]):
        pass


def test_jax_has_float64_within_its_scope() -> None:
    jax = pytest.importorskip("jax")
    array = jax.numpy.asarray(VALUES.astype(np.float32))
    with float64_scope(array):
        wide = to_float64(array, jax.numpy)
        assert wide.dtype == np.float64


def test_libraries_announce_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_backends", {"numpy": NUMPY})

    class Column:
        shape = (2, 2)

    Column.__module__ = "columns.core"
    assert backend_of(Column()) is None
    mine = Backend()
    monkeypatch.setitem(arrays._backends, "columns", mine)
    assert backend_of(Column()) is mine
    announce_backend("columns", "no.such.module")  # known already: nothing is imported
    assert backend_of(Column()) is mine

    class Scalar:
        """A type of the library that is no array."""

    Scalar.__module__ = "columns.core"
    assert backend_of(Scalar()) is None

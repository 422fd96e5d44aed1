"""JAX arrays: computed in float64 where they are, also while JAX traces them."""

from importlib import import_module
from typing import Any

from hokical._core.arrays import AnyArray, Array, Backend


class JaxBackend(Backend):
    """JAX has float64 only where it is asked for; here it is, for the length of a
    call.
    """

    def from_host(self, array: AnyArray, like: Array) -> Array:
        return self.namespace(like).asarray(array)

    def is_traced(self, array: Array) -> bool:
        return isinstance(array, import_module("jax.core").Tracer)

    def without_gradient(self, array: Array) -> Array:
        return import_module("jax.lax").stop_gradient(array)

    def follow(self, rounded: Array, smooth: Array) -> Array:
        return self.without_gradient(rounded) + (smooth - self.without_gradient(smooth))

    def in_float64(self) -> Any:
        return import_module("jax").enable_x64(True)


BACKEND = JaxBackend()

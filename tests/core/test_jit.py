"""Kernels are compiled when they are first called, and only where that pays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hokical.core import jit
from hokical.core.jit import Kernel, kernel


@kernel
def _twice(x: float) -> float:
    """Doubled."""
    return 2.0 * x


@kernel
def sum_twice(values: np.ndarray) -> float:
    total = 0.0
    for i in range(values.size):
        total += _twice(values[i])
    return total


def test_kernels_that_call_each_other() -> None:
    pytest.importorskip("numba")
    assert isinstance(sum_twice, Kernel)
    assert sum_twice.__name__ == "sum_twice"
    assert sum_twice(np.arange(5.0)) == 20.0
    assert sum_twice.is_compiled


def test_few_logits_are_not_worth_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")

    @kernel
    def cold(x: float) -> float:
        return x

    assert not cold.worthwhile(100_000)
    assert cold.worthwhile(10_000_000)
    cold.compiled  # noqa: B018  (compiles)
    assert cold.worthwhile(100_000)
    assert cold.worthwhile(10)
    monkeypatch.setattr(jit, "has_compiler", lambda: False)
    assert not cold.worthwhile(10_000_000)


def test_without_a_compiler_everything_is_portable() -> None:
    """numba absent: the same numbers, more slowly."""
    script = """
import sys
sys.modules["numba"] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "numba" else find(name, *a)
import hokical.core.jit as jit
jit.find_spec = importlib.util.find_spec
import numpy as np
from hokical import Gaussian, Gumbel, Uniform, label_distribution, label_stability
rows = np.random.default_rng(0).normal(size=(2000, 1100))
for noise in (Gaussian(1.0), Uniform(0, 1), Gumbel(1.0)):
    gamma = label_stability(rows, noise)
    assert ((gamma > 0.0) & (gamma <= 1.0)).all()
pi = label_distribution(rows[:20], Uniform(0, 1))
assert abs(pi.sum(axis=1) - 1.0).max() < 1e-12
print("numba" in {name for name, module in sys.modules.items() if module is not None})
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600
    )
    assert done.stdout.strip() == "False", done.stderr


def test_a_read_only_home_does_not_matter(tmp_path: Path) -> None:
    """No place for a cache, as in a locked-down container: compiled for this process alone."""
    pytest.importorskip("numba")
    module = tmp_path / "locked" / "doubling.py"
    module.parent.mkdir()
    module.write_text(
        "from hokical.core.jit import kernel\n\n@kernel\ndef double(x):\n    return 2.0 * x\n"
    )
    script = f"""
import sys
sys.path.insert(0, {str(module.parent)!r})
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
import doubling
assert doubling.double(4.0) == 8.0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)

"""Kernels are compiled when they are first called, and only for more than a few
classes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hokical._core import runtime
from hokical.rules import as_logits


@pytest.mark.parametrize("n_rows", [1, 200_000])
def test_the_number_of_classes_alone_decides(
    n_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (
        as_logits(np.zeros((n_rows, runtime.FEW_CLASSES + more))) for more in (0, 1)
    )
    monkeypatch.setattr(runtime, "has_compiler", lambda: True)
    assert not runtime.has_kernels(few)
    assert runtime.has_kernels(many)
    monkeypatch.setattr(runtime, "has_compiler", lambda: False)
    assert not runtime.has_kernels(many)


@pytest.mark.slow
def test_without_a_compiler_everything_is_portable() -> None:
    """numba absent: the same numbers, more slowly."""
    script = """
import sys
sys.modules["numba"] = None
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


@pytest.mark.slow
def test_a_read_only_home_does_not_matter(tmp_path: Path) -> None:
    """No place for a cache, as in a locked-down container: compiled for this process
    alone.
    """
    pytest.importorskip("numba")
    module = tmp_path / "locked" / "doubling.py"
    module.parent.mkdir()
    module.write_text(
        "from hokical.stability.kernels import kernel\n\n"
        "@kernel\ndef double(x):\n    return 2.0 * x\n"
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


@pytest.mark.slow
def test_a_numba_that_cannot_be_imported_is_done_without(tmp_path: Path) -> None:
    package = tmp_path / "numba"
    package.mkdir()
    (package / "__init__.py").write_text(
        "raise ImportError('Numba needs another NumPy')"
    )
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import numpy as np, hokical; "
        "rng = np.random.default_rng(0); logits = 2 * rng.normal(size=(300, 40)); "
        "labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1); "
        "proba = hokical.auto(3 * logits, labels).predict_proba(logits); "
        "assert np.allclose(proba.sum(axis=1), 1.0)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)

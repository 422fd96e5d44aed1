"""Loading and answering are light: NumPy and the array-API helper, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from hokical.calibrators import make, methods_from_logits
from tests.conftest import synthetic_logits

HEAVY = ("sklearn", "scipy", "numba", "typer", "rich", "pandas", "torch", "matplotlib")
PROGRAM = """
import json, sys
import numpy as np
import hokical
cal = hokical.load(sys.argv[1])
logits = np.load(sys.argv[2])
answers = [cal.predict(logits), cal.predict_confidence(logits), cal.predict_proba(logits)]
loaded = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"loaded": loaded, "sums": [float(np.sum(a)) for a in answers]}))
"""


@pytest.mark.parametrize("name", [*methods_from_logits(), "auto"])
def test_a_saved_calibrator_answers_without_heavy_libraries(name: str, tmp_path: Path) -> None:
    logits, labels = synthetic_logits(300, 4, seed=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cal = make(name)
        if cal.binary_only:
            logits, labels = logits[:, :2], labels % 2
        cal.fit(logits, labels)
    cal.save(tmp_path / "cal.json")
    np.save(tmp_path / "logits.npy", logits)
    command = [sys.executable, "-c", PROGRAM, tmp_path / "cal.json", tmp_path / "logits.npy"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found = json.loads(run.stdout)
    assert not set(found["loaded"]) & set(HEAVY)
    answers = (cal.predict(logits), cal.predict_confidence(logits), cal.predict_proba(logits))
    np.testing.assert_allclose(found["sums"], [float(np.sum(a)) for a in answers], rtol=1e-12)

"""Loading and answering are light: NumPy and the array-API helper, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hokical import FitDataWarning, Gaussian, calibrate_confidence, calibration_bound
from hokical.calibrators import make, method_names
from tests.conftest import QUICK, quiet_fit, synthetic_logits

HEAVY = ("sklearn", "scipy", "numba", "typer", "rich", "pandas", "torch", "matplotlib")
#: Answers with one file after the other, and says what was loaded by then.
PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
import hokical
found = {}
for path in sorted(Path(sys.argv[1]).glob("*.json")):
    cal, logits = hokical.load(path), np.load(path.with_suffix(".npy"))
    answers = [cal.predict(logits), cal.predict_confidence(logits), cal.predict_proba(logits)]
    loaded = sorted({name.partition(".")[0] for name in sys.modules})
    found[path.stem] = {"loaded": loaded, "sums": [float(np.sum(a)) for a in answers]}
print(json.dumps(found))
"""


@pytest.mark.slow
def test_saved_calibrators_answer_without_heavy_libraries(tmp_path: Path) -> None:
    """Every method, one after the other in one fresh process."""
    expected = {}
    for name in (*method_names(2), "auto"):
        cal = make(name, **QUICK.get(name, {}))
        logits, labels = synthetic_logits(300, 4, seed=2)
        if cal.method.binary_only:
            logits, labels = logits[:, :2], labels % 2
        quiet_fit(cal, logits, labels)
        cal.save(tmp_path / f"{name}.json")
        np.save(tmp_path / f"{name}.npy", logits)
        answers = (
            cal.predict(logits),
            cal.predict_confidence(logits),
            cal.predict_proba(logits),
        )
        expected[name] = [float(np.sum(a)) for a in answers]
    command = [sys.executable, "-c", PROGRAM, tmp_path]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120
    )
    found = json.loads(run.stdout)
    heavy = {
        name: sorted(set(HEAVY) & set(got["loaded"])) for name, got in found.items()
    }
    assert heavy == {name: [] for name in expected}
    for name, sums in expected.items():
        np.testing.assert_allclose(found[name]["sums"], sums, rtol=1e-12, err_msg=name)


LIGHT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        if first not in {"numpy", "array_api_compat", "hokical", "torch", *sys.stdlib_module_names}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import numpy as np
import hokical

cal, path = hokical.load(sys.argv[1]), sys.argv[2]
stored = np.load(path)
logits, labels = stored["logits"], stored["labels"]
for _ in range(2):
    sets = cal.predict_set(logits, coverage=0.9)
    print(float(sets.sizes.sum()), float(cal.detect(logits, 1, recall=0.8).flagged.sum()))
    cal.certify(1.01 * logits, labels)
try:
    cal.predict_or_abstain(logits, risk=0.3)
except ImportError as error:
    assert "pip install scipy" in str(error), error
print(hokical.calibration_bound(0.01, 1000, method="bousquet", brier=0.05))
assert "torch" not in sys.modules
"""


def test_sets_and_bounds_need_nothing_more(tmp_path: Path) -> None:
    """Guarantees with `delta` and intervals need SciPy when they are first asked
    for.
    """
    logits, labels = synthetic_logits(400, 4, seed=3)
    cal = make("hoki", noise=Gaussian(2.0)).fit(logits, labels)
    cal.save(tmp_path / "cal.json")
    np.savez(tmp_path / "data.npz", logits=logits, labels=labels)
    command = [
        sys.executable,
        "-c",
        LIGHT,
        tmp_path / "cal.json",
        tmp_path / "data.npz",
    ]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120
    )
    expected = []
    for _ in range(2):
        expected.append(float(cal.predict_set(logits, coverage=0.9).sizes.sum()))
        expected.append(float(cal.detect(logits, 1, recall=0.8).flagged.sum()))
        cal.certify(1.01 * logits, labels)
    bound = calibration_bound(0.01, 1000, method="bousquet", brier=0.05)
    assert list(map(float, run.stdout.split())) == [*expected, bound]


def test_warnings_of_decorated_fits_point_at_the_user() -> None:
    with pytest.warns(FitDataWarning) as caught:
        calibrate_confidence(np.linspace(0.1, 0.9, 5), np.ones(5))
    assert {Path(each.filename).name for each in caught} == {"test_runtime.py"}

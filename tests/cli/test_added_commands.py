"""Commands that other distributions add: found where they are installed, explained
where not.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from hokical import cli
from hokical.cli import app


def test_a_missing_distribution_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())
    done = CliRunner().invoke(app, ["paper", "suite"])
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "pip install ./paper" in done.stderr
    assert " paper " not in CliRunner().invoke(app, ["--help"]).stdout


@pytest.mark.slow
def test_an_installed_one_is_listed_and_loaded_only_when_used() -> None:
    pytest.importorskip("hokical_paper")
    assert " paper " in CliRunner().invoke(app, ["--help"]).stdout
    code = "import hokical.cli, sys; print('hokical_paper' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"

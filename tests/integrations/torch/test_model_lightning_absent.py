"""Without Lightning the callback can be imported, and says what it needs."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

pytest.importorskip("torch")

from hokical.integrations.lightning import CalibrationCallback


@pytest.mark.skipif(
    bool(find_spec("lightning") or find_spec("pytorch_lightning")), reason="Lightning is installed"
)
def test_callback_names_what_is_missing() -> None:
    with pytest.raises(ImportError, match="needs Lightning: pip install lightning"):
        CalibrationCallback("temps")

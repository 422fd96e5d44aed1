"""Fixtures of the tests with PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def fresh_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that remembers no graph, in one thread, with files of its own.

    Every module is another graph of the same code, of which it allows eight; and
    processes that test at once would write the same files.
    """
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch.compiler.reset()

"""A method whose input is more than logits: a subclass of `Logits`, which it names
itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest

import hokical
from hokical.calibrators import Calibrator, Fit, MethodInfo, catalog, make, method_names
from hokical.rules import Logits, Rule, as_logits
from hokical.rules.scaling import TemperatureRule
from hokical.stability import gumbel
from tests.cli.running import hokical_command
from tests.conftest import synthetic_logits
from tests.libraries import get_library

NEEDED = "it needs a `tests.calibrators.test_logits_kinds.Tempered`"


class Tempered(Logits):
    """Logits with a temperature of their own for every row, (n,)."""

    own: np.ndarray
    original: Any = None

    @property
    def like(self) -> Any:
        return self.original

    @classmethod
    def of(cls, logits: Any, own: Any) -> Self:
        checked = as_logits(logits)
        made = cls(checked.values, checked.top, checked.backend)
        made.__dict__.update(own=np.asarray(own), original=logits)
        return made

    def take(self, rows: Any) -> Self:
        some = super().take(rows)
        some.__dict__.update(own=self.own[rows], original=self.original)
        return some


@dataclass(frozen=True)
class TemperedRule(Rule):
    name: ClassVar[str] = "tempered"
    logits_kind: ClassVar[type[Logits]] = Tempered
    factor: float

    def proba(self, logits: Logits) -> Any:
        assert isinstance(logits, Tempered)
        scaled = logits.values / self.factor / logits.from_host(logits.own)[:, None]
        return gumbel.distribution(
            Logits(scaled, logits.xp.max(scaled, axis=1), logits.backend), 1
        )


class TemperedScaling(Calibrator):
    method = MethodInfo(
        TemperedRule,
        "Temperature scaling of rows with temperatures",
        logits_kind=Tempered,
    )

    def _fit(self, examples: Any) -> Fit:
        return Fit(TemperedRule(1.0 + float(examples.correct.mean())))


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    catalog.register(TemperedScaling)
    yield
    catalog._registered.pop("tempered", None)


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    logits, labels = synthetic_logits(200, 4, seed=3)
    return logits, labels, np.random.default_rng(0).uniform(0.5, 2.0, 200)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_it_is_fitted_saved_loaded_and_asked(
    data: Any, library: str, tmp_path: Path
) -> None:
    kind = get_library(library)
    logits, labels, own = data
    given = Tempered.of(kind.make(logits), own)
    cal = make("tempered").fit(given, labels)
    cal.save(tmp_path / "cal.json")
    scaled = TemperatureRule(cal.factor_)
    wanted = np.array(
        [scaled.proba(as_logits(row[None]))[0] for row in logits / own[:, None]],
    )
    for fitted in (cal, hokical.load(tmp_path / "cal.json")):
        found = fitted.predict_proba(given)
        assert kind.owns(found)
        np.testing.assert_allclose(kind.read(found), wanted, atol=1e-12)
        assert fitted.predict_or_abstain(given, risk=0.4).accepted.shape == (200,)


def test_each_method_gets_what_it_takes(data: Any) -> None:
    logits, labels, own = data
    with pytest.raises(
        TypeError, match=r"must be logits \(n, classes\) for 'temps'.*\.Tempered`"
    ):
        make("temps").fit(Tempered.of(logits, own), labels)
    with pytest.raises(
        TypeError, match=r"\.Tempered` for 'tempered'; got logits \(n, classes\)"
    ):
        make("tempered").fit(logits, labels)
    assert "tempered" not in method_names(2)


def test_where_there_are_logits_alone_it_is_refused(data: Any, tmp_path: Path) -> None:
    logits, labels, own = data
    pair = logits, labels
    cal = make("tempered").fit(Tempered.of(logits, own), labels)
    for work in (
        lambda: hokical.compare(pair, pair, ["temps", "tempered"]),
        lambda: hokical.Dense("tempered").fit(*pair),
        lambda: hokical.Dense(TemperedScaling()).fit(*pair),
    ):
        with pytest.raises(ValueError, match=NEEDED):
            work()
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match=NEEDED):
        hokical.integrations.torch.as_module(cal)
    pytest.importorskip("ndonnx")
    with pytest.raises(ValueError, match=NEEDED):
        hokical.integrations.onnx.export(cal)


def test_the_command_line_refuses_it(data: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "val.npz", logits=data[0], labels=data[1])
    found = hokical_command(
        "fit", tmp_path / "val.npz", "-o", tmp_path / "c", "--method", "tempered"
    )
    assert found.code == 2
    assert "tempered needs more than logits" in found.err


def test_methods_of_another_package_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_find_entry_points", lambda: None)
    monkeypatch.setattr(catalog, "_registered", {})
    for name in catalog.IN_PAPER:
        with pytest.raises(
            ValueError, match=r"It is in the package hokical-paper: `pip install"
        ):
            make(name)
    monkeypatch.setattr(catalog, "is_storable", lambda name: False)
    with pytest.raises(
        ValueError, match=r"'recal', which is in the package hokical-paper"
    ):
        catalog.find_rule("rule:recal")

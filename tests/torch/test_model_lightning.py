"""The callback in a real Lightning run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from hokical import load

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own dependencies
    lightning = pytest.importorskip("lightning.pytorch")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from hokical.integrations.lightning import CalibrationCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Small(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs)

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: Any, _: int, dataloader_idx: int = 0) -> None:
        assert len(batch) == 2

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def data() -> DataLoader:
    torch.manual_seed(0)
    inputs = torch.randn(200, 4)
    labels = (inputs[:, :3] + torch.randn(200, 3)).argmax(dim=1)
    return DataLoader(TensorDataset(inputs, labels), batch_size=50)


def trainer(folder: Path, callback: Any) -> Any:
    return lightning.Trainer(
        max_epochs=2,
        callbacks=[callback],
        default_root_dir=folder,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def test_calibrates_when_training_ends(tmp_path: Path) -> None:
    callback = CalibrationCallback("temps", path=tmp_path / "cal.json")
    model = Small()
    trainer(tmp_path, callback).fit(model, data(), data())
    assert callback.calibrated.model is model
    assert callback.calibrator.temperature_ == load(tmp_path / "cal.json").temperature_
    assert callback.calibrated(torch.randn(5, 4)).confidence.shape == (5,)


def test_calibrates_after_validate_on_all_loaders(tmp_path: Path) -> None:
    callback = CalibrationCallback("hoki")
    trainer(tmp_path, callback).validate(Small(), [data(), data()], verbose=False)
    assert callback.calibrator.table_.total == 400


def test_warns_without_a_validation_set(tmp_path: Path) -> None:
    callback = CalibrationCallback("temps")
    with pytest.warns(RuntimeWarning, match="there is no validation loader"):
        trainer(tmp_path, callback).fit(Small(), data())
    assert callback.calibrated is None

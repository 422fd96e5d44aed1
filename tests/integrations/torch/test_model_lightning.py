"""The callback in a real Lightning run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from hokical import load
from hokical.calibrators import make
from hokical.stability._noise import Gaussian

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own dependencies
    lightning = pytest.importorskip("lightning.pytorch")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from hokical.integrations.lightning import CalibrationCallback  # noqa: E402
from hokical.integrations.torch import collect_logits  # noqa: E402

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


def trainer(folder: Path, callback: Any, **options: Any) -> Any:
    return lightning.Trainer(
        max_epochs=2,
        callbacks=[callback],
        default_root_dir=folder,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


def test_calibrates_when_training_ends(tmp_path: Path) -> None:
    callback = CalibrationCallback("temps", path=tmp_path / "cal.json")
    model = Small()
    trainer(tmp_path, callback).fit(model, data(), data())
    assert callback.calibrated.model is model
    assert callback.calibrator.temperature_ == load(tmp_path / "cal.json").temperature_
    assert callback.calibrated.training
    assert callback.calibrated.eval()(torch.randn(5, 4)).confidence.shape == (5,)


@pytest.mark.parametrize(
    ("precision", "inside", "dtype"),
    [
        ("bf16-mixed", torch.bfloat16, torch.float32),
        ("bf16-true", None, torch.bfloat16),
        ("64-true", None, torch.float64),
    ],
)
def test_fits_logits_of_the_trainers_precision(
    tmp_path: Path, precision: str, inside: Any, dtype: Any
) -> None:
    callback, model = CalibrationCallback("temps"), Small()
    trainer(tmp_path, callback, precision=precision).fit(model, data(), data())
    batches = [(inputs.to(dtype), labels) for inputs, labels in data()]
    with torch.autocast("cpu", inside, enabled=inside is not None):
        logits, labels = collect_logits(model, batches)
    assert logits.dtype == (inside or dtype)
    assert callback.calibrator.temperature_ == make("temps").fit(logits, labels).temperature_
    assert model.layer.weight.dtype == dtype
    assert torch.get_default_dtype() == torch.float32


class Hooked(Small):
    """Its batches are mappings, made into pairs on the way."""

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return {**batch, "x": batch["x"] * 2.0}

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        return batch["x"].to(device), batch["y"].to(device)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch[0] + 1.0, batch[1]


def test_batches_go_through_the_modules_hooks(tmp_path: Path) -> None:
    pairs = data().dataset
    loader = DataLoader([{"x": x, "y": y} for x, y in pairs], batch_size=50)
    callback, model = CalibrationCallback("temps"), Hooked()
    trainer(tmp_path, callback).fit(model, loader, loader)
    inputs, labels = pairs.tensors
    with torch.no_grad():
        expected = make("temps").fit(model(inputs * 2.0 + 1.0), labels)
    assert callback.calibrator.temperature_ == pytest.approx(expected.temperature_, rel=1e-6)


@pytest.mark.parametrize("method", [make("temps"), make("hoki", noise=Gaussian(2.0))])
def test_gradients_flow_after_validate(tmp_path: Path, method: Any) -> None:
    callback, model = CalibrationCallback(method), Small()
    trainer(tmp_path, callback).validate(model, data(), verbose=False)
    assert not any(buffer.is_inference() for buffer in callback.calibrated.buffers())
    callback.calibrated(torch.randn(5, 4)).confidence.sum().backward()
    assert model.layer.weight.grad is not None


def test_calibrates_after_validate_on_all_loaders(tmp_path: Path) -> None:
    callback = CalibrationCallback("hoki")
    trainer(tmp_path, callback).validate(Small(), [data(), data()], verbose=False)
    assert callback.calibrator.table_.total == 400


def test_warns_without_a_validation_set(tmp_path: Path) -> None:
    callback = CalibrationCallback("temps")
    with pytest.warns(RuntimeWarning, match="there is no validation loader"):
        trainer(tmp_path, callback).fit(Small(), data())
    assert callback.calibrated is None

"""Train a small classifier, calibrate it, and write what the service needs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import hokical
from hokical.integrations.onnx import attach


def main(folder: Path, method: str = "auto") -> None:
    X, y = load_digits(return_X_y=True)
    model = LogisticRegression(C=10.0, max_iter=3000).fit(X[:600] / 16, y[:600])
    logits = model.decision_function(X[600:1200] / 16)
    calibrator = hokical.make(method).fit(logits, y[600:1200])
    calibrator.save(folder / "cal.json")
    attach(as_onnx(model), calibrator, folder / "model.onnx")
    monitor = hokical.CalibrationMonitor.from_validation(
        calibrator, logits, y[600:1200]
    )
    monitor.save(folder / "monitor.json")


def as_onnx(model: LogisticRegression) -> Any:
    """The linear model as an ONNX graph; a network would come from
    `torch.onnx.export`.
    """
    weights = {"weight": model.coef_.T, "bias": model.intercept_}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["inputs", "weight", "bias"], ["logits"])],
        "classifier",
        [helper.make_tensor_value_info("inputs", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [
            numpy_helper.from_array(w.astype(np.float32), name)
            for name, w in weights.items()
        ],
    )
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.checker.check_model(made)
    return made


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))

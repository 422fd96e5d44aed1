"""ONNX (extra `onnx`): calibrators as graphs of plain operators, alone or behind a
classifier.

- `export(calibrator, "cal.onnx")`: logits in; labels, confidence and probabilities out.
- `attach("model.onnx", calibrator, "calibrated.onnx")`: one file that does both.
- `check(model, calibrator)`: runs an exported model and compares it with Python.
"""

from hokical.integrations.onnx.checking import Check, NotRunnable, check
from hokical.integrations.onnx.exporting import attach, export

__all__ = ["Check", "NotRunnable", "attach", "check", "export"]

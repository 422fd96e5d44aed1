"""What a calibrator costs in ONNX: beside the network it is attached to, and per row.

python benchmarks/bench_onnx.py

Needs onnx and onnxruntime; the networks also torch and onnxscript.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from bench_core import best_in_turns
from hokical.calibrators import BaseCalibrator, make
from hokical.noise import Gaussian, Gumbel, Uniform

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "uncalibrated": ("uncalibrated", {}),
    "temps": ("temps", {}),
    "ets": ("ets", {}),
    "vecs": ("vecs", {}),
    "dir_odir": ("dir_odir", {"lambdas": 1.0, "max_iterations": 5}),
    "irm": ("irm", {}),
    "irova_ts": ("irova_ts", {}),
    "hoki, Gaussian": ("hoki", {"noise": Gaussian(2.0)}),
    "hoki, uniform": ("hoki", {"noise": Uniform(-4.0, 4.0)}),
    "hoki, Gumbel": ("hoki", {"noise": Gumbel(1.5)}),
    "hoki, 1000 draws": ("hoki", {"noise": Gaussian(2.0), "draws": 1000, "random_state": 0}),
    "profile": ("profile", {"penalty": 10.0}),
}
IN_NETWORKS = ("temps", "hoki, Gaussian", "hoki, uniform", "profile")
BATCHES = (1, 64)


def main() -> None:
    try:
        import onnxruntime
    except ImportError:
        print("onnxruntime is not installed: pip install 'hokical[onnx]'")
        return
    print(f"onnxruntime {onnxruntime.__version__}, CPU, one thread\n")
    print("microseconds per row, batch of 1 / of 64, computed in float64 (in float32)")
    print(f"{'':18s}" + "".join(f"{c:>28d} classes" for c in (10, 100, 1000)))
    for method in METHODS:
        cells = [f"{row_cost(method, c):>36s}" for c in (10, 100, 1000)]
        print(f"{method:18s}" + "".join(cells), flush=True)
    try:
        import onnxscript  # noqa: F401
        import torch  # noqa: F401
    except ImportError:
        print("\nno networks: torch or onnxscript is not installed")
        return
    print("\nmilliseconds per image of a network, and what the calibrator adds, batch of 1 / of 64")
    for name, n_classes in (("resnet110", 10), ("resnet110", 100), ("lenet5", 10)):
        network_share(name, n_classes)


def fitted(method: str, n_classes: int) -> BaseCalibrator:
    rng = np.random.default_rng(0)
    n = 2000
    labels = rng.integers(n_classes, size=n)
    logits = 3.0 * (rng.normal(size=(n, n_classes)) + 2.0 * np.eye(n_classes)[labels])
    name, options = METHODS[method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(name, **options).fit(logits, labels)


def session(model: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def row_cost(method: str, n_classes: int) -> str:
    """Time per row at both batches and precisions, in words."""
    if method in ("dir_odir", "irova_ts") and n_classes == 1000:
        return "-"  # the fit takes too long here
    words = [
        " / ".join(f"{1e6 * seconds / n:.1f}" for n, seconds in costs.items())
        for costs in (
            calibrator_cost(method, n_classes, precision) for precision in ("float64", "float32")
        )
    ]
    return f"{words[0]} ({words[1]})"


def calibrator_cost(method: str, n_classes: int, precision: Any = "float64") -> dict[int, float]:
    """Seconds of a run by batch."""
    from hokical.integrations.onnx import export

    running = session(export(fitted(method, n_classes), precision=precision))
    rows = (4.0 * np.random.default_rng(1).normal(size=(64, n_classes))).astype(np.float32)
    return run_cost(running, "logits", rows, times=15)


def run_cost(running: Any, name: str, inputs: np.ndarray, times: int) -> dict[int, float]:
    """Seconds of the quickest run by batch."""
    works = {str(n): lambda n=n: running.run(None, {name: inputs[:n]}) for n in BATCHES}
    seconds = best_in_turns(works, times=times)
    return {n: seconds[str(n)] for n in BATCHES}


def network_share(name: str, n_classes: int) -> None:
    """The calibrator's own time over the network's: their sum is what a joint file takes."""
    with tempfile.TemporaryDirectory() as folder:
        network, side = export_network(name, n_classes, Path(folder) / "net.onnx")
    images = np.random.default_rng(0).normal(size=(64, *side)).astype(np.float32)
    alone = run_cost(session(network), "image", images, times=7)
    times = " / ".join(f"{1e3 * alone[n] / n:.2f}" for n in BATCHES)
    print(f"{name}, {n_classes} classes: {times} ms")
    for method in IN_NETWORKS:
        added = calibrator_cost(method, n_classes)
        print(f"  {method:16s}" + " / ".join(f"{added[n] / alone[n]:.2%}" for n in BATCHES))


def export_network(name: str, n_classes: int, path: Path) -> tuple[Any, tuple[int, int, int]]:
    """One of the paper's networks, its weights as drawn: they do not change what it costs."""
    import torch

    from hokical.integrations.onnx.library import library
    from hokical.paper.making.networks import make_network

    side = (1 if name == "lenet5" else 3, 32, 32)
    network = make_network(name, n_classes, channels=side[0]).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (torch.zeros(2, *side),), path, dynamo=True, verbose=False,
            input_names=["image"], output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        )  # fmt: skip
    return library().load(path), side


if __name__ == "__main__":
    main()

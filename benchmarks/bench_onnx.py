"""What a calibrator costs in ONNX, and how exact it is there.

python benchmarks/bench_onnx.py            # sizes, per row, and behind networks
python benchmarks/bench_onnx.py --sizes    # graphs, files, and what writing and loading takes
python benchmarks/bench_onnx.py --networks # behind networks alone
python benchmarks/bench_onnx.py --parity   # differences from Python, on the logits in suite/
python benchmarks/bench_onnx.py --parity FOLDER ...  # on all files of logits in other folders

Needs onnx and onnxruntime; the networks also torch and onnxscript.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hokical.calibrators import Calibrator, make
from hokical.stability._noise import Gaussian, Gumbel, Uniform

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "uncalibrated": ("uncalibrated", {}),
    "temps": ("temps", {}),
    "ets": ("ets", {}),
    "vecs": ("vecs", {}),
    "ms_odir": ("ms_odir", {"lambdas": 1.0, "max_iter": 5}),
    "dir_odir": ("dir_odir", {"lambdas": 1.0, "max_iter": 5}),
    "irm": ("irm", {}),
    "irova_ts": ("irova_ts", {}),
    "hoki, Gaussian": ("hoki", {"noise": Gaussian(2.0)}),
    "hoki, uniform": ("hoki", {"noise": Uniform(-4.0, 4.0)}),
    "hoki, wide uniform": ("hoki", {"noise": Uniform(0.0, 30.0)}),
    "hoki, Gumbel": ("hoki", {"noise": Gumbel(1.5)}),
    "hoki, 1000 draws": ("hoki", {"noise": Gaussian(2.0), "draws": 1000, "random_state": 0}),
    "adaptive": ("adaptive", {}),
}
IN_NETWORKS = ("temps", "hoki, Gaussian", "hoki, uniform", "adaptive")
BATCHES = (1, 64)
#: Behind networks, and how often each is timed: a run of many images hardly goes undisturbed.
NETWORK_BATCHES = {1: 100, 16: 12}
SUITE = Path(__file__).resolve().parents[1] / "suite"
#: Methods whose fits take long with more classes than this.
FEW_CLASSES = {"vecs": 200, "irova_ts": 200, "dir_odir": 20, "ms_odir": 20}
#: Methods that are fitted with 10 classes instead of 100 to look at their graphs.
SMALL = ("dir_odir", "ms_odir")
#: Rows of a set that calibrators are fitted on, and rows that are compared.
FITTED_ON, COMPARED = 1000, 1500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", action="store_true", help="graphs, files and loading alone")
    parser.add_argument("--networks", action="store_true", help="time behind networks alone")
    parser.add_argument(
        "--parity", nargs="*", type=Path, metavar="FOLDER", help="compare with Python (suite/)"
    )
    args = parser.parse_args()
    try:
        import onnxruntime
    except ImportError:
        print("onnxruntime is not installed: pip install 'hokical[onnx]'")
        return
    print(f"onnxruntime {onnxruntime.__version__}, CPU, one thread")
    if args.parity is not None:
        parity_table(args.parity or [SUITE])
        return
    print(f"{machine_load()}\n")
    if not args.networks:
        graph_sizes()
    if not args.networks and not args.sizes:
        row_costs()
    if not args.sizes:
        network_costs()
    print(f"\n{machine_load()}")


def machine_load() -> str:
    """How busy the machine is: all timings suffer from it."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def graph_sizes() -> None:
    """Without all probabilities unless they are cheap, and with them."""
    from hokical.integrations.onnx import export

    print("nodes, bytes, seconds to write and milliseconds to load (processor time),")
    print("by default / with all probabilities")
    for method in METHODS:
        calibrator, cells = fitted(method, 100 if method not in SMALL else 10), []
        for probabilities in (None, True):
            begun = time.process_time()
            model = export(calibrator, probabilities=probabilities)
            written = time.process_time() - begun
            works = {"load": lambda model=model: session(model)}
            loading = least_processor_time(works, times=5)["load"]
            cells.append(
                f"{len(model.graph.node):5d} {model.ByteSize():8d} {written:6.2f} "
                f"{1e3 * loading:6.1f}"
            )
        print(f"{method:20s}" + " / ".join(cells), flush=True)
    print()


def row_costs() -> None:
    print("microseconds per row, batch of 1 / of 64, computed in float64 (in float32)")
    print(f"{'':20s}" + "".join(f"{c:>28d} classes" for c in (10, 100, 1000)))
    for method in METHODS:
        cells = [f"{row_cost(method, c):>36s}" for c in (10, 100, 1000)]
        print(f"{method:20s}" + "".join(cells), flush=True)


def network_costs() -> None:
    try:
        import onnxscript  # noqa: F401
        import torch  # noqa: F401
    except ImportError:
        print("\nno networks: torch or onnxscript is not installed")
        return
    print("\nmilliseconds of processor time per image of a network alone, and how much more")
    print("the file with both takes, in turns, batch of 1 / of 16")
    for name, n_classes in (("resnet110", 10), ("resnet110", 100), ("lenet5", 10)):
        network_share(name, n_classes)


def fitted(method: str, n_classes: int) -> Calibrator:
    rng = np.random.default_rng(0)
    n = 2000
    labels = rng.integers(n_classes, size=n)
    logits = 3.0 * (rng.normal(size=(n, n_classes)) + 2.0 * np.eye(n_classes)[labels])
    return fit(method, logits, labels)


def fit(method: str, logits: np.ndarray, labels: np.ndarray) -> Calibrator:
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
    if method in ("dir_odir", "ms_odir", "irova_ts") and n_classes == 1000:
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
    works = {str(n): lambda n=n: running.run(None, {"logits": rows[:n]}) for n in BATCHES}
    seconds = least_processor_time(works, times=40)
    return {n: seconds[str(n)] for n in BATCHES}


def network_share(name: str, n_classes: int) -> None:
    """How much longer the file with both takes than the network alone, the best of each."""
    from hokical.integrations.onnx import attach

    with tempfile.TemporaryDirectory() as folder:
        network, side = export_network(name, n_classes, Path(folder) / "net.onnx")
    images = np.random.default_rng(0).normal(size=(max(NETWORK_BATCHES), *side)).astype(np.float32)
    sessions = {"alone": session(network)}
    sessions |= {
        method: session(attach(network, fitted(method, n_classes))) for method in IN_NETWORKS
    }
    seconds = {}
    for n, times in NETWORK_BATCHES.items():
        works = {
            key: lambda one=one, n=n: one.run(None, {"image": images[:n]})
            for key, one in sessions.items()
        }
        seconds[n] = least_processor_time(works, times if name == "resnet110" else 20 * times)
    alone = " / ".join(f"{1e3 * seconds[n]['alone'] / n:.2f}" for n in NETWORK_BATCHES)
    print(f"{name}, {n_classes} classes: {alone} ms")
    for method in IN_NETWORKS:
        added = [seconds[n][method] / seconds[n]["alone"] - 1.0 for n in NETWORK_BATCHES]
        print(f"  {method:16s}" + " / ".join(f"{share:+.1%}" for share in added), flush=True)


def least_processor_time(works: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """The least of each, in turns; of this thread, so that waiting for others does not count."""
    least = dict.fromkeys(works, math.inf)
    for _ in range(times):
        for name, work in works.items():
            begun = time.thread_time()
            work()
            least[name] = min(least[name], time.thread_time() - begun)
    return least


def export_network(name: str, n_classes: int, path: Path) -> tuple[Any, tuple[int, int, int]]:
    """One of the paper's networks, its weights as drawn: they do not change what it costs."""
    import torch

    from hokical.integrations.onnx._backend import onnx_module
    from hokical_paper.making.networks import make_network

    side = (1 if name == "lenet5" else 3, 32, 32)
    network = make_network(name, n_classes, channels=side[0]).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (torch.zeros(2, *side),), path, dynamo=True, verbose=False,
            input_names=["image"], output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        )  # fmt: skip
    return onnx_module("onnx").load(path), side


def parity_table(folders: list[Path]) -> None:
    """Differences from Python by method and precision, over all sets of logits in folders."""
    paths = sorted(path for folder in folders for path in folder.glob("*.npz"))
    if not paths:
        raise SystemExit(f"no .npz files in {', '.join(map(str, folders))}")
    sets = [read_logits(path) for path in paths]
    print(
        f"{len(paths)} files of logits: fitted on {FITTED_ON} rows, compared on {COMPARED} others"
    )
    print(
        "labels that differ, and largest differences of confidence (share of the rows above 1e-5)"
    )
    print("and of any probability")
    print(f"{'':20s}{'rows':>7s}{'float64':>38s}{'float32':>38s}")
    for method in METHODS:
        known = [one for one in sets if one[0].shape[1] <= FEW_CLASSES.get(method, 10**9)]
        print_parity(method, [compared(method, *one) for one in known])
    print("20,000 classes, normal logits")
    print_parity("hoki, wide uniform", [compared("hoki, wide uniform", *many_classes())])


def read_logits(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path) as data:
        part = "val" if "val_logits" in data else "test"
        rows = slice(0, FITTED_ON + COMPARED)
        return data[f"{part}_logits"][rows], data[f"{part}_labels"][rows].astype(np.int64)


def many_classes() -> tuple[np.ndarray, np.ndarray]:
    """Normal logits of 20,000 classes, the true one raised."""
    rng = np.random.default_rng(0)
    labels = rng.integers(20_000, size=FITTED_ON + 600)
    logits = 2.0 * rng.standard_normal((labels.size, 20_000), dtype=np.float32)
    logits[np.arange(labels.size), labels] += 9.0
    return logits, labels


def compared(method: str, logits: np.ndarray, labels: np.ndarray) -> dict[str, list[np.ndarray]]:
    """By precision: which labels differ, how far confidences do, and each row's probabilities."""
    from hokical.integrations.onnx import export

    calibrator = fit(method, logits[:FITTED_ON], labels[:FITTED_ON])
    rows = logits[FITTED_ON:]
    expected = (
        calibrator.predict(rows),
        calibrator.predict_confidence(rows),
        calibrator.predict_proba(rows),
    )
    out = {}
    for precision in ("float64", "float32"):
        model = export(
            calibrator, input_dtype=rows.dtype.name, precision=precision, probabilities=True
        )
        found = in_batches(session(model), rows)
        differing = [np.abs(a - b) for a, b in zip(found, expected, strict=True)]
        out[precision] = [differing[0] != 0, differing[1], differing[2].max(axis=1)]
    return out


def in_batches(running: Any, rows: np.ndarray) -> list[np.ndarray]:
    """Labels, confidence and probabilities, 250 rows at a time."""
    parts = [running.run(None, {"logits": rows[k : k + 250]}) for k in range(0, len(rows), 250)]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def print_parity(method: str, found: list[dict[str, list[np.ndarray]]]) -> None:
    cells = []
    for precision in ("float64", "float32"):
        labels, confidence, proba = (
            np.concatenate([one[precision][k] for one in found]) for k in range(3)
        )
        share = f"({(confidence > 1e-5).mean():.2%})"
        cells.append(f"{labels.sum():6d}{confidence.max():12.0e}{share:>10s}{proba.max():10.0e}")
    print(f"{method:20s}{labels.size:>7d}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()

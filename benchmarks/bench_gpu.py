"""Kernels, fits and predictions on a CUDA GPU, against the floor and against the host.

python benchmarks/bench_gpu.py

The floor is the time in which the GPU could read the logits once, at the bandwidth that
it reaches in a large copy. Times are medians: of kernels on the device with its queue
full, so that what Python takes to launch them does not count, and beside them of whole
calls with all that.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import numpy as np

from hokical import Hoki, label_stability
from hokical._core.logits import Logits, as_logits
from hokical.calibrators import make, method_names
from hokical.stability import gaussian as gaussian
from hokical.stability import gumbel as gumbel
from hokical.stability import uniform as uniform
from hokical.stability.noise import Gaussian, Gumbel, Noise, Uniform

if find_spec("torch") is None:
    print("bench_gpu.py: skipped, needs PyTorch: make test-all installs it")
    sys.exit()

import torch
from torch import Tensor

from hokical.integrations.torch import as_module

Work = Callable[[], object]

#: name, rows, classes, dtype of the logits
SIZES = (
    ("validation set", 25_000, 1000, torch.float32),
    ("million rows", 1_000_000, 1000, torch.float32),
    ("million rows, bf16", 1_000_000, 1000, torch.bfloat16),
    ("language model's head", 4096, 128_000, torch.float32),
    ("ten classes", 1_000_000, 10, torch.float32),
)
NOISES: tuple[tuple[str, Noise, Callable[..., Tensor]], ...] = (
    ("Gaussian(2)", Gaussian(2.0), gaussian.stability),
    ("Gumbel(2)", Gumbel(2.0), gumbel.stability),
    ("Uniform(-2, 2)", Uniform(-2, 2), uniform.stability),
)
#: Calls are repeated for so long before they are measured.
WARM_UP_SECONDS = 0.5
SLOW_METHODS = ("ms_odir", "dir_odir")
METHODS = ("temps", "ets", "vecs", "adaptive", "structured", "auto", *SLOW_METHODS)


def main() -> None:
    if not torch.cuda.is_available():
        print("bench_gpu.py: skipped, needs a CUDA GPU")
        return
    warnings.simplefilter("ignore")
    bandwidth = copy_bandwidth()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, "
        f"{time.strftime('%Y-%m-%d')}"
    )
    print(f"copy bandwidth {bandwidth / 1e9:.0f} GB/s (bytes read and written)")
    for title, part in (
        ("Exact stability", lambda: exact_rows(bandwidth)),
        ("Hoki", hoki_rows),
        ("Other fits, 5000 x 100 float32", fit_rows),
    ):
        print(f"\n### {title}\n")
        print_table(part())


def print_table(rows: Iterator[tuple[str, ...]]) -> None:
    """The first row is the head."""
    head = next(rows)
    print("| " + " | ".join(head) + " |")
    print("|---" + "|--:" * (len(head) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def exact_rows(bandwidth: float) -> Iterator[tuple[str, ...]]:
    yield (
        "logits",
        "noise",
        "floor, ms",
        "kernel, ms",
        "floors",
        "call, ms",
        "plain, ms",
        "off",
    )
    for name, n, n_classes, dtype in SIZES:
        logits = device_logits(n, n_classes, dtype)[0]
        for noise_name, noise, kernel in NOISES:
            measured = exact_row(logits, noise, kernel, bandwidth)
            yield f"{name}, {n:,} x {n_classes:,}", noise_name, *measured


def exact_row(
    logits: Tensor, noise: Noise, kernel: Callable[..., Tensor], bandwidth: float
) -> tuple[str, ...]:
    floor = logits.numel() * logits.element_size() / bandwidth
    work = partial(kernel, as_logits(logits), noise.width)
    seconds = device_seconds(work)
    # Plain torch is not timed where it would take long.
    plain = (
        plain_seconds(logits, noise, kernel) if logits.numel() <= 25_000_000 else None
    )
    return (
        f"{1e3 * floor:.3f}",
        f"{1e3 * seconds:.3f}",
        f"{seconds / floor:.1f}",
        f"{1e3 * call_seconds(work):.3f}",
        "" if plain is None else f"{1e3 * plain:.1f}",
        f"{largest_difference(work(), logits, noise):.0e}",
    )


def plain_seconds(logits: Tensor, noise: Noise, kernel: Callable[..., Tensor]) -> float:
    """Without Triton; margins are made anew in every run, as in the kernels."""
    os.environ["HOKICAL_TRITON"] = "0"
    top = as_logits(logits)
    try:
        return device_seconds(lambda: kernel(fresh(top), noise.width), 3)
    finally:
        del os.environ["HOKICAL_TRITON"]


def fresh(logits: Logits) -> Logits:
    """The same without what has been computed of it."""
    return Logits(logits.values, logits.top, logits.backend)


def largest_difference(got: Tensor, logits: Tensor, noise: Noise) -> float:
    """From the core's result, on some of the rows."""
    some = slice(0, max(16, min(25_000, 5_000_000 // logits.shape[1])))
    expected = label_stability(logits[some].float().cpu().numpy(), noise)
    return float(np.abs(got[some].cpu().numpy() - expected).max())


def hoki_rows() -> Iterator[tuple[str, ...]]:
    yield "25,000 x 1000 float32", "GPU, ms", "host, ms", "off"
    logits, labels = device_logits(25_000, 1000, torch.float32)
    host, truth = logits.cpu().numpy(), labels.cpu().numpy()
    there, here = Hoki().fit(logits, labels), Hoki().fit(host, truth)
    confidence = here.predict_confidence(host)
    yield (
        f"`Hoki().fit`, noise chosen: {there.noise_.family}",
        f"{1e3 * call_seconds(lambda: Hoki().fit(logits, labels), 9):.1f} (target 15)",
        f"{1e3 * wall(lambda: Hoki().fit(host, truth)):.0f}",
        f"{float(np.abs(there.predict_confidence(logits).cpu().numpy() - confidence).max()):.0e}",
    )
    module = as_module(here).cuda()
    yield (
        "`as_module(cal)(logits)`: labels and confidence",
        f"{1e3 * call_seconds(lambda: module(logits)):.2f}",
        f"{1e3 * wall(lambda: here.predict_confidence(host)):.0f}",
        f"{float(np.abs(module(logits).confidence.cpu().numpy() - confidence).max()):.0e}",
    )
    yield (
        "`predict_confidence`, with its checks",
        f"{1e3 * call_seconds(lambda: here.predict_confidence(logits)):.2f} (target "
        "0.4)",
        f"{1e3 * wall(lambda: here.predict_confidence(host)):.0f}",
        f"{float(np.abs(here.predict_confidence(logits).cpu().numpy() - confidence).max()):.0e}",
    )
    fit_default = (
        f"{1e3 * call_seconds(lambda: make('auto').fit(logits, labels), 9):.1f}"
    )
    yield "fit of the default, `auto`", f"{fit_default} (target 40)", "", ""


def fit_rows() -> Iterator[tuple[str, ...]]:
    yield "method", "GPU, s", "host, s", "off"
    logits, labels = device_logits(5000, 100, torch.float32)
    host, truth = logits.cpu().numpy(), labels.cpu().numpy()
    known = ("auto", *method_names())  # some are hokical-paper's
    for method in [name for name in METHODS if name in known]:
        there, here = make(method), make(method)
        times = 1 if method in SLOW_METHODS else 5
        gpu_seconds = call_seconds(partial(there.fit, logits, labels), times)
        host_seconds = call_seconds(partial(here.fit, host, truth), times)
        expected = here.predict_confidence(host)
        off = np.abs(there.predict_confidence(logits).cpu().numpy() - expected).max()
        yield method, f"{gpu_seconds:.3f}", f"{host_seconds:.3f}", f"{off:.0e}"


def device_logits(n: int, n_classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Normal logits with a lift for the true class, made on the device: (logits,
    labels).
    """
    generator = torch.Generator("cuda").manual_seed(0)
    logits = torch.empty(n, n_classes, device="cuda", dtype=dtype)
    labels = torch.randint(n_classes, (n,), device="cuda", generator=generator)
    lift = 2.0 + 3.0 * torch.rand(n, 1, device="cuda", generator=generator)
    for start in range(0, n, 100_000):
        part = logits[start : start + 100_000]
        part.normal_(generator=generator).mul_(1.5)
        rows = slice(start, start + part.shape[0])
        part.scatter_add_(1, labels[rows, None], (1.5 * lift[rows]).to(dtype))
    return logits, labels


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of a copy of 2 GB."""
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    return (
        2
        * source.numel()
        * source.element_size()
        / device_seconds(lambda: target.copy_(source))
    )


def device_seconds(work: Work, times: int = 15) -> float:
    """Median time on the device. It sleeps first, while the host puts the work into
    its queue.
    """
    work()
    seconds = []
    for _ in range(times):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(2_000_000)
        begin.record()
        work()
        end.record()
        end.synchronize()
        seconds.append(1e-3 * begin.elapsed_time(end))
    return statistics.median(seconds)


def call_seconds(work: Work, times: int = 15) -> float:
    """Median time from the call to the finished result, once clocks have risen."""
    until = time.perf_counter() + WARM_UP_SECONDS
    work()
    while time.perf_counter() < until:
        work()
    return statistics.median(wall(work) for _ in range(times))


def wall(work: Work) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()

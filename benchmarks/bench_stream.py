"""Streams: peak memory while the rows grow, and time against threads and cluster workers.

    python benchmarks/bench_stream.py                  # 1e5, 1e6 and 1e7 rows of 10 classes
    python benchmarks/bench_stream.py --rows 100000    # one size

Rows are made chunk by chunk, so that nothing holds them all. Every size runs in a process of its
own, whose peak resident memory is what the system says.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

N_CLASSES, CHUNK_ROWS = 10, 100_000
METHODS = ("hoki", "hoki-auto", "temps", "ets", "vecs")


def chunk(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Overconfident float32 logits."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(N_CLASSES, size=rows)
    logits = rng.standard_normal((rows, N_CLASSES), dtype=np.float32)
    logits[np.arange(rows), labels] += 2.0
    return 3.0 * logits, labels


def make_calibrator(method: str):
    from hokical.calibrators import make
    from hokical.stability._noise import Gaussian

    return make("hoki", noise=Gaussian(4.0)) if method == "hoki" else make(method.split("-")[0])


def fit_rows(method: str, n_rows: int) -> dict[str, float]:
    """Seconds and peak memory of a fit, in this process."""
    from hokical.streams import fit, open_source

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, n_rows, CHUNK_ROWS):
            yield chunk(start, min(CHUNK_ROWS, n_rows - start))

    warm = chunk(0, 1000)
    make_calibrator(method).fit(*warm)  # imports and compiles
    idle = time.perf_counter()
    for _ in chunks():
        pass
    begun = time.perf_counter()
    fit(make_calibrator(method), open_source(chunks), progress=False)
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "making_rows": begun - idle, "peak_mb": peak}


def memory_table(sizes: list[int], methods: list[str], threads: str) -> None:
    print("| method | rows | fit | of which making rows, once | peak memory |")
    print("|---|--:|--:|--:|--:|")
    for method in methods:
        for n_rows in sizes:
            found = _in_child("fit", method, str(n_rows), threads=threads)
            print(
                f"| {method} | {n_rows:.0e} | {found['seconds']:.1f} s | "
                f"{found['making_rows']:.1f} s | {found['peak_mb']:.0f} MB |",
                flush=True,
            )


def thread_table(n_rows: int) -> None:
    print(f"\n| threads | hoki, {n_rows:.0e} rows from a file |\n|--:|--:|")
    for count in ("1", "2"):
        found = _in_child("mapped", str(n_rows), threads=count)
        print(f"| {count} | {found['seconds']:.2f} s |", flush=True)


def mapped(n_rows: int) -> dict[str, float]:
    """A fit from a memory-mapped file: no time goes into making rows."""
    import tempfile
    from pathlib import Path

    from hokical.streams import fit, open_source

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logits.npy"
        logits = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, N_CLASSES))
        labels = np.empty(n_rows, np.int64)
        for start in range(0, n_rows, CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            logits[rows], labels[rows] = chunk(start, CHUNK_ROWS)
        make_calibrator("hoki").fit(logits[:1000], labels[:1000])
        begun = time.perf_counter()
        fit(make_calibrator("hoki"), open_source(np.load(path, mmap_mode="r"), labels))
        return {"seconds": time.perf_counter() - begun}


def cluster_table(n_rows: int) -> None:
    """A fit on a local cluster of worker processes with a thread each."""
    import dask.array as da
    import distributed

    rows = 250_000
    print(f"\n| workers | hoki, {n_rows:.0e} rows on a Dask cluster |\n|--:|--:|")
    for count in (1, 2):
        with (
            distributed.LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                silence_logs=50,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            parts = [client.submit(chunk, seed, rows) for seed in range(n_rows // rows)]
            distributed.wait(parts)
            assert len(client.has_what()) == count
            logits, labels = (_joined(da, parts, which, rows) for which in (0, 1))
            make_calibrator("hoki").fit(logits[: count * rows], labels[: count * rows])  # warm
            begun = time.perf_counter()
            make_calibrator("hoki").fit(logits, labels)
            print(f"| {count} | {time.perf_counter() - begun:.2f} s |", flush=True)


def _joined(da, parts, which: int, rows: int):
    import dask

    pick = dask.delayed(lambda pair: pair[which], pure=True)
    shape, dtype = [((rows, N_CLASSES), np.float32), ((rows,), np.int64)][which]
    return da.concatenate([da.from_delayed(pick(part), shape, dtype) for part in parts])


def _in_child(*args: str, threads: str) -> dict[str, float]:
    import os

    environment = os.environ | ({"HOKICAL_NUM_THREADS": threads} if threads else {})
    command = [sys.executable, __file__, "--child", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--methods", nargs="*", default=["hoki", "temps"], choices=METHODS)
    parser.add_argument("--threads", default="", help="of the memory table; all by default")
    parser.add_argument("--no-cluster", action="store_true")
    parser.add_argument("--child", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        job, *args = options.child
        found = fit_rows(args[0], int(args[1])) if job == "fit" else mapped(int(args[0]))
        print(json.dumps(found))
        return
    memory_table(options.rows, options.methods, options.threads)
    thread_table(2_000_000)
    if not options.no_cluster:
        cluster_table(4_000_000)


if __name__ == "__main__":
    main()

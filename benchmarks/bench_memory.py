"""Memory that fits of the default take beyond their input, and a fit larger than
memory.

    python benchmarks/bench_memory.py          # two minutes python
    benchmarks/bench_memory.py --large  # then streams larger than the memory they may
    use

Each size is fitted in a process of its own: how far the process grows, in inputs of
float32, and seconds of CPU time. A stream is read from a memory-mapped file, from
Parquet, or from a Dask array, while the process may take less memory of its own than
its logits have. The last table compares the fit on a Parquet file with reading that
file once, in CPU time of the same process.

Bars: arrays grow by at most two inputs beyond 0.4 GB; 10,000,000 x 10 from Parquet by
at most 600 MiB; a fit takes at most ten times as long as reading the file.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (
    (100_000, 10),
    (1_000_000, 10),
    (200_000, 100),
    (25_000, 1000),
    (100_000, 1000),
)
#: Kinds, rows and classes of streams, and bytes that the process may take for them.
STREAMS = (
    ("memory-mapped", 10_000_000, 10, 350 << 20),
    ("memory-mapped", 1_000_000, 1000, 900 << 20),
    ("parquet", 10_000_000, 10, 600 << 20),
    ("parquet", 3_000_000, 100, 900 << 20),
    ("dask", 300_000, 1000, 900 << 20),
)
#: Rows and classes of the Parquet file whose fit is compared with reading it.
READ_ONCE = (3_000_000, 20)
_ROWS = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    large = parser.parse_args().large
    print(
        "| rows | classes | method | grows by, inputs | MB | CPU s "
        "|\n|--:|--:|---|--:|--:|--:|"
    )
    for size in SIZES:
        for method in ("temps", "auto"):
            in_a_process(fit_array, method, *size)
    for kind, n_rows, n_classes, limit in STREAMS if large else ():
        with tempfile.TemporaryDirectory() as folder:
            (write_tables if kind == "parquet" else write_arrays)(
                Path(folder), n_rows, n_classes
            )
            in_a_process(fit_stream, kind, folder, limit, n_rows, n_classes)
    print(
        "\n| rows | classes | read, CPU s | fit, CPU s | ratio |\n|--:|--:|--:|--:|--:|"
    )
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder), *READ_ONCE)
        in_a_process(compare_with_reading, folder, *READ_ONCE)


def in_a_process(work: Any, *given: Any) -> None:
    process = multiprocessing.get_context("spawn").Process(target=work, args=given)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{work.__name__}{given} failed")


def make_rows(first: int, n_rows: int, n_classes: int) -> tuple[Any, Any]:
    """Overconfident logits with a bias by class, and labels."""
    rng = np.random.default_rng([first, n_classes])
    true = 2.0 * rng.normal(size=(n_rows, n_classes))
    labels = np.argmax(true + rng.gumbel(size=true.shape), axis=1)
    return (1.7 * true + np.linspace(0.0, 1.0, n_classes)).astype(np.float32), labels


def fill(logits: Any, labels: Any) -> None:
    for first in range(0, len(logits), _ROWS):
        rows = slice(first, min(first + _ROWS, len(logits)))
        logits[rows], labels[rows] = make_rows(
            first, rows.stop - first, logits.shape[1]
        )


def fit_array(method: str, n_rows: int, n_classes: int) -> None:
    import hokical

    logits, labels = (
        np.empty((n_rows, n_classes), np.float32),
        np.empty(n_rows, np.int64),
    )
    fill(logits, labels)
    hokical.make(method).fit(logits[:3000], labels[:3000])  # imports and compiles
    with Growth() as growth:
        hokical.make(method).fit(logits, labels)
    growth.tell(n_rows, n_classes, method)


def write_tables(folder: Path, n_rows: int, n_classes: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for first in range(0, n_rows, _ROWS):
        logits, labels = make_rows(first, min(_ROWS, n_rows - first), n_classes)
        columns = {f"logit_{k}": logits[:, k] for k in range(n_classes)} | {
            "label": labels
        }
        pq.write_table(
            pa.table(columns), folder / f"{first:09d}.parquet", row_group_size=_ROWS
        )


def write_arrays(folder: Path, n_rows: int, n_classes: int) -> None:
    logits = np.lib.format.open_memmap(
        folder / "logits.npy", "w+", np.float32, (n_rows, n_classes)
    )
    labels = np.lib.format.open_memmap(folder / "labels.npy", "w+", np.int64, (n_rows,))
    fill(logits, labels)


def fit_stream(kind: str, folder: str, limit: int, n_rows: int, n_classes: int) -> None:
    import hokical
    from hokical.streams import fit, open_source

    hokical.auto(*make_rows(0, 3000, n_classes))
    source: Any = folder
    if kind != "parquet":
        names = ("logits", "labels")
        arrays = [np.load(Path(folder, f"{name}.npy"), mmap_mode="r") for name in names]
        source = open_source(*arrays) if kind == "memory-mapped" else as_dask(*arrays)
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (size_of("VmData") + limit,) * 2)
    with Growth("RssAnon") as growth:
        if kind == "dask":
            hokical.auto(*source)
        else:
            fit(hokical.AutoCalibrator(), source, progress=False)
    within = f", within {limit >> 20} MiB" if limit else ""
    growth.tell(n_rows, n_classes, f"auto, {kind}{within}")


def compare_with_reading(folder: str, n_rows: int, n_classes: int) -> None:
    import pyarrow.dataset as ds

    import hokical
    from hokical.streams import fit

    fit(
        hokical.AutoCalibrator(), [make_rows(0, 250_000, n_classes)]
    )  # imports and compiles
    seconds = []
    for work in (
        lambda: ds.dataset(folder).to_table(),
        lambda: fit(hokical.AutoCalibrator(), folder, progress=False),
    ):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    read, fitted = seconds
    cells = (
        f"{n_rows:,} | {n_classes} | {read:.1f} | {fitted:.1f} | {fitted / read:.1f}"
    )
    print(f"| {cells} |", flush=True)


def as_dask(logits: Any, labels: Any) -> tuple[Any, Any]:
    import dask
    import dask.array as da

    dask.config.set(scheduler="threads", num_workers=2)
    return da.from_array(logits, chunks=(_ROWS // 4, -1)), da.from_array(
        labels, chunks=_ROWS // 4
    )


def size_of(field: str) -> int:
    """Bytes of the process, by the system's count."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10


class Growth:
    """How far the process grows inside the block, and its CPU time."""

    def __init__(self, field: str = "VmRSS") -> None:
        self.field, self.over = field, threading.Event()

    def __enter__(self) -> Growth:
        self.before = self.peak = size_of(self.field)
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()
        self.seconds = time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.process_time() - self.seconds
        self.over.set()
        self.watcher.join()

    def watch(self) -> None:
        while not self.over.wait(0.005):
            self.peak = max(self.peak, size_of(self.field))

    def tell(self, n_rows: int, n_classes: int, method: str) -> None:
        grown = self.peak - self.before
        inputs = grown / (4 * n_rows * n_classes)
        cells = (
            f"{n_rows:,} | {n_classes} | {method} | {inputs:.1f} | {grown / 1e6:.0f}"
        )
        print(f"| {cells} | {self.seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()

"""Ten million rows through `BatchPredictor`: batches of a Parquet folder, Polars, Spark
and Ray.

    python benchmarks/bench_engines.py                # those engines that are installed
    python benchmarks/bench_engines.py --rows 1000000

Each engine reads the same folder, appends `label` and `confidence`, and adds up the
confidences, so that nothing else is kept. "softmax" is the floor: NumPy's own softmax
of the same batches and the sum of its maxima. Rows a second and core by the clock, for
the cores that the engine was given; memory is the largest sum over the process and all
its children, above what they take before. Spark needs Java 17.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

N_CLASSES = 10
NAMES = [f"z{k}" for k in range(N_CLASSES)]
_FILE = 250_000  # rows of a file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--cores", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder), options.rows)
        print(f"{options.rows:,} rows of {N_CLASSES} classes\n")
        print(
            "| engine | cores | rows a second and core | floors | MB "
            "|\n|---|--:|--:|--:|--:|"
        )
        floor = None
        for name, (module, work, several) in ENGINES.items():
            if importlib.util.find_spec(module) is None:
                print(f"| {name} | not installed: {module} ||||")
            elif name == "Spark" and shutil.which("java") is None:
                print(f"| {name} | no Java ||||")
            else:
                cores = options.cores if several else 1
                seconds, size = measure(work, folder, cores, options.rows)
                rate = options.rows / seconds / cores
                floor = rate if floor is None else floor
                print(
                    f"| {name} | {cores} | {rate:,.0f} | {floor / rate:.1f} | "
                    f"{size / 1e6:.0f} |"
                )


def write_rows(folder: Path, n_rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for first in range(0, n_rows, _FILE):
        size = min(_FILE, n_rows - first)
        logits = (
            np.random.default_rng(first)
            .normal(size=(size, N_CLASSES))
            .astype(np.float32)
        )
        columns = {"id": np.arange(first, first + size)} | dict(
            zip(NAMES, logits.T, strict=True)
        )
        pq.write_table(pa.table(columns), folder / f"{first:09d}.parquet")


def make_predictor() -> Any:
    import hokical
    from hokical.integrations.arrow import BatchPredictor

    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(3000, N_CLASSES))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return BatchPredictor(hokical.auto(1.5 * logits, labels), logits=NAMES)


# --- the engines: each gives a function that predicts all and adds up, after what
# starts it


def softmax_batches(folder: str, cores: int) -> Callable[[], float]:
    def largest(batch: Any) -> float:
        logits = np.column_stack([batch.column(name) for name in NAMES])
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return float((powers.max(axis=1) / powers.sum(axis=1)).sum(dtype=np.float64))

    return lambda: sum(map(largest, read_batches(folder)))


def plain_batches(folder: str, cores: int) -> Callable[[], float]:
    predict = make_predictor()
    return lambda: sum(
        float(batch.column("confidence").to_numpy().sum())
        for batch in predict.batches(read_batches(folder))
    )


def polars_frame(folder: str, cores: int) -> Callable[[], float]:
    import polars as pl

    predict, frame = make_predictor(), pl.scan_parquet(folder)
    schema = {
        **frame.collect_schema(),
        **pl.from_arrow(predict.schema.empty_table()).schema,
    }
    found = frame.map_batches(
        lambda part: pl.from_arrow(predict(part)), schema=schema, streamable=True
    )
    return lambda: float(
        found.select("confidence").sum().collect(engine="streaming").item()
    )


def spark_frame(folder: str, cores: int) -> Callable[[], float]:
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.master(f"local[{cores}]").config(
        "spark.ui.enabled", "false"
    )
    spark = builder.config("spark.driver.memory", "2g").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    predict, frame = make_predictor(), spark.read.parquet(folder)
    found = frame.mapInArrow(predict.batches, predict.spark_schema(frame.schema))
    return lambda: float(found.agg({"confidence": "sum"}).first()[0])


def ray_dataset(folder: str, cores: int) -> Callable[[], float]:
    import ray

    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    ray.init(
        num_cpus=cores,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=1 << 30,
        runtime_env={"env_vars": paths},
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    predict = make_predictor()
    found = ray.data.read_parquet(folder).map_batches(predict, batch_format="pyarrow")
    return lambda: float(found.sum("confidence"))


def read_batches(folder: str) -> Iterable[Any]:
    import pyarrow.dataset as ds

    return ds.dataset(folder).to_batches(columns=NAMES, use_threads=False)


#: The module it needs, what starts it, and whether it uses several cores.
ENGINES: dict[str, tuple[str, Callable[[str, int], Callable[[], float]], bool]] = {
    "softmax": ("pyarrow", softmax_batches, False),
    "batches": ("pyarrow", plain_batches, False),
    "Polars": ("polars", polars_frame, False),
    "Spark": ("pyspark", spark_frame, True),
    "Ray": ("ray", ray_dataset, True),
}


# --- measuring, each in a process of its own


def measure(work: Any, folder: str, cores: int, n_rows: int) -> tuple[float, int]:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=run, args=(work, folder, cores, n_rows, results))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{work.__name__} failed")
    found: tuple[float, int] = results.get()
    return found


def run(work: Any, folder: str, cores: int, n_rows: int, results: Any) -> None:
    from threadpoolctl import threadpool_limits

    import hokical

    with threadpool_limits(1), hokical.threads(1):
        predict_all = work(folder, cores)
        peak, over = [0], threading.Event()
        before = memory_of_all()
        watcher = threading.Thread(target=watch, args=(peak, over))
        watcher.start()
        start = time.perf_counter()
        total = predict_all()
        seconds = time.perf_counter() - start
        over.set()
        watcher.join()
    assert 1 / N_CLASSES < total / n_rows < 1.0
    results.put((seconds, max(peak[0] - before, 0)))


def watch(peak: list[int], over: threading.Event) -> None:
    while not over.wait(0.1):
        peak[0] = max(peak[0], memory_of_all())


def memory_of_all() -> int:
    """Bytes of memory of its own that this process and its children take together."""
    parents, sizes = {}, {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                lines = (path / "status").read_text().splitlines()
            except OSError:  # it ended
                continue
            fields = dict(line.split(":", 1) for line in lines if ":" in line)
            if "RssAnon" in fields:
                parents[int(path.name)] = int(fields["PPid"])
                sizes[int(path.name)] = int(fields["RssAnon"].split()[0]) << 10
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(sizes.get(pid, 0) for pid in mine)


if __name__ == "__main__":
    main()

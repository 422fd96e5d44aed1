"""`BatchPredictor` in Spark and Ray: real workers, one of them killed, the bits of a
prediction.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from hokical.integrations.arrow import BatchPredictor
from tests.conftest import synthetic_logits

pa = pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    # The engines' own: of pandas 3, of threads, of sockets.
    pytest.mark.filterwarnings("ignore"),
]

LOGITS, LABELS = synthetic_logits(6000, 4, seed=8)
NAMES = [f"z{k}" for k in range(4)]
TABLE = pa.table(
    {"id": np.arange(len(LABELS))} | dict(zip(NAMES, LOGITS.T, strict=True))
)
needs_spark = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
    reason="needs pyspark and Java 17",
)


def predictor(cal: Any) -> BatchPredictor:
    return BatchPredictor(cal, logits=NAMES, outputs=("label", "confidence", "proba"))


def check(found: Any, cal: Any) -> None:
    """The rows in any order, with the bits of plain predictions."""
    found = found.sort_by("id")
    assert found.column("id").to_pylist() == list(range(len(LABELS)))
    assert found.column("label").to_pylist() == cal.predict(LOGITS).tolist()
    assert (
        found.column("confidence").to_pylist()
        == cal.predict_confidence(LOGITS).tolist()
    )
    assert found.column("proba").to_pylist() == cal.predict_proba(LOGITS).tolist()


def die_once(mark: Path) -> None:
    """Kill the process that runs this, the first time."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


# --- Spark


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.master(
        "local[2, 4]"
    )  # two threads, four attempts of a task
    session = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@needs_spark
def test_spark_fits_on_a_sample_and_predicts_all(spark: Any, tmp_path: Path) -> None:
    rows = TABLE.append_column("y", pa.array(LABELS))
    frame = spark.createDataFrame(rows).repartition(4)
    sample = frame.sample(0.3, seed=1).toArrow()
    logits = np.column_stack([sample.column(name) for name in NAMES])
    cal = hokical.auto(logits, np.asarray(sample.column("y")))
    whole = hokical.auto(frame.select(*NAMES, "y"), labels="y")  # a frame is a table
    assert whole.n_classes_ == cal.n_classes_
    predict, mark = predictor(cal), tmp_path / "killed"

    def batches(parts: Iterable[Any]) -> Iterator[Any]:
        yield from predict.batches(parts)
        die_once(mark)

    found = frame.mapInArrow(batches, predict.spark_schema(frame.schema))
    check(found.toArrow(), cal)
    assert mark.exists()


@needs_spark
def test_spark_has_lists_of_logits_and_guarantees(spark: Any) -> None:
    cal = hokical.make("temps").fit(LOGITS[:1000], LABELS[:1000])
    cal.certify(LOGITS[1000:3000], LABELS[1000:3000])
    frame = spark.createDataFrame(
        pa.table({"id": np.arange(6000), "logits": list(LOGITS)})
    )
    outputs = ("set", "abstain", "interval")
    predict = BatchPredictor(
        cal, logits="logits", outputs=outputs, coverage=0.9, risk=0.3
    )
    found = frame.mapInArrow(
        predict.batches, predict.spark_schema(frame.schema)
    ).toArrow()
    found = found.sort_by("id")
    sets = cal.predict_set(LOGITS, coverage=0.9)
    assert found.column("set").to_pylist() == [sets.labels(row) for row in range(6000)]
    accepted = cal.predict_or_abstain(LOGITS, risk=0.3).accepted
    assert found.column("abstain").to_pylist() == (~accepted).tolist()
    assert found.column("interval").to_pylist() == cal.predict_interval(LOGITS).tolist()


# --- Ray


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    here = {"PYTHONPATH": os.pathsep.join(sys.path)}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": here},
    )
    yield ray
    ray.shutdown()


def test_ray_fits_on_a_sample_and_predicts_all(ray: Any, tmp_path: Path) -> None:
    data = ray.data.from_arrow(TABLE.append_column("y", pa.array(LABELS))).repartition(
        4
    )
    sample = data.random_sample(0.3, seed=1).to_pandas()
    cal = hokical.auto(sample[NAMES].to_numpy(), sample["y"].to_numpy())
    predict, mark = predictor(cal), tmp_path / "killed"

    def one(table: Any) -> Any:
        die_once(mark)
        return predict(table)

    found = data.map_batches(one, batch_format="pyarrow", batch_size=700)
    check(pa.concat_tables(ray.get(found.to_arrow_refs())), cal)
    assert mark.exists()

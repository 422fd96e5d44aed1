"""Append predictions to Arrow data: one function for Spark, Ray, Polars, DuckDB and
pyarrow.
"""

import pickle

import numpy as np
import pyarrow as pa

import hokical
from hokical.demo import demo_logits
from hokical.integrations.arrow import BatchPredictor

(val_logits, val_labels), (logits, _) = demo_logits()
cal = hokical.auto(val_logits[::2], val_labels[::2])
cal.certify(val_logits[1::2], val_labels[1::2])

predict = BatchPredictor(
    cal, logits="logits", outputs=("label", "confidence", "set"), coverage=0.9
)
print(f"travels to a worker as {len(pickle.dumps(predict)) / 1000:.0f} kB")

table = pa.table(
    {"id": np.arange(len(logits)), "logits": list(logits.astype(np.float32))}
)
print(predict(table).slice(0, 3).drop_columns("logits").to_pylist())

# In batches, as engines pass them: Spark's `df.mapInArrow(predict.batches, schema)`,
# for instance.
n_rows = sum(
    batch.num_rows
    for batch in predict.batches(iter(table.to_batches(max_chunksize=1000)))
)
print(f"{n_rows:,} rows in batches")

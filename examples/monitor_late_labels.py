"""Watch a model in production: predictions now, labels later, an alarm when
confidence is off.
"""

import numpy as np

import hokical
from hokical import CalibrationMonitor
from hokical.demo import demo_logits

(val_logits, val_labels), (logits, labels) = demo_logits()
cal = hokical.auto(val_logits, val_labels)
monitor = CalibrationMonitor(cal, window=2000)

logits = logits.astype(float)
logits[5000:] += 6.0 * np.random.default_rng(0).normal(
    size=(5000, 10)
)  # the camera degrades

for day in range(10):
    rows = slice(1000 * day, 1000 * (day + 1))
    ids = [f"day {day}, photo {k}" for k in range(1000)]
    monitor.update_logits(logits[rows], ids=ids)  # today's predictions
    shift = cal.estimate_shift(logits[rows])  # before any label of today
    monitor.add_labels(ids, labels[rows])  # labels arrive in the evening
    print(
        f"day {day}: without labels: {shift.verdict}; with labels: {monitor.status()}"
    )
    if monitor.status().alarmed:
        print("alarm: certify again, or fit on new examples")
        break

monitor.save("monitor.json")  # a restart resumes exactly
monitor = CalibrationMonitor.load("monitor.json", cal)

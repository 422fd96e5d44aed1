"""Find the groups that a tabular model is wrong about, and correct them."""

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier

import hokical
from hokical.metrics import group_table, log_loss

rng = np.random.default_rng(0)


def applicants(n):
    """Whether a loan is repaid. The model does not see the region, which matters."""
    regions = ["north", "south", "east", "west"]
    columns = {
        "income": rng.normal(size=n),
        "debt": rng.normal(size=n),
        "age": rng.integers(18, 80, n),
        "region": rng.choice(regions, n, p=[0.4, 0.3, 0.2, 0.1]),
    }
    frame = pd.DataFrame(columns)
    shift = frame["region"].map({"north": 0.0, "south": 0.3, "east": 0.0, "west": -1.5})
    odds = 1.0 + frame["income"] - frame["debt"] + shift
    return frame, (rng.logistic(size=n) < odds).to_numpy().astype(int)


train, train_y = applicants(4000)
val, val_y = applicants(4000)
test, test_y = applicants(8000)
features = ["income", "debt", "age"]
model = RandomForestClassifier(50, min_samples_leaf=20, random_state=0).fit(
    train[features], train_y
)
val_logits, test_logits = (
    hokical.from_probabilities(model.predict_proba(part[features]))
    for part in (val, test)
)

plain = hokical.auto(val_logits, val_y)
columns = ["region", "age"]
cal = hokical.auto(val_logits, val_y, groups=val[columns])
print(cal.reason_.partition("Groups: ")[2])
for name, proba in {
    "without groups": plain.predict_proba(test_logits),
    "with groups": cal.predict_proba(test_logits, groups=test[columns]),
}.items():
    audit = group_table(proba[:, 1], test_y, test["region"].to_numpy())
    print(f"\n{name}: log loss {log_loss(proba, test_y):.4f}; {audit.verdict}")
    for row in audit.rows:
        print(
            f"  {row.name:6} predicted {row.predicted:.1%}, observed {row.observed:.1%}"
        )

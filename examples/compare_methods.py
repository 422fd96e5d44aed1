"""Compare calibration methods on several data sets, and write a LaTeX table of each."""

from pathlib import Path

from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

import hokical

METHODS = ["uncalibrated", "temps", "ets", "structured", "auto"]
LOADERS = {
    "digits": load_digits,
    "breast cancer": load_breast_cancer,
    "wine": load_wine,
}
tables = []
for name, load in LOADERS.items():
    X, y = load(return_X_y=True)
    X, X_test, y, y_test = train_test_split(
        X, y, stratify=y, test_size=0.4, random_state=0
    )
    X_train, X_val, y_train, y_val = train_test_split(
        X, y, stratify=y, test_size=0.5, random_state=0
    )
    model = GaussianNB().fit(X_train, y_train)
    validation = hokical.from_probabilities(model.predict_proba(X_val)), y_val
    test = hokical.from_probabilities(model.predict_proba(X_test)), y_test
    comparison = hokical.compare(validation, test, METHODS)
    print(f"{name}\n{comparison}\n")
    tables.append(f"% {name}\n{comparison.to_latex()}")

Path("tables.tex").write_text("\n\n".join(tables), encoding="utf-8")

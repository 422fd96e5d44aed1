"""Compare calibration methods over several data sets, with ranks, and write a LaTeX table."""

from pathlib import Path

from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

import hokical

validation, test = {}, {}
for name, load in {
    "digits": load_digits, "breast cancer": load_breast_cancer, "wine": load_wine,
    "iris": load_iris,
}.items():  # fmt: skip
    X, y = load(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, stratify=y, test_size=0.4, random_state=0)
    X_train, X_val, y_train, y_val = train_test_split(
        X, y, stratify=y, test_size=0.5, random_state=0
    )
    model = GaussianNB().fit(X_train, y_train)
    validation[name] = hokical.from_probabilities(model.predict_proba(X_val)), y_val
    test[name] = hokical.from_probabilities(model.predict_proba(X_test)), y_test

found = hokical.compare(validation, test, ["uncalibrated", "temps", "ets", "structured", "auto"])
print(found)
Path("table.tex").write_text(found.to_latex(), encoding="utf-8")
print("\n" + found.to_latex())

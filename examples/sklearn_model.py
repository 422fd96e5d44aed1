"""Calibrate a scikit-learn model, beside scikit-learn's own CalibratedClassifierCV."""

from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hokical import CalibratedClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
X_more, X_test, y_more, y_test = train_test_split(X_test, y_test, random_state=0)

estimator = make_pipeline(StandardScaler(), GaussianNB())
model = CalibratedClassifier(estimator, cv=5)
for name, one in {
    "uncalibrated": estimator,
    "CalibratedClassifierCV": CalibratedClassifierCV(estimator, cv=5),
    "CalibratedClassifier": model,
}.items():
    proba = one.fit(X_train, y_train).predict_proba(X_test)
    loss, accuracy = log_loss(y_test, proba), one.score(X_test, y_test)
    print(f"{name:22} accuracy {accuracy:.3f}, log loss {loss:.3f}")

confidence = model.predict_confidence(
    X_test
)  # the probability that each label is right
print(f"mean confidence {confidence.mean():.3f}")

sets = model.certify(X_more, y_more).predict_set(X_test, coverage=0.9)
print(sets.guarantee)

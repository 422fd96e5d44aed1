"""A risk score for two classes: calibrated risk, interval, slope, decision curve,
decisions.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

import hokical

X, y = load_breast_cancer(return_X_y=True)
y = 1 - y  # class 1: malignant
X, X_test, y, y_test = train_test_split(X, y, stratify=y, test_size=0.3, random_state=0)
X_train, X_val, y_train, y_val = train_test_split(
    X, y, stratify=y, test_size=0.6, random_state=0
)
model = GaussianNB().fit(X_train, y_train)


def logits_of(features):
    return hokical.from_probabilities(model.predict_proba(features))


fit, held_out = slice(0, None, 2), slice(1, None, 2)
cal = hokical.auto(logits_of(X_val[fit]), y_val[fit])
cal.certify(logits_of(X_val[held_out]), y_val[held_out])

logits = logits_of(X_test)
risk = cal.predict_proba(logits)[:, 1]
interval = cal.predict_interval(logits, label=1)
raw = model.predict_proba(X_test)[:, 1]
print("patient  model  risk  95 % interval")
for k, (low, high) in enumerate(interval[:5]):
    print(f"{k:7} {raw[k]:6.3f} {risk[k]:5.2f}  {low:.2f} to {high:.2f}")

slope = hokical.metrics.calibration_slope(risk, y_test)
print(
    f"calibration slope {slope.slope.value:.2f} ({slope.slope.low:.2f} to "
    f"{slope.slope.high:.2f})"
)

thresholds = [0.05, 0.1, 0.2, 0.5]
curves = [hokical.metrics.decision_curve(p, y_test, thresholds) for p in (raw, risk)]
print("net benefit at a threshold of")
for k, t in enumerate(thresholds):
    before, after, treat_all = (
        curves[0].net_benefit,
        curves[1].net_benefit,
        curves[0].treat_all,
    )
    print(
        f"  {t:4.0%}: model {before[k]:.3f}, calibrated {after[k]:.3f}, all "
        f"{treat_all[k]:.3f}"
    )

detections = cal.detect(logits, 1, recall=0.9, delta=0.1)
print(
    f"flagged {detections.flagged.mean():.0%}; recall "
    f"{detections.flagged[y_test == 1].mean():.0%}"
)
print(detections.guarantee)

action = cal.predict_action(
    logits, costs=(1, 10)
).actions  # a miss costs ten false alarms
print(f"act on {action.mean():.0%} of the patients")

"""When can a language model answer without review? Several signals, and one
guarantee by topic.
"""

import numpy as np

import hokical
from hokical.io import agreement

rng = np.random.default_rng(0)
topics = np.array(["billing", "shipping", "returns", "legal"])
difficulty = np.array([-0.8, -0.4, 0.0, 1.2])


def ask(n):
    """Stated confidence, token probability and five sampled answers to each of n
    questions.
    """
    topic = rng.choice(4, size=n, p=[0.4, 0.3, 0.2, 0.1])
    skill = rng.normal(size=n) - difficulty[topic]
    right = rng.random(n) < 1 / (1 + np.exp(-2 * skill))
    stated = np.clip(np.round(0.8 + 0.06 * (skill + rng.normal(size=n)), 2), 0, 1)
    token = 1 / (1 + np.exp(-(1.5 + skill + rng.normal(size=n))))
    usual = rng.random((n, 5)) < 1 / (1 + np.exp(-(1.0 + skill[:, None])))
    samples = [
        ["yes" if is_usual else f"other {k}" for k, is_usual in enumerate(row)]
        for row in usual
    ]
    same = agreement(samples).confidence
    return np.column_stack([stated, token, same]), right, topics[topic]


signals, right, topic = ask(2000)
held_out, held_out_right, held_out_topic = ask(4000)
new, truth, about = ask(5000)

for name, columns in {
    "stated": [0],
    "token": [1],
    "agreement": [2],
    "all": [0, 1, 2],
}.items():
    one = hokical.calibrate_confidence(signals[:, columns], right, groups=topic)
    loss = hokical.metrics.log_loss(one.predict(new[:, columns], groups=about), truth)
    print(f"{name:9} log loss {loss:.3f}")

cal = hokical.calibrate_confidence(signals, right, groups=topic)
cal.certify(held_out, held_out_right, groups=held_out_topic)
for by in ("all", "group"):
    prediction = cal.predict_or_abstain(new, groups=about, risk=0.15, by=by)
    print(f"\n{prediction.guarantee}")
    for name in topics:
        accepted = prediction.accepted & (about == name)
        share = accepted.sum() / (about == name).sum()
        wrong = f", wrong {(~truth[accepted]).mean():.1%}" if accepted.any() else ""
        print(f"  {name:8} answers {share:.0%}{wrong}")

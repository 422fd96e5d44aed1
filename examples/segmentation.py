"""Confidence for every pixel of a segmentation, with guarantees that count images."""

import numpy as np
from scipy.ndimage import gaussian_filter

import hokical
from hokical import Dense


def scenes(n, seed, size=32, classes=4):
    """Logits (n, classes, size, size) of an overconfident network; labels, 255 for
    none.
    """
    rng = np.random.default_rng(seed)
    shape = (n, classes, size, size)
    labels = gaussian_filter(rng.normal(size=shape), (0, 0, 5, 5)).argmax(axis=1)
    seen = gaussian_filter(
        np.moveaxis(np.eye(classes)[labels], -1, 1), (0, 0, 1.5, 1.5)
    )
    noise = gaussian_filter(rng.normal(size=shape), (0, 0, 3, 3))
    logits = (
        12 * seen + 4 * rng.uniform(0.3, 1.1, size=(n, 1, 1, 1)) * noise / noise.std()
    )
    labels[:, :3] = 255
    return logits, labels


val_logits, val_labels = scenes(60, seed=0)
held_out = scenes(200, seed=1)
logits, labels = scenes(100, seed=2)

cal = Dense("temps", class_axis=1, ignore_label=255).fit(val_logits, val_labels)
evaluation = hokical.evaluate(cal, logits, labels)
print(
    f"ECE {evaluation.before.score('ece'):.3f} before, {evaluation.score('ece'):.3f} after"
)

cal.certify(*held_out)
chosen = cal.predict_or_abstain(logits, risk=0.1)
known = labels != 255
wrong = chosen.labels[known & chosen.accepted] != labels[known & chosen.accepted]
print(
    f"{chosen.accepted.mean():.0%} of the pixels accepted, {wrong.mean():.1%} of them "
    "wrong"
)
print(chosen.guarantee)

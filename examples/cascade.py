"""A small model, a larger one, and a person: at most 10 % of all answers are errors."""

import numpy as np

import hokical


def ask_both(n, seed):
    """Stated confidence and whether the answer was right, of the small and the
    larger model.
    """
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(size=n)
    for skill in (0.8, 2.5):
        odds = skill - 1.5 * difficulty
        stated = 1 / (1 + np.exp(-1.5 * odds - rng.normal(size=n)))
        yield stated, rng.random(n) < 1 / (1 + np.exp(-odds))


small, large = (hokical.calibrate_confidence(*pair) for pair in ask_both(1000, seed=0))


def who_answers(first, second, threshold):
    return np.select(
        [first >= threshold, second >= threshold], ["small", "larger"], "person"
    )


def is_error(first, right, threshold):
    """The loss: an error of the model that answers; a person makes none."""
    who = who_answers(first, second, threshold)
    return np.select([who == "small", who == "larger"], [~right, ~right_too], False)


# Questions that nothing was fitted on decide the threshold.
(stated, right), (stated_too, right_too) = ask_both(2000, seed=1)
second = large.predict(stated_too)
control = small.control_risk(
    stated, right, loss=is_error, risk=0.1, delta=0.1, thresholds=np.linspace(1, 0, 101)
)
print(control)

(stated, right), (stated_too, right_too) = ask_both(20_000, seed=2)
first, second = small.predict(stated), large.predict(stated_too)
who = who_answers(first, second, control.threshold)
print(
    ", ".join(
        f"{name} {np.mean(who == name):.0%}" for name in ("small", "larger", "person")
    )
)
print(f"errors: {is_error(first, right, control.threshold).mean():.1%}")

"""Examples from which nothing, or nothing good, can be learned: one place says so, in one line."""

from collections.abc import Iterator

from hokical._core.warn import FitDataWarning, warn_user
from hokical._fitting.example_stats import ExampleStats
from hokical.rules._base import Rule

#: Fewer examples than this are a handful, from which nothing can be learned.
FEWEST_EXAMPLES = 20


def warn_about_examples(method: str, stats: ExampleStats, rule: Rule) -> None:
    """Warn of what a user should know about the examples that a method fitted the rule on."""
    for problem in _find_problems(method, stats, rule):
        warn_user(problem, FitDataWarning)


def _find_problems(method: str, stats: ExampleStats, rule: Rule) -> Iterator[str]:
    """What is wrong, each with its remedy."""
    if stats.like_probabilities:
        yield (
            "`logits` look like probabilities: all rows lie in [0, 1] and sum to 1. Convert them "
            "with `hokical.from_probabilities` (--probabilities), or pass the logits."
        )
    n, wrong = stats.n_examples, stats.n_wrong
    if method == "uncalibrated":  # which learns nothing
        return
    if n < FEWEST_EXAMPLES:
        yield f"`logits` hold {n} examples, too few to learn from. Use some hundred or more."
    elif wrong == 0:
        yield (
            f"`labels` agree with the classifier on all {n:,} examples, as on data that it was "
            "trained on: there is no mistake to learn from. Use examples that it has not seen."
        )
    elif wrong == n:
        yield (
            f"`labels` agree with the classifier on none of {n:,} examples. Check that they index "
            "the columns of `logits`."
        )
    elif wrong < rule.core.n_parameters:
        yield (
            f"`labels` show {wrong} mistakes, fewer than the {rule.core.n_parameters} numbers that "
            f"{rule.core.name!r} learns. Use more examples, or a simpler method such as 'temps'."
        )

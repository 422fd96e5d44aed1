"""ReCal: recursive calibration by lossy label-invariant transformations (Jang et
al., 2020).
"""

from numbers import Real
from typing import Any

import numpy as np

from hokical.calibrators import Calibrator, Examples, Fit, MethodInfo
from hokical_paper.core import check_count, draw_seed, uniform_draws
from hokical_paper.recal.recursion import Recursion
from hokical_paper.recal.rule import ReCalRule
from hokical_paper.recal.views import Views
from hokical_paper.types import FloatArray, IntArray

_ENDINGS = {
    "converged": "a step changed the calibration error by less than `tol`, {tol:g}.",
    "exhausted": "every transformation would make the calibration error worse.",
    "limit": "after {max_iter} steps some transformations are untried, or still change the "
    "calibration error by more than `tol`, {tol:g}. Raise `max_iter` or `tol`.",
}


class ReCal(Calibrator):
    """Calibrate groups of examples that react alike to a transformation of the input.

    It needs `Views`: the logits, and those of the same inputs under transformations
    that lose information but keep the label (the paper zooms images out, 20 scales in
    [0.1, 0.9]). One step: pick a transformation at random; put every example into one
    of four groups, by whether the transformed input gets another label and whether the
    probability of the original label rose; fit a temperature per group by maximum
    likelihood; shrink it towards 1 by the group's share of the examples, 1 - share +
    share * temperature; if the calibration error (ECE) of all examples got worse, use 1
    for all four, and for a group whose own ECE got worse; then apply the temperatures
    to the original and to that transformation, by the same groups. Steps repeat until
    the ECE changes by less than `tol`. Prediction replays the recorded steps. Labels
    are never changed.

    A temperature here *multiplies* log-probabilities, so above 1 is sharper. Before
    that, probabilities below 1e-16 are raised to it. A class that is masked in a row
    (-inf) keeps probability 0; examples whose true class is masked are not used for
    temperatures.

    `max_iter` limits the steps, `n_bins` are the equal-width bins of the ECE, and
    `random_state` is the seed of the choice of transformations: an int gives the same
    choice on every machine.

    After `fit`: `transformations_` (n_iter_,), the transformation of each step, of
    `n_transforms_`; `temperatures_` (n_iter_, 4), of the groups: label changed and
    probability rose, changed and did not rise, label kept and rose, kept and did not
    rise; `ece_` (n_iter_ + 1,), on the validation set, before the first step and after
    each; `converged_` and `ending_`: "converged" (a step changed the ECE by less than
    `tol`), "exhausted" (every transformation would make the ECE worse) or "limit"
    (`max_iter` reached).

    Where the authors' code and paper differ, this follows the paper. The code searches
    temperatures without bounds, from 100 starts between 0.1 and 10, and so can return a
    negative one, which reverses labels, or none for a group without mistakes; here the
    search has one start and stays in [0.1, 10] (the loss is convex, so nothing is lost
    inside). The code compares the first step with an ECE of 1, so it never stops there.
    Its bins are open on the left, here on the right.

    A step that was undone because it made the ECE worse changes the ECE by 0. Taken
    literally, the paper stops there, mostly after a few steps; that is
    `stop_when_worse=True`. By default, as in the authors' code, the next transformation
    is tried. One that failed is not computed again before another step has changed the
    confidences, and when all have failed the recursion ends.

    >>> import numpy as np
    >>> from hokical_paper.recal import ReCal, Views
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(4000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> zoomed = 3 * logits + rng.normal(size=(4, 4000, 5))
    >>> cal = ReCal().fit(Views(3 * logits[:2000], zoomed[:, :2000]), labels[:2000])
    >>> views = Views(3 * logits[2000:], zoomed[:, 2000:])
    >>> confidence, right = (
    ...     cal.predict_confidence(views),
    ...     cal.predict(views) == labels[2000:],
    ... )
    >>> bool(abs(confidence.mean() - right.mean()) < 0.05)
    True
    """

    method = MethodInfo(
        ReCalRule,
        "ReCal (recursive calibration by transformed inputs)",
        "Jang, Lee, Weimer: Improving Classifier Confidence Using Lossy "
        "Label-Invariant Transformations, AISTATS 2021, arXiv:2011.04182",
        "the logits of all transformed inputs, then about ten softmax passes per step",
        fits_floor=False,  # the rule raises probabilities to 1e-16
        logits_kind=Views,
    )

    n_transforms_: int
    transformations_: IntArray
    temperatures_: FloatArray
    ece_: FloatArray
    n_iter_: int
    converged_: bool
    ending_: str
    message_: str

    def __init__(
        self,
        *,
        max_iter: int = 200,
        n_bins: int = 15,
        tol: float = 1e-6,
        stop_when_worse: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.max_iter = max_iter
        self.n_bins = n_bins
        self.tol = tol
        self.stop_when_worse = stop_when_worse
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_count("n_bins", self.n_bins)
        check_count("max_iter", self.max_iter)
        if not isinstance(self.stop_when_worse, (bool, np.bool_)):
            raise ValueError(
                "`stop_when_worse` must be True or False; got "
                f"{self.stop_when_worse!r}."
            )
        if not isinstance(self.tol, Real) or not float(self.tol) >= 0.0:
            raise ValueError(
                f"`tol` must be a number of at least 0; got {self.tol!r}. The paper "
                "uses 1e-6."
            )

    def _fit(self, examples: Examples) -> Fit:
        examples.warn_about_masked_truth()
        views = examples.logits
        if not isinstance(views, Views):  # a stream, which has logits alone
            raise TypeError(
                "`logits` must be `hokical_paper.recal.Views(logits, transformed)` for "
                "ReCal; got logits alone."
            )
        # The transformation of each step, the same on every machine.
        uniform = uniform_draws(draw_seed(self.random_state), (int(self.max_iter), 1))[
            :, 0
        ]
        picks = (uniform * views.n_transforms).astype(np.int64)
        recursion = Recursion(views, examples, int(self.n_bins))
        ending = recursion.run(picks, float(self.tol), bool(self.stop_when_worse))
        rule = ReCalRule(
            n_transforms=views.n_transforms,
            transformations=np.array(recursion.transformations, np.int64),
            temperatures=np.array(recursion.temperatures),
        )
        report: dict[str, Any] = {"ece": np.array(recursion.ece), "ending": ending}
        n_steps = len(recursion.transformations)
        message = _ENDINGS[ending].format(**vars(self))
        report |= {
            "n_iter": n_steps,
            "converged": ending != "limit",
            "message": message,
        }
        return Fit(rule, report)

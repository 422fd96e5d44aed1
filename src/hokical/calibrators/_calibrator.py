"""The prediction interface: a fitted rule with its guarantees, without scikit-learn or SciPy.

`hokical.load` gives a `FittedCalibrator`; estimators, which can also be fitted, are `Calibrator`s
too (`hokical.calibrators._base`). What both can be asked is in three parts, by what is asked.
"""

import os
from typing import Any

from hokical._core.storage import fingerprint, write_document
from hokical._core.version import VERSION
from hokical._core.warn import warn_user
from hokical.calibrators._set_predictions import SetPredictions
from hokical.calibrators._shift_predictions import ShiftPredictions
from hokical.stability._noise import Noise

#: What a file holds of a fit; in the attributes of these names, with an underscore.
STORED = (
    "n_classes", "rule", "fit_scores", "held_out_scores", "neighbours", "support",
    "fit_conformity", "held_out_conformity", "fit_rows", "class_scores",
    "fit_confidences",
)  # fmt: skip


class Calibrator(SetPredictions, ShiftPredictions):
    """Labels, confidence and probabilities for logits, and guarantees about them."""

    @property
    def stamp(self) -> str:
        """A hash of the rule: equal stamps, equal predictions. `certify` does not change it."""
        self.check_fitted()
        return fingerprint({"n_classes": self.n_classes_, "rule": self.rule_})

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        metadata: dict[str, Any] | None = None,
        beside: dict[str, Any] | None = None,
    ) -> None:
        """Write the fitted calibrator to a JSON file, atomically; `hokical.load` reads it.

        `metadata` holds plain values to store in the file for the caller's own use; `beside` is its
        old name.
        """
        self.check_fitted()
        if beside is not None:
            warn_user("`beside` is now called `metadata`.", FutureWarning)
            metadata = beside
        if metadata is None and self.class_names:
            metadata = getattr(self, "metadata", {}) | {"classes": list(self.class_names)}
        own = {} if metadata is None else {"beside": metadata}
        write_document(path, {"library_version": VERSION, **self._document(), **own})

    def _document(self) -> dict[str, Any]:
        """The contents of a file, in which the metadata have been called `beside` since 0.2."""
        stored = {name: getattr(self, f"{name}_") for name in STORED}
        return {"method": self.name, **stored, "beside": {}}

    def _fit_in_words(self) -> str:
        """Classes, examples and the single numbers of the rule, for `repr`."""
        counts = self.fit_scores_
        words = [f"{self.n_classes_} classes"]
        words += [] if counts is None else [f"{counts.total:,} examples"]
        for name, value in self.rule_.own_fields().items():
            if isinstance(value, (float, Noise)):
                words.append(f"{name} {value:.4g}" if isinstance(value, float) else repr(value))
        return ", ".join(words)

"""Graphs of calibrators that pool the members of an ensemble."""

from __future__ import annotations

import json

import numpy as np

from hokical._core.arrays import AnyArray, Array, to_float64
from hokical._core.ensembles import Ensemble
from hokical._core.logits import Logits
from hokical.calibrators.predictor import Predictor
from hokical.integrations.onnx.models import Shape, shape_in_words
from hokical.integrations.onnx.namespace import BACKEND
from hokical.rules.members import PooledMembers, pooled_members_of
from hokical.rules.pooled import MemberLogits


def pool_scores(members: PooledMembers, logits: Array) -> Logits:
    """The pooled logits (batch, classes) of traced members (members, batch, classes)."""
    xp = BACKEND.namespace(logits)
    n_members = logits.shape[0]
    chosen = members.choose(n_members)
    if len(chosen) < n_members:
        logits = xp.take(logits, np.array(chosen), axis=0)
    # Runtimes do not agree on the maximum of NaN and other numbers.
    is_missing = xp.any(xp.isnan(logits), axis=-1)
    top = xp.where(is_missing, xp.nan, to_float64(xp.max(logits, axis=-1), xp))
    tables = [logits[v, ...] for v in range(len(chosen))]
    return members.pool_needed(MemberLogits(tables, top, BACKEND))


def check_members_of(
    lengths: Shape, axis: int, output: str, predictor: Predictor
) -> None:
    """Refuse scores of a network that are not those of the members of a fit."""
    members = pooled_members_of(predictor.schema)
    if members is None:
        return
    wanted = {len(members.names), len(members.needed)}
    count = lengths[0]
    if members.exchangeable and isinstance(count, int):
        wanted = {count}
    if len(lengths) != 3 or axis != 2 or count not in wanted:
        numbers = " or ".join(map(str, sorted(wanted)))
        raise ValueError(
            f"`output` must be scores ({numbers}, batch, {predictor.n_classes}) of the "
            f"members of the fit, {', '.join(members.needed)}; {output!r} has shape "
            f"{shape_in_words(lengths)}. Stack the networks, or the views, within the "
            "model, or `export` the calibrator by itself."
        )


def names_as_text(members: PooledMembers, n_members: int | str | None) -> str:
    """The names of all or of the needed members, in order, for the metadata of a file."""
    all_members = n_members == len(members.names)
    names = members.names if all_members else members.needed
    return json.dumps([*names])


def ensemble_of(values: AnyArray, members: PooledMembers) -> Ensemble:
    """Scores (members, n, classes) as the ensemble that Python takes."""
    return Ensemble(values, exchangeable=members.exchangeable)

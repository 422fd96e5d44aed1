"""The core's quadrature tables as tensors, brought to a device once.

They are made when this module is imported, not while a graph is being captured.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hokical.stability import gaussian
from hokical.stability.gaussian import switch_tables


class Tables(NamedTuple):
    """A `Rule` of the core without its constant term: `series` (R, K) goes with T_r - 1."""

    nodes: Tensor
    weights: Tensor
    series: Tensor
    own: Tensor


class SwitchTables(NamedTuple):
    """`hazard` (K, Q) and `to_series` (Q, R + 1): see `gaussian.distribution` of the core."""

    hazard: Tensor
    to_series: Tensor


def from_rule(rule: gaussian.Rule) -> Tables:
    """The tables of a rule, on the CPU."""
    arrays = (rule.nodes, rule.weights, rule.series[1:], rule.own)
    with torch.inference_mode(False):
        return Tables(*(torch.tensor(array, dtype=torch.float64) for array in arrays))


_STANDARD = from_rule(gaussian.gaussian_rule())
_WIDE = from_rule(gaussian.gaussian_rule(-gaussian.TAIL_LIMIT))
_SWITCH = SwitchTables(*(torch.tensor(array) for array in switch_tables()))
_there: dict[torch.device, tuple[Tables, Tables, SwitchTables]] = {}


def standard(device: torch.device) -> Tables:
    """For stability itself."""
    return _all(device)[0]


def wide(device: torch.device) -> Tables:
    """With nodes far down, for small chances."""
    return _all(device)[1]


def switch(device: torch.device) -> SwitchTables:
    """For the chance of every class."""
    return _all(device)[2]


def _all(device: torch.device) -> tuple[Tables, Tables, SwitchTables]:
    if torch.compiler.is_compiling():
        return _moved(device)
    if device not in _there:
        with torch.inference_mode(False):
            _there[device] = _moved(device)
    return _there[device]


def _moved(device: torch.device) -> tuple[Tables, Tables, SwitchTables]:
    return (
        Tables(*(table.to(device) for table in _STANDARD)),
        Tables(*(table.to(device) for table in _WIDE)),
        SwitchTables(*(table.to(device) for table in _SWITCH)),
    )

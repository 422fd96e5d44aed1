"""Log-odds of the classifier's own label: see `hokical.guarantees.scores`."""

from __future__ import annotations

import torch
from torch import Tensor

from hokical.integrations.torch.kernels import rows


def label_log_odds(values: Tensor) -> Tensor:
    """-log of the sum of exp(-d_i) over all classes but the label, (n,) float64."""

    def work(chunk: Tensor) -> Tensor:
        terms = torch.exp(-rows.margins(chunk))
        rest = terms.scatter(1, rows.labels(chunk)[:, None], 0.0)
        return -torch.log(rest.sum(dim=1))

    return rows.by_chunks(work, values, values.shape[1])

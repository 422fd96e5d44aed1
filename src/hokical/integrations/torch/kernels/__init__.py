"""Stability and its kin for torch tensors, on whatever device they are.

Each module is the twin of a module of the core and computes the same numbers, in float64:

- `gumbel`, `gaussian`, `uniform`: exact stability; the first two can be differentiated
- `sampled`: the very counts of the core
- `profile`, `scores`: log-chances
- `rows`: labels, row maxima, margins, chunks

They take checked logits (n, classes) of any float dtype and any strides. On a CUDA device with
Triton the heavy ones run as one fused kernel (`triton_*`, called through `fused`); everywhere else,
and with `plain=True`, as plain torch.
"""

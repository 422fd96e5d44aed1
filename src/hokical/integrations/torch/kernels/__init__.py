"""Faster forms for tensors of functions that are written once for all libraries.

- `chebyshev`: the sums behind Gaussian stability, with a gradient that needs little memory
- `recomputed`: the same for uniform stability
- `triton_*`: one fused kernel each for exact stability on CUDA, called through `fused`

They take logits (n, classes) of any float type and any strides. `TorchBackend` calls them;
everything else runs in plain torch.
"""

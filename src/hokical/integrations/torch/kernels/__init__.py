"""Faster forms for tensors of functions that are written once for all libraries.

- `recomputed`: gradients that need little memory
- `triton_*`: one fused kernel each for exact stability on CUDA, called through `fused`

They take logits (n, classes) of any float type and any strides. `TorchBackend` calls them;
everything else runs in plain torch.
"""

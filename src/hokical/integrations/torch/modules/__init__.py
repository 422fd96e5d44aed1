"""Fitted calibrators as `nn.Module`s, one per method; `making.as_module` picks."""

"""Create the logit suite: data, networks, training, export. Needs PyTorch (extra
`torch`).
"""

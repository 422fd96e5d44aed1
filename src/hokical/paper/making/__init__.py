"""Making the logit suite: data, networks, training and export. Needs PyTorch (extra `paper`)."""

"""The paper's experiments: networks, data, training, the logit suite, every table and
figure.

Nothing is imported here, because training needs PyTorch and reading the suite does not.
"""

__version__ = "0.6.0"

"""The logit suite: its manifest, the arrays of a pair, networks known by their best classes."""

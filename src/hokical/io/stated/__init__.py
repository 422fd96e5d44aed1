"""Confidences that language models state in words."""

from hokical.io.stated.reading import STATED_WORDS, read_stated

__all__ = ["STATED_WORDS", "read_stated"]

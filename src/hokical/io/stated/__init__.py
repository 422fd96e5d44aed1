"""Confidences that language models state in words."""

from hokical.io.stated.reading import STATED_WORDS as STATED_WORDS
from hokical.io.stated.reading import read_stated as read_stated

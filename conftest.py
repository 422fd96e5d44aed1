"""Doctests are collected from every module that can be imported here."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["src/hokical/paper/making/*"]

"""Methods and their options, as words of the command line."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

import typer

import hokical
from hokical.cli.console import bad_option, check_options
from hokical.stability._noise import parse_noise


def check_method(name: str) -> str:
    """The name, if the method needs only logits and labels."""
    known = [*hokical.calibrators.method_names(2), "auto"]
    name = hokical.calibrators._catalog.find_method(name)
    if name in known:
        return name
    if name in hokical.calibrators.method_names():
        raise typer.BadParameter(
            f"{name} needs more than logits, which cannot be given here; fit it in Python."
        )
    hint = hokical.calibrators._catalog.suggest(name)
    raise typer.BadParameter(f"no method {name!r}; there are {', '.join(known)}.{hint}")


def set_options(calibrator: Any, settings: Iterable[str]) -> Any:
    """The calibrator with options such as `n_bins=20`, of the types that its parameters have."""
    known, chosen = calibrator.get_params(deep=False), dict[str, Any]()
    for setting in settings:
        key, sign, value = (part.strip() for part in setting.partition("="))
        if not sign or key not in known:
            listed = ", ".join(f"{each}={default}" for each, default in known.items())
            listed = listed or "it has none"
            raise bad_option(
                "--set", f"must be an option of {calibrator.name}: {listed}; got {setting!r}."
            )
        chosen[key] = _read_value(setting, value, known[key])
    with check_options("--set"):
        if chosen.get("noise", "auto") != "auto":
            chosen["noise"] = parse_noise(str(chosen["noise"]))
        return calibrator.set_params(**chosen)


def _read_value(setting: str, text: str, default: Any) -> Any:
    """A number, true, false, none or several of them in brackets; else the text itself."""
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    try:
        value = words[text.lower()] if text.lower() in words else ast.literal_eval(text)
    except (SyntaxError, ValueError):
        value = text
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    allowed = {
        bool: (isinstance(value, bool), "true or false"),
        int: (number and int(value) == value, "a whole number"),
        float: (number, "a number"),
    }
    fits, kind = allowed.get(type(default), (True, ""))
    if not fits:
        raise bad_option("--set", f"must be {kind}, as the default {default}; got {setting!r}.")
    return value

"""How far a call travels through the package: modules, functions and frames deep.

    python benchmarks/ways.py            # the table
    python benchmarks/ways.py --list predict_proba

One thread, second call: what is imported and compiled once is not counted. A function
counts once, however often it is called; comprehensions count as part of the function
that they are written in.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import hokical
from hokical.demo import demo_logits

PACKAGE = str(Path(hokical.__file__).parent)
#: Modules, functions and frames deep that each call should need at most.
GOALS = {
    "auto": (26, 220, 16),
    "predict_proba": (9, 45, 11),
    "temps": (18, 110, 14),
    "predict_set": (16, 80, 14),
}


@dataclass
class Way:
    """The functions of the package that a call met, by file and line, and how deep
    it went.
    """

    functions: dict[tuple[str, int], str] = field(default_factory=dict)
    depth: int = 0
    _now: int = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        if code.co_name.startswith("<"):
            return
        if event == "return":
            self._now -= 1
            return
        self._now += 1
        self.depth = max(self.depth, self._now)
        module = code.co_filename.removeprefix(PACKAGE + "/")
        self.functions[module, code.co_firstlineno] = code.co_qualname

    @property
    def counts(self) -> tuple[int, int, int]:
        return (
            len({module for module, _ in self.functions}),
            len(self.functions),
            self.depth,
        )


def follow(call: Callable[[], Any]) -> Way:
    """The way of the second of two calls."""
    call()
    way = Way()
    sys.setprofile(way)
    try:
        call()
    finally:
        sys.setprofile(None)
    return way


def ways() -> dict[str, Way]:
    (logits, labels), (new, _) = demo_logits()
    fitted = hokical.auto(logits, labels).certify(
        new[5000:], demo_logits()[1][1][5000:]
    )
    calls: dict[str, Callable[[], Any]] = {
        "auto": lambda: hokical.auto(logits, labels),
        "predict_proba": lambda: fitted.predict_proba(new[:1000]),
        "temps": lambda: hokical.make("temps").fit(logits, labels),
        "predict_set": lambda: fitted.predict_set(new[:1000], coverage=0.9),
    }
    with hokical.threads(1):
        return {name: follow(call) for name, call in calls.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--list", choices=list(GOALS), help="Print the functions of one way."
    )
    chosen = parser.parse_args().list
    found = ways()
    if chosen:
        for (module, line), name in sorted(found[chosen].functions.items()):
            print(f"{module}:{line}  {name}")
        return
    print(f"{'call':14} {'modules':>9} {'functions':>10} {'depth':>6}   goal")
    for name, way in found.items():
        modules, functions, depth = way.counts
        goal = " / ".join(map(str, GOALS[name]))
        print(f"{name:14} {modules:9} {functions:10} {depth:6}   {goal}")


if __name__ == "__main__":
    main()

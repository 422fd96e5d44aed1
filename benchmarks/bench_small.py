"""Everyday sizes: fits of 5000 x 10, answers to 10,000 rows and to one, and the start
of a process.

    python benchmarks/bench_small.py

CPU times of one thread in units of temperature scaling's, measured in turns; a busy
machine changes them little. First as in a fresh process, where NumPy does the work,
then with the compiled kernels loaded, as after a batch of a million logits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bench_core import best_in_turns, large_logits
from hokical import make
from hokical._core.runtime import threads

METHODS = ("temps", "hoki", "adaptive", "structured", "auto")
#: Most times temperature scaling's: fit, 10,000 rows, one row.
TARGETS = {"hoki": (8, 5, 3), "auto": (20, None, None)}


def main() -> None:
    for title in ("NumPy alone", "compiled kernels loaded"):
        compare_methods(title)
        if title == "NumPy alone":
            logits, labels = large_logits(110_000, 10)
            for name in ("temps", "hoki"):
                make(name).fit(logits, labels).predict_proba(logits)
    start_up()


def compare_methods(title: str) -> None:
    logits, labels = large_logits(5000, 10)
    many, one = large_logits(10_000, 10, seed=1)[0], logits[:1]
    fitted = {name: make(name).fit(logits, labels) for name in METHODS}
    works = {
        "fit": {
            name: lambda name=name: make(name).fit(logits, labels) for name in METHODS
        },
        "10,000 rows": {
            name: lambda cal=cal: cal.predict_confidence(many)
            for name, cal in fitted.items()
        },
        "one row": {
            name: lambda cal=cal: cal.predict_confidence(one)
            for name, cal in fitted.items()
        },
    }
    print(f"\n{title}: 5000 x 10, in temps (targets)")
    for place, (task, cases) in enumerate(works.items()):
        with threads(1):
            times = 100 if task == "one row" else 5
            seconds = best_in_turns(cases, times, time.process_time)
        base = seconds["temps"]
        print(f"{task:12s} temps {base * 1e3:7.3f} ms", end="")
        for name in METHODS[1:]:
            target = TARGETS.get(name, (None,) * 3)[place]
            bar = "" if target is None else f" ({target})"
            print(f"  {name} {seconds[name] / base:.1f}{bar}", end="")
        print()
    print("targets for one row: temps 0.1 ms, others 0.3 ms")


def start_up() -> None:
    """A fresh process that loads a file, or fits, and answers a batch, in imports of
    NumPy.
    """
    with tempfile.TemporaryDirectory() as folder:
        seconds = best_in_turns(start_up_works(folder), times=7)
    base = seconds.pop("import numpy")
    print("\nload (3, 0.35 s) or fit (temps: 5) and answer in a fresh process,")
    print(f"in `import numpy` of {base:.2f} s")
    for name, value in seconds.items():
        print(f"{name:12s} {value / base:.1f}, {value:.2f} s")


def start_up_works(folder: str) -> dict[str, Callable[[], object]]:
    """Fresh processes with files in a folder: an import of NumPy; and what loads a
    calibrator, or fits, and answers a batch.

    With bytecode, as in an installed package, even where the environment forbids to
    write it.
    """
    logits, labels = large_logits(500, 10)
    np.save(Path(folder) / "batch.npy", logits)
    codes = {"import numpy": "import numpy"}
    for name in ("temps", "hoki", "auto"):
        make(name).fit(logits, labels).save(Path(folder) / f"{name}.json")
        codes[name] = (
            "import numpy, hokical;"
            f"hokical.load({folder + f'/{name}.json'!r})"
            f".predict_confidence(numpy.load({folder + '/batch.npy'!r}))"
        )
        codes[f"fit {name}"] = (
            "import hokical; from hokical.demo import demo_logits;"
            "fit, test = demo_logits();"
            f"hokical.make({name!r}).fit(*fit).predict_confidence(test[0][:500])"
        )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = folder
    run = partial(subprocess.run, check=True, env=env)
    return {
        name: partial(run, [sys.executable, "-c", code]) for name, code in codes.items()
    }


if __name__ == "__main__":
    main()

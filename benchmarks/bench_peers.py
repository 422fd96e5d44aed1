"""This library beside others: fit, predict, one row, memory, log loss and cold start.

    python benchmarks/bench_peers.py                  # print the tables
    python benchmarks/bench_peers.py --write benchmarks/peers.md  # into it and its JSON
    python benchmarks/bench_peers.py --fill benchmarks/peers.md   # from that JSON
    python benchmarks/bench_peers.py --sizes 5000x10 --libraries scikit-learn netcal
    python benchmarks/bench_peers.py --wall     # all threads, for an idle machine
    python benchmarks/bench_peers.py --quality  # instead: how good the defaults are

Every library has a process of its own and is asked in turns, so that all see the same
machine. Times are CPU time of one thread, which a busy machine changes little; with
`--wall`, every library takes the threads it wants and the clock on the wall counts. The
best of several rounds is kept, after one that may load and compile. Libraries that are
not installed are left out: `pip install -e '.[bench]'`.

With `--quality`, every library calibrates the 135 classifiers of
`tabular_probabilities.npz`, with all examples and with few (`hokical paper study`,
whose cache it uses). The result goes into `quality.json` and into the tables of the
documentation; `tools/make_pictures.py peers` draws it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hokical._core.version import VERSION
from hokical_paper.study.peers import softmax
from peer_methods import LIBRARIES, METHODS, OURS, methods_for
from peer_page import (
    TELLING_BYTES,
    fill_page,
    long_quality_tables,
    put_block,
    short_quality_table,
    to_markdown,
    write_json,
)
from peer_worker import THREADS, Worker, log_loss, make_examples

HERE = Path(__file__).resolve().parent
SIZES = ("1000x2", "5000x10", "5000x100", "25000x1000")
#: Tasks, and under which names their seconds and megabytes are kept.
TASKS = {
    "fit": ("fit_s", "fit_mb"),
    "predict": ("predict_s", "predict_mb"),
    "one_row": ("row_s", ""),
}
ROUNDS, LIMIT = 2, 30.0
#: Classifiers of `--quality`, its numbers of examples, and random choices of the few.
CLASSIFIERS, EXAMPLES, DRAWS = (
    HERE / "tabular_probabilities.npz",
    (30, 60, 100, 200, None),
    2,
)
#: What took longer is not repeated: after the round that may compile, and after others.
SLOW_AT_FIRST, SLOW = 15.0, 3.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="page to fill; JSON beside it"
    )
    parser.add_argument(
        "--fill", type=Path, metavar="PAGE", help="fill a page, measure nothing"
    )
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="ROWSxCLASSES")
    parser.add_argument(
        "--libraries", nargs="+", default=list(LIBRARIES), choices=LIBRARIES
    )
    parser.add_argument("--wall", action="store_true", help="all threads, wall clock")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, help="seconds after which one is stopped"
    )
    parser.add_argument(
        "--quality", action="store_true", help="log loss and so on, not time"
    )
    options = parser.parse_args()
    if not options.wall:
        os.environ.update(dict.fromkeys(THREADS, "1"))
    if options.quality:
        write_quality(measure_quality(), HERE.parent)
        return
    page = options.fill or options.write
    if options.fill:
        results = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    else:
        results = measure(
            options.sizes, [OURS, *options.libraries], options.limit, options.wall
        )
        print(to_markdown(results))
    if options.write:
        write_json(page.with_suffix(".json"), results)
    if page:
        page.write_text(
            fill_page(page.read_text(encoding="utf-8"), results), encoding="utf-8"
        )


def measure(
    sizes: list[str], libraries: list[str], limit: float, wall: bool
) -> dict[str, Any]:
    """Everything that the page shows, as it goes into the JSON file."""
    found = {name: find_version(name) for name in LIBRARIES if name in libraries}
    installed = {name: number for name, number in found.items() if number is not None}
    results: dict[str, Any] = {
        "made": datetime.date.today().isoformat(),
        "machine": describe_machine(),
        "versions": {"Python": platform.python_version(), "NumPy": version("numpy")}
        | installed,
        "missing": [name for name, number in found.items() if number is None],
        "clock": "the clock on the wall, all threads"
        if wall
        else "CPU time of one thread",
        "limit_s": limit,
        "start": [cold_load(wall), *(cold_start(name, wall) for name in installed)],
        "uncalibrated": {},
        "results": [],
    }
    workers = {name: Worker(name, limit, wall) for name in installed}
    for size in sizes:
        n, n_classes = (int(number) for number in size.split("x"))
        logits, labels = make_examples(n, n_classes, seed=2)
        results["uncalibrated"][size] = log_loss(softmax(logits), labels)
        for method in methods_for(n_classes):
            say(f"{size} {method}")
            results["results"] += compare(method, n, n_classes, workers)
    for worker in workers.values():
        worker.stop()
    return results


def measure_quality() -> dict[str, Any]:
    """Every library on the same classifiers, with all examples and with few."""
    from hokical_paper.study.outcomes import choose_experiments, run_study
    from hokical_paper.study.peers import PEERS
    from hokical_paper.study.tables import compare_by_size

    absent = [name for name, peer in PEERS.items() if peer.missing()]
    if absent:
        raise SystemExit(
            f"not installed, as `make test-peers` would: {', '.join(absent)}."
        )
    methods = ["uncalibrated", "auto", *PEERS]
    by_size = {}
    for limit in EXAMPLES:
        chosen = choose_experiments(
            CLASSIFIERS, limit=limit, draws=DRAWS if limit else 1
        )
        size = f"{limit}" if limit else "all"
        by_size[size] = run_study(
            chosen,
            methods,
            Path(".cache/study"),
            lambda name, size=size: say(f"{size}: {name}"),
        )
    libraries = {name: find_version(name) for name in LIBRARIES}
    return {
        "made": datetime.date.today().isoformat(),
        "versions": {name: number for name, number in libraries.items() if number},
        "draws": DRAWS,
        "results": compare_by_size(by_size),
    }


def write_quality(results: dict[str, Any], root: Path) -> None:
    """The JSON file, and the tables of the pages that show it."""
    for one in results["results"]:
        one.update({key: _rounded(value) for key, value in one.items()})
    write_json(HERE / "quality.json", results)
    pages = {"README.md": short_quality_table, "docs/index.md": short_quality_table}
    for name, table in (pages | {"docs/peers.md": long_quality_tables}).items():
        page = root / name
        page.write_text(
            put_block(page.read_text("utf-8"), "quality", table(results)), "utf-8"
        )


def _rounded(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_rounded(one) for one in value]
    return round(value, 5) if isinstance(value, float) else value


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def compare(
    method: str, n: int, n_classes: int, workers: dict[str, Worker]
) -> list[dict[str, Any]]:
    """What was measured of every library that has the method, the tasks taking
    turns.
    """
    entries = {}
    for name, contender in METHODS[method].items():
        if name not in workers:
            continue
        entry = {
            "size": [n, n_classes],
            "method": method,
            "library": name,
            "called": contender.called,
        }
        if 4 * n * n_classes >= TELLING_BYTES:
            workers[
                name
            ].stop()  # allocators such as PyTorch's keep what was freed: no growth seen
        missing = contender.missing()
        answer = {"failed": f"needs {missing[0]}"} if missing else {}
        entries[name] = entry | (
            answer or workers[name].ask("open", method, n, n_classes)
        )
    for task in TASKS:
        for turn in range(ROUNDS + 1):
            for name, entry in entries.items():
                seconds, most = (
                    entry.get(TASKS[task][0], 0.0),
                    SLOW_AT_FIRST if turn < 2 else SLOW,
                )
                if "failed" not in entry and seconds <= most:
                    record(entry, task, turn, workers[name].ask(task))
    return list(entries.values())


def record(entry: dict[str, Any], task: str, turn: int, answer: dict[str, Any]) -> None:
    """Keep the best time, of the first turn only until there is a second, and the
    first memory.
    """
    if "failed" in answer:
        entry["failed"] = answer["failed"]
        return
    seconds, megabytes = TASKS[task]
    best = answer["seconds"] if turn < 2 else min(answer["seconds"], entry[seconds])
    entry[seconds] = round(best, 7)
    if turn == 0 and answer.get("megabytes") is not None:
        entry[megabytes] = round(answer["megabytes"], 2)
    if answer.get("log_loss") is not None:
        entry["log_loss"] = round(answer["log_loss"], 5)
    if "note" in answer:
        entry["note"] = answer["note"]


def cold_start(library: str, wall: bool) -> dict[str, Any]:
    """Seconds from a process with NumPy to the import and to the first answers of a
    library.
    """
    module = LIBRARIES[library][1]
    work = f"peer_methods.first_answer({library!r}, *data)"
    return {"library": library, "module": module} | _time_process(module, work, wall)


def cold_load(wall: bool) -> dict[str, Any]:
    """The same for a calibrator of this library that was saved before."""
    import hokical

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calibrator.json"
        hokical.make("temps").fit(*make_examples(1000, 2, 1)).save(path)
        found = _time_process(
            OURS, f"hokical.load({str(path)!r}).predict_proba(data[0])", wall
        )
    return {"library": f"{OURS}, loaded from a file", "module": OURS} | found


def _time_process(module: str, work: str, wall: bool) -> dict[str, Any]:
    code = (
        f"from time import {'perf_counter' if wall else 'process_time'} as clock\n"
        "import peer_methods, peer_worker\n"
        "data = peer_worker.make_examples(1000, 2, 1); begun = clock()\n"
        f"import {module}; loaded = clock() - begun\n"
        f"{work}\n"
        "print('took', loaded, clock() - begun)"
    )
    runs = []
    for _ in range(ROUNDS):
        command = [sys.executable, "-W", "ignore", "-c", code]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
        if done.returncode:
            return {"failed": done.stderr.strip().splitlines()[-1][:120]}
        told = next(
            line for line in done.stdout.splitlines() if line.startswith("took")
        )
        runs.append([float(number) for number in told.split()[1:]])
    imported, answered = (round(min(column), 4) for column in zip(*runs, strict=True))
    return {"import_s": imported, "first_s": answered}


def find_version(library: str) -> str | None:
    if library == OURS:  # metadata of an editable installation can be older
        return VERSION
    try:
        return version(LIBRARIES[library][0])
    except PackageNotFoundError:
        return None


def describe_machine() -> dict[str, Any]:
    """Facts that explain the figures; neither names nor addresses."""
    memory = (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if hasattr(os, "sysconf")
        else 0
    )
    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "system": f"{platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }


def processor_name() -> str:
    for command in (["lscpu"], ["sysctl", "-n", "machdep.cpu.brand_string"]):
        try:
            told = subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        lines = [line for line in told.splitlines() if line.startswith("Model name:")]
        return (lines or told.splitlines())[0].removeprefix("Model name:").strip()
    return platform.processor() or "unknown processor"


if __name__ == "__main__":
    main()

"""Refuse more findings of a lint rule than `[tool.ratchet]` of pyproject.toml records.

    python tools/ratchet.py

The rules are ones that new code keeps and old code does not yet, everywhere in the two
packages. A number there only falls: lower it when fewer are left, and take a file off
ruff's list of files that may break SLF001 when it does not any more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("src", "paper/src")
#: `ruff` of the environment that runs this.
RUFF = Path(sys.executable).with_name("ruff")


def findings(rules: list[str]) -> list[tuple[str, str]]:
    """Rule and file of each finding, without the exceptions of pyproject.toml."""
    options = ["--isolated", "--exit-zero", "--output-format=json"]
    ruff = [RUFF, "check", *options, f"--select={','.join(rules)}", *PACKAGES]
    report = subprocess.run(
        ruff, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return [
        (finding["code"], Path(finding["filename"]).relative_to(ROOT).as_posix())
        for finding in json.loads(report.stdout)
    ]


def main() -> int:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    limits: dict[str, int] = tools["ratchet"]
    found = findings([*limits])
    counts = Counter(rule for rule, _ in found)
    for rule, limit in limits.items():
        note = "" if counts[rule] >= limit else ": lower the number in pyproject.toml"
        print(f"{rule}: {counts[rule]} of {limit}{note}")
    too_many = [rule for rule, limit in limits.items() if counts[rule] > limit]
    listed = {
        pattern
        for pattern, rules in tools["ruff"]["lint"]["per-file-ignores"].items()
        if rules == ["SLF001"] and pattern.startswith(PACKAGES)
    }
    clean = sorted(listed - {path for rule, path in found if rule == "SLF001"})
    if too_many:
        print(f"More findings than recorded: ruff check --select {','.join(too_many)}")
    if clean:
        print(f"These keep SLF001 now, take them off its list: {clean}")
    return 1 if too_many or clean else 0


if __name__ == "__main__":
    sys.exit(main())

"""`make soak`: every attack in turn, for as many seconds as are given, and a table
of what came.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.soak import ATTACKS
from tests.soak.running import Tally, run_for


def main(seconds: float, seed: int, only: str) -> int:
    """The exit code: 0 if nothing was lost, wrong or hung."""
    attacks = {name: attack for name, attack in ATTACKS.items() if only in name}
    end = time.monotonic() + seconds
    print(
        f"{len(attacks)} attacks in {seconds:.0f} seconds, seeds from {seed}\n",
        flush=True,
    )
    tallies: dict[str, Tally] = {}
    for place, (name, attack) in enumerate(attacks.items()):
        share = (end - time.monotonic()) / (len(attacks) - place)
        tallies[name] = tally = run_for(attack, share, seed)
        came = ", ".join(f"{count} {what}" for what, count in tally.came.most_common())
        print(f"{name:26} {tally.rounds:6} rounds  {came}", flush=True)
        for bad, words in list(tally.failures.items())[:3]:
            print(f"    FAILED with seed {bad}: {words[:400]}", flush=True)
    rounds = sum(tally.rounds for tally in tallies.values())
    failed = sum(len(tally.failures) for tally in tallies.values())
    verdict = f"{failed} FAILED" if failed else "nothing lost, wrong or hung"
    print(f"\n{rounds} rounds: {verdict}.")
    return int(failed > 0)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--seed", type=int, default=int(time.time()) % 10**6 * 1000)
    options.add_argument("--only", default="", help="attacks whose name has this in it")
    given = options.parse_args()
    sys.exit(main(given.seconds, given.seed, given.only))

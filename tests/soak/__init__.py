"""Attacks on the library: hostile files, kills, full disks, two writers, odd arguments.

`make soak` runs all of them for ten minutes and prints what was tried; the suite runs a
few rounds of each. An attack is a function of a random generator and an empty folder
that does one round and returns what came of it in a word or two; whatever it raises
says what was lost or wrong.
"""

from tests.soak import calls, files, frames, kills, objects

ATTACKS = files.ATTACKS | calls.ATTACKS | objects.ATTACKS
ATTACKS |= frames.ATTACKS | kills.ATTACKS

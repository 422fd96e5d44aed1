"""The `hokical` command: one module per command, each of which parses, calls and shows.

Commands reach the library through lazy attributes of `hokical`, so that help pages are fast.
"""

from hokical.cli.application import EXIT_CODES, app, main
from hokical.cli.apply import apply
from hokical.cli.certify import certify
from hokical.cli.compare import compare, demo
from hokical.cli.evaluate import evaluate
from hokical.cli.export import export
from hokical.cli.fit import fit
from hokical.cli.monitor import monitor
from hokical.cli.paths import ProtectingCommand
from hokical.cli.shift import shift
from hokical.cli.show import methods, show

__all__ = ["main"]

for _command in (
    demo, fit, certify, show, apply, evaluate, compare, monitor, shift, export, methods,
):  # fmt: skip
    app.command(cls=ProtectingCommand, epilog=EXIT_CODES)(_command)

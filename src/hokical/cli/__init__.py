"""The `hokical` command: a function per command, each of which parses, calls and shows.

Commands reach the library through lazy attributes of `hokical`, so that help pages are fast.
"""

from hokical.cli.application import EXIT_CODES, app, main
from hokical.cli.apply import apply
from hokical.cli.compare import compare
from hokical.cli.demo import demo
from hokical.cli.evaluate import evaluate
from hokical.cli.export import export
from hokical.cli.fit import certify, fit
from hokical.cli.methods import methods
from hokical.cli.monitor import monitor
from hokical.cli.reading import ProtectingCommand
from hokical.cli.shift import shift
from hokical.cli.show import show

__all__ = ["main"]

for _command in (
    fit, certify, apply, evaluate, compare, shift, monitor, export, show, methods, demo,
):  # fmt: skip
    app.command(cls=ProtectingCommand, epilog=EXIT_CODES)(_command)

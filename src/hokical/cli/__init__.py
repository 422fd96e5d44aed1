"""The `hokical` command: a function per command, each of which parses, calls and shows.

Commands reach the library through lazy attributes of `hokical`, so that help pages are fast.
"""

from hokical.cli.application import EXIT_CODES, app, main
from hokical.cli.evaluating import compare, evaluate, shift
from hokical.cli.fitting import certify, demo, fit, methods, show
from hokical.cli.monitoring import monitor
from hokical.cli.predicting import apply, export
from hokical.cli.reading import ProtectingCommand

__all__ = ["main"]

for _command in (
    fit, certify, apply, evaluate, compare, shift, monitor, export, show, methods, demo,
):  # fmt: skip
    app.command(cls=ProtectingCommand, epilog=EXIT_CODES)(_command)

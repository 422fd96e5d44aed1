"""The `hokical` command: one module per command, each of them parse, one call, show.

Commands import what they need when they run: a help page must not wait for scikit-learn.
"""

from hokical.cli.apply import apply
from hokical.cli.bound import bound
from hokical.cli.compare import compare
from hokical.cli.demo import demo
from hokical.cli.evaluate import evaluate
from hokical.cli.export import export
from hokical.cli.fit import fit
from hokical.cli.main import EXIT_CODES, app, main
from hokical.cli.methods import methods
from hokical.cli.monitor import monitor
from hokical.cli.paper import app as paper
from hokical.cli.select import select

__all__ = ["app", "main"]

for _command in (demo, fit, apply, evaluate, compare, select, bound, monitor, export, methods):
    app.command(epilog=EXIT_CODES)(_command)
app.add_typer(paper, name="paper")

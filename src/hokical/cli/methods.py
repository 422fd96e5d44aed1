"""`hokical methods`: the calibration methods."""

from dataclasses import asdict

from rich import box
from rich.table import Table

import hokical
from hokical.cli.options import Json
from hokical.cli.show import say, show_json, show_table


def methods(as_json: Json = False) -> None:
    """List the calibration methods."""
    known = hokical.calibrators.table()
    if as_json:
        show_json(
            [
                asdict(info) | {"kind": info.kind.__name__, "needs_views": info.kind.needs_views}
                for info in known
            ]
        )
        return
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    shown.add_column("name", no_wrap=True, style="bold")
    shown.add_column("labels", no_wrap=True)
    shown.add_column("cost of a fit", ratio=2)
    shown.add_column("published in", ratio=3)
    for info in known:
        labels = "may change" if info.changes_labels else "kept"
        shown.add_row(info.name, labels, info.cost, info.reference)
    show_table("Calibration methods", shown)
    binary = [info.name for info in known if info.binary_only]
    say(f"For two classes only: {', '.join(binary)}.")
    say("Without `--method`, fit takes auto: uncalibrated, temps and structured, averaged.")

"""A spinner for work whose length is not known."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hokical.cli.show import stderr

_SHOW_AFTER_SECONDS = 1.0


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Show what is being done on stderr, if that is a terminal and a second has passed."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    status = Progress(*columns, console=stderr(), transient=True)
    status.add_task(f"{what} ...", total=None)
    timer = threading.Timer(_SHOW_AFTER_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # a spinner that is just starting must have started before it is stopped
        status.stop()

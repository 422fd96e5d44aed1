"""A progress bar that appears only when a wait is long enough to be noticed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

_SHOW_AFTER_SECONDS = 1.0


def track(items: Iterable[Item], description: str, total: int, show: bool | None) -> Iterator[Item]:
    """Yield the items; draw a bar on stderr from the first second on.

    `show` None means: if stderr is a terminal. The bar goes away when the work is done.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress, TimeRemainingColumn

    console = Console(stderr=True, force_terminal=True)
    columns = (*Progress.get_default_columns()[:3], TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        begun = time.monotonic()
        task = bar.add_task(description, total=total, visible=False)
        for item in items:
            yield item
            bar.update(task, advance=1, visible=time.monotonic() - begun > _SHOW_AFTER_SECONDS)

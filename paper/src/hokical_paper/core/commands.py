"""What the commands of `hokical` share: options, tables, messages."""

from hokical.cli import EXIT_CODES
from hokical.cli.console import (
    new_table,
    say,
    show_facts,
    show_json,
    show_table,
    stdout,
)
from hokical.cli.options import Json

__all__ = [
    "EXIT_CODES",
    "Json",
    "new_table",
    "say",
    "show_facts",
    "show_json",
    "show_table",
    "stdout",
]

"""Files that are written whole or not at all, and errors that name a damaged one."""

from hokical._core.storage import replace_file, write_text_atomically
from hokical.io.tables import NO_NAME, Arrays, report_damage

__all__ = [
    "NO_NAME",
    "Arrays",
    "replace_file",
    "report_damage",
    "write_text_atomically",
]

"""Files that are written whole or not at all, and errors that name a damaged one."""

from hokical._core.storage import replace_file, write_text_atomically
from hokical.io import DataFileError
from hokical.io.tables import report_damage

__all__ = ["DataFileError", "replace_file", "report_damage", "write_text_atomically"]

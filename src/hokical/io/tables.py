"""Files of every format as named columns or arrays, results into files, and what is wrong with one.

The format is found by the first bytes. A `.csv` has commas, semicolons or tabs, and the names of
the columns on top; JSON lines (`.jsonl`), and a JSON list of objects, are tables too: each object
is a row. Parquet files and tables of pyarrow need the extra `parquet`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hokical._core.arrays import AnyArray
from hokical._core.lazy import import_optional
from hokical._core.reading import to_column
from hokical._core.storage import printable, replace_file

FileSplit = Literal["val", "test"]
#: Arrays of a file by name. A file with one array and no name for it uses "".
Arrays = Mapping[str, AnyArray]
Opener = Callable[[], AbstractContextManager[Arrays]]
#: Columns of scores as numbers, and other columns by name.
Loaded = tuple[list[AnyArray], dict[str, AnyArray]]
NAMELESS = ""
_ARRAYS = "NumPy arrays of numbers"
_HEAD_BYTES = 4096
#: First bytes of the formats that are read; of pickles, those of protocols 2 to 5.
_MAGIC = {b"PK\x03\x04": "npz", b"\x93NUMPY": "npy", b"PAR1": "parquet"}
_PICKLED = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
_PICKLES = (".p", ".pkl", ".pickle")
_SAVE = "Save the arrays with `numpy.savez`, or a table as .csv or .parquet."
_GZIP = b"\x1f\x8b"
#: What stands for a missing value, in lower case; `NA` is what R writes.
MISSING = ("", "na", "n/a", "nan", "null", "none")
#: Lists of scores in JSON, and how their columns are called.
_LISTS = {
    **dict.fromkeys(("logits", "scores"), "logit"),
    **dict.fromkeys(("probs", "proba", "probabilities"), "prob"),
}
_TEXT = "a table (.csv) with columns logit_0, logit_1, ... and label"
PARQUET = "a Parquet table"
#: Imports a module of pyarrow.
import_arrow = partial(import_optional, extra="parquet")
#: What the name of a table of results may end in.
TABLES = (".csv", ".csv.gz", ".parquet")
#: What a spreadsheet runs: begins with a sign of formulas and is no number.
_FORMULA = re.compile(r"[=@\t\r]|[-+](?![\d.]+(e[-+]?\d+)?$|inf$|nan$)", re.IGNORECASE)


class DataFileError(ValueError):
    """A file that cannot be used: which, what was expected, what was found, what to do."""

    def __init__(self, path: Path, problem: str, remedy: str = "") -> None:
        self.path, self._said = path, (path, problem, remedy)
        super().__init__(printable(" ".join(f"{path}: {problem} {remedy}".split())))

    def __reduce__(self) -> tuple[Any, ...]:
        """So that it can be sent from another process."""
        return type(self), self._said


@contextmanager
def report_damage(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises on damaged bytes into a DataFileError.

    Parsers raise anything on bytes they do not understand (ValueError, KeyError, zlib.error), so
    everything is caught, here and nowhere else. Lack of memory or of rights is not damage.
    """
    try:
        yield
    except (DataFileError, MemoryError):
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.strerror:
            raise DataFileError(path, f"cannot be read: {error.strerror}.") from error
        raise DataFileError(
            path,
            f"expected {kind}; found a damaged or truncated one: {reason.rstrip('.')}.",
            "Copy or save the file again.",
        ) from error


def count_from(first_row: int) -> Callable[[int], str]:
    """The place of a row of a chunk, in words."""
    return lambda row: f"row {first_row + row}"


@contextmanager
def report_file(path: Path | None, place: Callable[[int], str] = "row {}".format) -> Iterator[None]:
    """Errors about numbers name the file, if there is one; `place` says where in it a row is."""
    try:
        yield
    except DataFileError:
        raise
    except (TypeError, ValueError) as error:
        text = re.sub(r"\b[Rr]ow (\d+)", lambda found: place(int(found[1])), str(error))
        raise (type(error)(text) if path is None else DataFileError(path, text)) from error


def find_format(path: Path) -> str:
    """One of npz, npy, parquet, pickle, csv; or DataFileError."""
    if path.exists() and not path.is_file():
        what = "a directory" if path.is_dir() else "a pipe or device"
        raise DataFileError(path, f"expected a file; found {what}.", "Save the data in a file.")
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise DataFileError(
            path, f"cannot be read: {error.strerror}.", "Check its name, folder and permissions."
        ) from error
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return name
    # A length in 8 bytes, then JSON, is of safetensors.
    pickled = head[:2] in _PICKLED and head[8:9] != b"{"
    if pickled or (head and path.suffix.lower() in _PICKLES):
        return "pickle"
    if head.startswith(_GZIP):
        with report_damage(path, "a compressed table (.csv.gz)"), gzip.open(path) as stream:
            head = stream.read(_HEAD_BYTES)
    if head and all(byte >= 32 or byte in b"\t\r\n" for byte in head):
        return "csv"
    found = "another kind" if head else "nothing"
    raise DataFileError(
        path, f"expected .npz, .npy, .csv (UTF-8) or .parquet; found {found}.", _SAVE
    )


def read_text(path: Path) -> str:
    """The text of a file, unpacked if needed: in UTF-8, else in the encoding of Windows."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data.startswith(_GZIP) else data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        warnings.warn(f"{path.name} is not UTF-8 and is read as Windows-1252.", stacklevel=2)
        return data.decode("cp1252", errors="replace")


class Table(ABC):
    """A file with columns, which are found by name in any case.

    `part` is that of an archive which is read: `val_logits` may then be called `logits`.
    """

    #: Rows of the file that come before those of the table.
    first_row = 0

    def __init__(self, path: Path, names: Sequence[str], part: FileSplit | None = None) -> None:
        self.path, self.names, self.part = path, list(names), part
        known = [name.strip().lower() for name in names]
        if len(set(known)) < len(known):
            twice = Counter(known).most_common(1)[0][0]
            problem = f"expected every column once; found `{twice}` twice."
            raise self.error(problem, "Rename one of them.")
        self._places = dict(zip(known, names, strict=True))
        if part is not None:
            own = {k: name for k, name in self._places.items() if k.startswith(f"{part}_")}
            self._places |= {k.removeprefix(f"{part}_"): name for k, name in own.items()}

    def first(self, *spellings: str) -> str | None:
        """The first of the spellings that is there, as the file spells it."""
        found = (self._places.get(name.strip().lower()) for name in spellings)
        return next((name for name in found if name is not None), None)

    def require(self, name: str, option: str) -> str:
        """A column or array that the user named."""
        found = self.first(name)
        if found is None:
            raise self.error(
                f"expected a column or array `{name}`, named by {option}; found {self.listed()}.",
                "Check the name.",
            )
        return found

    def error(self, problem: str, remedy: str) -> DataFileError:
        """An error that names the file."""
        return DataFileError(self.path, problem, remedy)

    def listed(self) -> str:
        """At most eight of the names, for messages."""
        shown = [f"`{name}`" if name else "numbers without a name" for name in self.names]
        return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")

    def read(
        self, scores: Sequence[str], others: Sequence[str]
    ) -> tuple[AnyArray, dict[str, AnyArray]]:
        """Scores (n, k), or one array of scores of any shape; other columns (n,) by name."""
        found, rest = self._load(scores, others)
        return found[0] if len(found) == 1 else np.stack(found, axis=1), rest

    def read_column(self, name: str) -> AnyArray:
        """One column that holds no scores."""
        return self._load((), (name,))[1][name]

    @abstractmethod
    def _load(self, scores: Sequence[str], others: Sequence[str]) -> Loaded:
        """The columns of the scores, as numbers, and the others."""

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        return f"row {self.first_row + row}"

    def numeric(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the columns that may hold numbers; all where that is not known yet."""
        return tuple(names)


class ArrayTable(Table):
    """Arrays of a file that `opener` opens; those that are not asked for are not read."""

    def __init__(self, path: Path, names: Sequence[str], opener: Opener, part: FileSplit) -> None:
        super().__init__(path, names, part)
        self._open = opener

    def _load(self, scores: Sequence[str], others: Sequence[str]) -> Loaded:
        with report_damage(self.path, _ARRAYS), self._open() as arrays:
            found = {name: arrays[name] for name in (*scores, *others)}
            for name, array in found.items():
                if isinstance(array, bytes):  # what NumPy gives for an entry without its header
                    raise ValueError(f"`{name}` is no array")
        return [found[name] for name in scores], {name: found[name] for name in others}


def in_memory(path: Path, arrays: Arrays, part: FileSplit) -> ArrayTable:
    """Arrays that are read already, or mapped into memory."""
    return ArrayTable(path, list(arrays), lambda: nullcontext(arrays), part)


def open_npz(path: Path, part: FileSplit) -> ArrayTable:
    """The arrays of an archive."""
    with report_damage(path, _ARRAYS), zipfile.ZipFile(path) as archive:
        names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
    if not names:
        raise DataFileError(path, "expected NumPy arrays; found another archive.", _SAVE)
    return ArrayTable(path, names, lambda: np.load(path, allow_pickle=False), part)


def open_npy(path: Path, part: FileSplit) -> ArrayTable:
    """The file's one array, without a name, mapped into memory."""
    with report_damage(path, _ARRAYS):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.size and array.offset + array.nbytes != os.path.getsize(path):
            raise EOFError(f"more bytes than shape {array.shape} and type {array.dtype} announce")
    return in_memory(path, {NAMELESS: np.asarray(array)}, part)


class TextTable(Table):
    """Columns by the header, or by the keys of JSON objects."""

    #: Lines of the file before the first of the text.
    _before = 0

    def __init__(self, path: Path) -> None:
        self.path = path
        with report_damage(path, _TEXT):
            self._text = read_text(path)
            if self._text.lstrip()[:1] in ("{", "["):
                self._text, self._before = _csv_of_json(self._text), -1
            first_line = self._text.lstrip().partition("\n")[0]
            self._delimiter = max(",;\t", key=first_line.count)
            head = [row for _, row in islice(self._rows(), 2)] or [[""]]
        names = [name.strip() for name in head[0]]
        if len(names) < 2 and not names[0].isidentifier():
            raise self.error(f"expected {_TEXT}; found other text.", "Name another file.")
        if all(map(_is_number, names)) and names != [str(k) for k in range(len(names))]:
            problem = f"expected {_TEXT}; found numbers in line 1."
            raise self.error(problem, "Name the columns there.")
        if len(head) < 2:
            raise self.error(f"expected {_TEXT}; found 0 rows.", "Add rows.")
        super().__init__(path, names)

    def _load(self, scores: Sequence[str], others: Sequence[str]) -> Loaded:
        """Scores as numbers, NaN where there are none; other columns as text."""
        numbers, texts = ([self.names.index(name) for name in own] for own in (scores, others))
        kinds = dict.fromkeys(range(len(self.names)), "U1")  # of what is not used
        kinds |= dict.fromkeys(texts, "O") | dict.fromkeys(numbers, "f8")
        cells = np.dtype([(str(k), kind) for k, kind in kinds.items()])
        text = io.StringIO(self._text.lstrip("\r\n"))
        form: dict[str, Any] = {"delimiter": self._delimiter, "comments": None, "quotechar": '"'}
        try:
            table: AnyArray = np.loadtxt(text, cells, **form, skiprows=1, ndmin=1)
        except ValueError:  # percentages, decimal commas, missing values, and errors
            rows = [
                tuple(self._number(row[k], line, k) if k in numbers else row[k] for k in kinds)
                for line, row in self._checked_rows()
            ]
            table = np.array(rows, cells)
        rest = {name: table[str(k)].astype(np.str_) for name, k in zip(others, texts, strict=True)}
        return [table[str(k)] for k in numbers], rest

    def place(self, row: int) -> str:
        """Where an editor shows a row."""
        return f"line {next(islice(self._checked_rows(), row, None))[0]}"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Each row that is not blank, after the number of its first line in the file."""
        reader = csv.reader(io.StringIO(self._text, newline=""), delimiter=self._delimiter)
        line = 1
        for row in reader:
            if len(row) > 1 or "".join(row).strip():
                yield line + self._before, row
            line = reader.line_num + 1

    def _checked_rows(self) -> Iterator[tuple[int, list[str]]]:
        """The rows below the header."""
        for line, row in islice(self._rows(), 1, None):
            if len(row) != len(self.names):
                raise self.error(
                    f"expected {len(self.names)} cells in a row, as in the first; found "
                    f"{len(row)} in line {line}.",
                    "Complete or drop the row, and name every column. Between commas, numbers "
                    "have a decimal point.",
                )
            yield line, row

    def _number(self, cell: str, line: int, column: int) -> float:
        """A cell as a number; a percentage as a fraction, NaN if it says that none is known."""
        text = cell.strip()
        if text.lower() in MISSING:
            return np.nan
        unit = 100.0 if text.endswith("%") else 1.0
        text = text.removesuffix("%").rstrip()
        if self._delimiter != "," and "." not in text:
            text = text.replace(",", ".")
        if _is_number(text):
            return float(text) / unit
        remedy = "Write a number there, or drop the row or column."
        if re.match(r"\s*[-+]?\d+,\d+", cell):
            remedy = "Write a decimal point, or put semicolons between the columns."
        where = f"line {line}, column `{self.names[column]}`"
        raise self.error(f"expected a number in {where}; found {cell!r}.", remedy)


def json_records(text: str) -> list[Any]:
    """The values of a JSON list, or of JSON lines; one alone is a list too."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    return found if isinstance(found, list) else [found]


def _csv_of_json(text: str) -> str:
    """JSON objects as a table with commas, a line each; lists of scores as a column each."""
    rows = []
    for row, record in enumerate(json_records(text)):
        if not isinstance(record, dict):
            raise ValueError(f"entry {row} is no JSON object but {json.dumps(record)[:40]}")
        cells: dict[str, Any] = {}
        for name, value in record.items():
            kind = _LISTS.get(name.strip().lower())
            if isinstance(value, list) and kind:
                if any(isinstance(each, (list, dict)) for each in value):
                    raise ValueError(f"`{name}` of entry {row} is not one list of numbers")
                cells |= {f"{kind}_{k}": each for k, each in enumerate(value)}
            elif not isinstance(value, (list, dict)):
                cells[name] = value
        rows.append({name: _cell(value) for name, value in cells.items()})
    names = [*dict.fromkeys(name for row in rows for name in row)]
    found = io.StringIO(newline="")
    table = csv.DictWriter(found, names, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return found.getvalue()


def _cell(value: Any) -> str:
    """As a cell of one line."""
    return "" if value is None else " ".join(str(value).split())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def open_parquet(files: Sequence[Path], **options: Any) -> Any:
    """Files as one pyarrow Dataset."""
    arrow = import_arrow("pyarrow.dataset")
    with report_damage(files[0], PARQUET):
        data = arrow.dataset([str(file) for file in files], format="parquet", **options)
        _ = data.schema.names  # damaged ones cannot be decoded
    return data


def as_dataset(data: Any) -> Any:
    """A pyarrow Dataset as it is, and of anything that gives an Arrow stream."""
    arrow = import_arrow("pyarrow.dataset")
    if isinstance(data, arrow.Dataset):
        return data
    return arrow.dataset(import_arrow("pyarrow").table(data))


class ArrowTable(Table):
    """Columns of a pyarrow Dataset or Table, of which `first` rows of the file come before it."""

    def __init__(self, path: Path, data: Any, first: int = 0) -> None:
        super().__init__(path, data.schema.names)
        self.data, self.first_row = data, first

    def _load(self, scores: Sequence[str], others: Sequence[str]) -> Loaded:
        with report_damage(self.path, PARQUET):
            names, data = list(dict.fromkeys((*scores, *others))), self.data
            scan = hasattr(data, "to_table")
            table = data.to_table(names, **scan_options(data)) if scan else data.select(names)
        found = [to_scores(self.path, table, [name]) for name in scores]
        return found, {name: to_column(table.column(name)) for name in others}

    def numeric(self, names: Iterable[str]) -> tuple[str, ...]:
        kinds = import_arrow("pyarrow").types
        types = {field.name: field.type for field in self.data.schema}
        number = (kinds.is_floating, kinds.is_integer, kinds.is_decimal)
        return tuple(name for name in names if any(is_kind(types[name]) for is_kind in number))


def scan_options(data: Any) -> dict[str, Any]:
    """Options of a scan that reads little ahead and compares checksums."""
    arrow = import_arrow("pyarrow.dataset")
    options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(getattr(data, "format", None), arrow.ParquetFileFormat):
        options["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(
            pre_buffer=False, page_checksum_verification=True
        )
    return options


def to_scores(path: Path, table: Any, names: Sequence[str]) -> AnyArray:
    """Scores (n, classes) from a column per class or a column of lists; nulls are NaN."""
    columns = [table.column(name) for name in names]
    if len(columns) == 1 and "list" in str(columns[0].type):
        return _from_lists(path, columns[0])
    found = [np.asarray(column.to_numpy()) for column in columns]
    return found[0] if len(found) == 1 else np.stack(found, axis=1)


def _from_lists(path: Path, column: Any) -> AnyArray:
    rows = column.combine_chunks()
    lengths = set(rows.value_lengths().to_pylist())
    if len(lengths) > 1 or lengths & {None, 0}:
        raise DataFileError(
            path,
            f"expected as many scores in every row; found {sorted(map(str, lengths))}.",
            "Fix or drop these rows.",
        )
    width = lengths.pop() if lengths else 0
    return np.asarray(rows.flatten().to_numpy(zero_copy_only=False)).reshape(len(rows), width)


def write_table(path: str | os.PathLike[str], columns: dict[str, AnyArray]) -> int:
    """Write columns (n,) as .csv, .csv.gz, .parquet or .npz, by the name of the file.

    In a .csv, text that a spreadsheet would take for a formula, as it begins with one of `=+-@` and
    is no number, gets a `'` before it; the number of such cells is returned.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_table(f"{folder}/new.csv", {"note": np.array(["=1 + 1", "b"])})
    1
    """
    name = os.fspath(path)
    if name.endswith(".npz"):
        arrays: dict[str, Any] = {
            key: _for_numpy(np.asarray(column)) for key, column in columns.items()
        }
        with replace_file(path) as stream:
            np.savez(stream, **arrays)  # none holds objects; NumPy 2.1 has no `allow_pickle`
        return 0
    if name.endswith(".parquet"):
        parquet = import_arrow("pyarrow.parquet")
        lists = {key: c.tolist() if c.dtype.kind in "UTO" else c for key, c in columns.items()}
        table = import_arrow("pyarrow").table(lists)
        with replace_file(path) as stream:
            parquet.write_table(table, stream)
        return 0
    marked = 0

    def cells(values: Iterable[Any]) -> Iterator[Any]:
        nonlocal marked
        for value in values:
            runs = isinstance(value, str) and _FORMULA.match(value) is not None
            marked += runs
            yield f"'{value}" if runs else "" if value != value else value  # NaN

    with replace_file(path) as stream:
        packed = gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) if name.endswith(".gz") else None
        text = io.TextIOWrapper(packed or stream, encoding="utf-8", newline="", write_through=True)
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(cells(columns))
        rows.writerows(zip(*(cells(c.tolist()) for c in columns.values()), strict=True))
        text.detach()
        if packed is not None:
            packed.close()
    return marked


def _for_numpy(column: AnyArray) -> AnyArray:
    """Numbers as they are, whole ones with -1 where there is none; everything else as text."""
    if column.dtype.kind not in "OT":
        return column
    values = column.tolist()
    empty = "" if any(isinstance(value, str) for value in values) else -1
    found = np.array([empty if value is None else value for value in values])
    return found if found.dtype.kind in "ibU" else column.astype(np.str_)


def check_output(path: str | os.PathLike[str], *, suffix: str | tuple[str, ...] = "") -> None:
    """Refuse a place that cannot be written to, before the work is done and lost."""
    path = Path(path)
    folder = path.parent
    if not path.name.endswith(suffix):
        ends = suffix if isinstance(suffix, str) else " or ".join(suffix)
        raise DataFileError(path, f"expected an output name that ends in {ends}.", "Rename it.")
    if not folder.is_dir():
        raise DataFileError(path, f"cannot be written: no folder {folder}.", "Make it first.")
    if path.exists() and not path.is_file():
        raise DataFileError(path, "cannot be written: it is not a file.", "Choose another name.")
    if not os.access(folder, os.W_OK):
        raise DataFileError(path, f"cannot be written: no right to write in {folder}.")

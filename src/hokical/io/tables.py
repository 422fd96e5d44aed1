"""Files of every format as named columns or arrays, results into files, and what is
wrong with one.

The format is found by the first bytes. A `.csv` has commas, semicolons or tabs, and the
names of the columns on top; JSON lines (`.jsonl`), and a JSON list of objects, are
tables too: each object is a row. Parquet files and tables of pyarrow need the extra
`parquet`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import entry_points
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Literal

import numpy as np

from hokical._core.arrays import AnyArray
from hokical._core.reading import to_column
from hokical._core.runtime import import_optional, warn_user
from hokical._core.storage import json_values, printable, replace_file

FileSplit = Literal["val", "test"]
#: Arrays of a file by name. A file with one array and no name for it uses "".
Arrays = Mapping[str, AnyArray]
Load = Callable[[Sequence[str], Sequence[str]], Arrays]
Shape = tuple[int, ...]
NO_NAME = ""
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
_LISTS = dict.fromkeys(("logits", "scores"), "logit")
_LISTS |= dict.fromkeys(("probs", "proba", "probabilities"), "prob")
_TEXT = "a table (.csv) with columns logit_0, logit_1, ... and label"
PARQUET = "a Parquet table"
#: How the types of Arrow that are numbers are called.
_NUMERIC = re.compile(r"u?int\d|float|double|halffloat|decimal")
#: Imports a module of pyarrow.
import_arrow = partial(import_optional, extra="parquet")
#: What the name of a table of results may end in.
TABLES = (".csv", ".csv.gz", ".parquet", ".jsonl")
#: How a table that is not a file is called in errors.
TABLE = Path("table")
_WILD = frozenset("*?[")
#: What a spreadsheet runs: begins with a sign of formulas and is no number.
_FORMULA = re.compile(r"[=@\t\r]|[-+](?![\d.]+(e[-+]?\d+)?$|inf$|nan$)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
#: Numbers, and what Python and R write for those that are not finite.
_CELL = re.compile(
    rf"({_NUMBER.pattern}|[-+]?(inf|infinity|nan))", re.ASCII | re.IGNORECASE
)
#: Columns of logits, by their names; those have no percentages.
_LOGIT_COLUMN = re.compile(r"\s*logit", re.IGNORECASE)


class DataFileError(ValueError):
    """A file that cannot be used: which, what was expected, what was found, what to
    do.
    """

    def __init__(self, path: Path, problem: str, remedy: str = "") -> None:
        self.path = path
        self._said = (path, problem, remedy)
        super().__init__(printable(" ".join(f"{path}: {problem} {remedy}".split())))

    def __reduce__(self) -> tuple[Any, ...]:
        """So that it can be sent from another process."""
        return type(self), self._said


@contextmanager
def report_damage(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises on damaged bytes into a DataFileError.

    Parsers raise anything on bytes they do not understand (ValueError, KeyError,
    zlib.error), so everything is caught, here and nowhere else. Lack of memory or of
    rights is not damage.
    """
    try:
        yield
    except (DataFileError, MemoryError):
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        problem = (
            f"expected {kind}; found a damaged or truncated one: {reason.rstrip('.')}."
        )
        problem_and_remedy = problem, "Copy or save the file again."
        if isinstance(error, OSError) and error.strerror:
            problem_and_remedy = (
                f"cannot be read: {error.strerror}.",
                "Check its name, folder and permissions.",
            )
        raise DataFileError(path, *problem_and_remedy) from error


@contextmanager
def report_file(
    path: Path | None, place: Callable[[int], str] | int = 0, remedy: str = ""
) -> Iterator[None]:
    """Errors about numbers name the file, if there is one.

    `place` says where in it a row is, or how many rows come before. A `remedy` is what
    to do about a row in place of dropping it.
    """

    def where(found: re.Match[str]) -> str:
        row = int(found[1])
        return f"row {row + place}" if isinstance(place, int) else place(row)

    try:
        yield
    except DataFileError:
        raise
    except (TypeError, ValueError) as error:
        text = re.sub(r"\b[Rr]ow (\d+)", where, str(error))
        text = text.replace("Fix or drop the row", remedy) if remedy else text
        raise (
            type(error)(text) if path is None else DataFileError(path, text)
        ) from error


def find_format(path: Path) -> str:
    """One of npz, npy, parquet, pickle, csv; or DataFileError."""
    if path.exists() and not path.is_file():
        kind = "a directory" if path.is_dir() else "a pipe or device"
        raise DataFileError(
            path, f"expected a file; found {kind}.", "Save the data in a file."
        )
    with report_damage(path, "a file"), path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return name
    # A length in 8 bytes, then JSON, is of safetensors.
    pickled = head[:2] in _PICKLED and head[8:9] != b"{"
    if pickled or (head and path.suffix.lower() in _PICKLES):
        return "pickle"
    if head.startswith(_GZIP):
        with (
            report_damage(path, "a compressed table (.csv.gz)"),
            gzip.open(path) as stream,
        ):
            head = stream.read(_HEAD_BYTES)
    if head and all(byte >= 32 or byte in b"\t\r\n" for byte in head):
        return "csv"
    wanted = ".npz, .npy, .csv (UTF-8) or .parquet"
    kind = "another kind" if head else "nothing"
    raise DataFileError(path, f"expected {wanted}; found {kind}.", _SAVE)


def read_text(path: Path) -> str:
    """The text of a file, unpacked if needed: in UTF-8, else in the encoding of
    Windows.
    """
    data = path.read_bytes()
    data = gzip.decompress(data) if data.startswith(_GZIP) else data
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        warn_user(f"{path.name} is not UTF-8 and is read as Windows-1252.")
        text = data.decode("cp1252", errors="replace")
    # Old programs for Macintosh end lines with CR alone.
    return text if "\n" in text else text.replace("\r", "\n")


def parse_number(cell: str) -> float | None:
    """A cell as a number; None if it is something else, as `1_0` and other digits are
    for Python.

    >>> parse_number(" -1.5e3 "), parse_number("1_0")
    (-1500.0, None)
    """
    text = cell.strip()
    return float(text) if _CELL.fullmatch(text) else None


class Table:
    """Named columns of a file, found by name in any case: (n,), or arrays with scores.

    `load(scores, others)` reads columns by name, scores as numbers. `part` is that of
    an archive which is read: `val_logits` may then be called `logits`. `first_row` rows
    of the file come before those of the table. `numbers` are the columns that may hold
    such; by default all. `shape_of` an array is known without reading it, if at all.
    `kinds` are the types of numbers and truth values in JSON, which are read as text.
    """

    first_row = 0
    kinds: Mapping[str, np.dtype[Any]] = MappingProxyType({})

    def __init__(
        self,
        path: Path,
        names: Iterable[str],
        load: Load,
        part: FileSplit | None = None,
        shape_of: Callable[[str], Shape] | None = None,
    ) -> None:
        self.path = path
        self.names = [*names]
        self._shape_of = shape_of
        self.part = part
        self._load = load
        self.numbers = self.names
        keys = [name.strip().lower() for name in self.names]
        if len(set(keys)) < len(keys):
            raise self.error(
                "expected every column once; found "
                f"`{Counter(keys).most_common(1)[0][0]}` twice.",
                "Rename one of them.",
            )
        self._places = dict(zip(keys, self.names, strict=True))
        of_part = [
            key for key in keys if part is not None and key.startswith(f"{part}_")
        ]
        self._places |= {
            key.removeprefix(f"{part}_"): self._places[key] for key in of_part
        }

    def as_written(self, name: str, column: AnyArray) -> AnyArray:
        """A column of text with the numbers, or truth values, that JSON had."""
        kind = self.kinds.get(name)
        if kind is None or column.dtype.kind != "U":
            return column
        return column == "True" if kind.kind == "b" else column.astype(kind)

    def first(self, *spellings: str) -> str | None:
        """The first of the spellings that is there, as the file spells it."""
        columns = (self._places.get(name.strip().lower()) for name in spellings)
        return next((name for name in columns if name is not None), None)

    def require(self, name: str, option: str) -> str:
        """A column or array that the user named."""
        if (column := self.first(name)) is None:
            raise self.error(
                f"expected a column or array `{name}`, named by {option}; found "
                f"{self.listed()}.",
                "Check the name.",
            )
        return column

    def error(self, problem: str, remedy: str) -> DataFileError:
        """An error that names the file."""
        return DataFileError(self.path, problem, remedy)

    def listed(self) -> str:
        """At most eight of the names, for messages."""
        shown = [
            f"`{name}`" if name else "numbers without a name" for name in self.names
        ]
        return ", ".join(shown[:8]) + (
            f" and {len(shown) - 8} more" if len(shown) > 8 else ""
        )

    def read(
        self, scores: Sequence[str], others: Sequence[str]
    ) -> tuple[AnyArray, Arrays]:
        """Scores (n, k), or one array of scores of any shape; other columns (n,) by
        name.
        """
        columns = self._load(scores, others)
        arrays = [columns[name] for name in scores]
        return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1), columns

    def read_columns(self, scores: Sequence[str], others: Sequence[str]) -> Arrays:
        """Columns by name, scores as numbers."""
        return self._load(scores, others)

    def read_column(self, name: str) -> AnyArray:
        """One column that holds no scores."""
        return self._load((), (name,))[name]

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        return f"row {self.first_row + row}"

    def shape(self, name: str) -> Shape:
        """The shape of an array; () of a column of a table."""
        return () if self._shape_of is None else self._shape_of(name)

    def select(self, columns: Mapping[str, str], load: Load | None = None) -> Table:
        """Some of the columns under other names, by these; `load` reads them.

        >>> table = Table(TABLE, ["a:x", "b"], lambda *_: {"a:x": np.ones(2)})
        >>> table.select({"x": "a:x"}).read_column("x")
        array([1., 1.])
        """
        return SelectedTable(self, columns, load or self._load)


class SelectedTable(Table):
    """Some columns of another table, under other names."""

    def __init__(self, table: Table, columns: Mapping[str, str], load: Load) -> None:
        def load_selected(scores: Sequence[str], others: Sequence[str]) -> Arrays:
            loaded = load(
                [columns[name] for name in scores], [columns[name] for name in others]
            )
            return {name: loaded[columns[name]] for name in (*scores, *others)}

        super().__init__(table.path, columns, load_selected, table.part)
        self._table = table
        self.numbers = [name for name in columns if columns[name] in table.numbers]

    def place(self, row: int) -> str:
        return self._table.place(row)


def open_table(path: Path, split: FileSplit) -> Table:
    """A file of any format; of an archive, the arrays of this part come first."""
    match find_format(path):
        case "csv":
            return TextTable(path)
        case "parquet":
            return arrow_table(path, open_parquet([path]))
        case "npy":
            return _table_of(path, {NO_NAME: _map_array(path)}, split)
        case "pickle":
            return _table_of(path, _read_pickle(path), split)
    return _open_archive(path, split)


def _map_array(path: Path) -> AnyArray:
    """The array of a .npy file, mapped into memory."""
    with report_damage(path, _ARRAYS):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.size and array.offset + array.nbytes != os.path.getsize(path):
            raise EOFError(
                f"more bytes than shape {array.shape} and type {array.dtype} announce"
            )
    return np.asarray(array)


def _read_pickle(path: Path) -> Arrays:
    """The arrays of a pickle, by the reader of another package."""
    for entry in entry_points(group="hokical.readers", name="pickle"):
        arrays: Arrays = entry.load()(path)
        return arrays
    raise DataFileError(
        path,
        "is a pickle, which another package reads.",
        "Install it: pip install ./paper (in a clone). Or save the arrays with "
        "`numpy.savez`.",
    )


def _open_archive(path: Path, split: FileSplit) -> Table:
    """The arrays of a .npz file, which are read when they are asked for."""
    with report_damage(path, _ARRAYS), zipfile.ZipFile(path) as archive:
        members = archive.namelist()
    names = [name.removesuffix(".npy") for name in members if name.endswith(".npy")]
    if not names:
        raise DataFileError(
            path, "expected NumPy arrays; found another archive.", _SAVE
        )

    def load(scores: Sequence[str], others: Sequence[str]) -> Arrays:
        with report_damage(path, _ARRAYS), np.load(path, allow_pickle=False) as arrays:
            read = {name: arrays[name] for name in (*scores, *others)}
            for name, array in read.items():
                # What NumPy gives for an entry without its header.
                if isinstance(array, bytes):
                    raise ValueError(f"`{name}` is no array")
        return read

    def shape_of(name: str) -> Shape:
        with (
            report_damage(path, _ARRAYS),
            zipfile.ZipFile(path) as archive,
            archive.open(f"{name}.npy") as stream,
        ):
            return _announced_shape(stream)

    return Table(path, names, load, split, shape_of)


def _table_of(path: Path, arrays: Arrays, part: FileSplit) -> Table:
    """Arrays that are read already, or mapped into memory."""
    return Table(
        path,
        arrays,
        lambda scores, others: arrays,
        part,
        lambda name: np.shape(arrays[name]),
    )


def _announced_shape(stream: IO[bytes]) -> Shape:
    """The shape in the header of an array, () if it is of a later version."""
    match np.lib.format.read_magic(stream):
        case (1, 0):
            header = np.lib.format.read_array_header_1_0(stream)
        case (2, 0):
            header = np.lib.format.read_array_header_2_0(stream)
        case _:
            return ()
    return tuple(header[0])


class TextTable(Table):
    """Columns by the header, or by the keys of JSON objects."""

    #: Lines of the file before the first of the text.
    _before = 0

    def __init__(self, path: Path) -> None:
        self.path = path
        with report_damage(path, _TEXT):
            self._text = read_text(path)
            if self._text.lstrip()[:1] in ("{", "["):
                self._text, self.kinds = _csv_of_json(self._text)
                self._before = -1
            first_line = self._text.lstrip().partition("\n")[0]
            self._delimiter = max(",;\t", key=first_line.count)
            head = [row for _, row in islice(self._rows(), 2)] or [[""]]
        names = [name.strip() for name in head[0]]
        numbered = names == [*map(str, range(len(names)))]
        content = ""
        if len(names) < 2 and not names[0].isidentifier():
            content = "other text"
            remedy = "Name another file."
        elif all(map(_NUMBER.fullmatch, names)) and not numbered:
            content = "numbers in line 1"
            remedy = "Name the columns there."
        elif len(head) < 2:
            content = "0 rows"
            remedy = "Add rows."
        if content:
            raise self.error(f"expected {_TEXT}; found {content}.", remedy)
        super().__init__(path, names, self._parse)

    def _parse(self, scores: Sequence[str], others: Sequence[str]) -> Arrays:
        """Scores as numbers, NaN where there are none; other columns as text."""
        kinds = {name: "f8" if name in scores else "O" for name in (*others, *scores)}
        cells = np.dtype(
            [(str(k), kinds.get(name, "U1")) for k, name in enumerate(self.names)]
        )
        text = io.StringIO(self._text.lstrip("\r\n"))
        form: dict[str, Any] = {
            "delimiter": self._delimiter,
            "comments": None,
            "quotechar": '"',
        }
        try:
            table: AnyArray = np.loadtxt(text, cells, **form, skiprows=1, ndmin=1)
        except ValueError:  # percentages, decimal commas, missing values, and errors
            table = np.array(self._parse_rows({*scores}), cells)
        columns = {name: table[str(self.names.index(name))] for name in kinds}
        return columns | {
            name: columns[name].astype(np.str_) for name in kinds if name not in scores
        }

    def _parse_rows(self, scores: set[str]) -> list[tuple[Any, ...]]:
        """The cells of each row, those of scores as numbers."""
        rows = list[tuple[Any, ...]]()
        units = dict[str, float]()
        for line, row in self._checked_rows():
            cells: list[str | float] = [*row]
            for k, name in enumerate(self.names):
                if name in scores:
                    cells[k], unit = self._number(row[k], line, name)
                    if unit and units.setdefault(name, unit) != unit:
                        raise self.error(
                            f"expected a sign % in all cells of `{name}` or in none; "
                            f"found {row[k]!r} in line {line}.",
                            "Write all of them in the same way.",
                        )
            rows.append(tuple(cells))
        return rows

    def place(self, row: int) -> str:
        """Where an editor shows a row."""
        return f"line {next(islice(self._checked_rows(), row, None))[0]}"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Each row that is not blank, after the number of its first line in the
        file.
        """
        # A cell may be as long as the text; the limit of the module can only rise.
        csv.field_size_limit(max(csv.field_size_limit(), len(self._text)))
        reader = csv.reader(
            io.StringIO(self._text, newline=""), delimiter=self._delimiter
        )
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
                    f"expected {len(self.names)} cells in a row, as in the first; "
                    f"found {len(row)} in line {line}.",
                    "Complete or drop the row, and name every column. Between commas, "
                    "numbers have a decimal point.",
                )
            yield line, row

    def _number(self, cell: str, line: int, name: str) -> tuple[float, float]:
        """A cell as a number and its unit; a percentage as a fraction.

        NaN and 0 if the cell says that no number is known.
        """
        text = cell.strip()
        if text.lower() in MISSING:
            return np.nan, 0.0
        unit = 100.0 if text.endswith("%") else 1.0
        text = text.removesuffix("%").rstrip()
        if self._delimiter != "," and "." not in text:
            text = text.replace(",", ".")
        number = parse_number(text)
        if number is not None and (unit == 1.0 or not _LOGIT_COLUMN.match(name)):
            return number / unit, unit
        remedy = "Write a number there, or drop the row or column."
        if re.match(r"\s*[-+]?\d+,\d+", cell):
            remedy = "Write a decimal point, or put semicolons between the columns."
        raise self.error(
            f"expected a number in line {line}, column `{name}`; found {cell!r}.",
            remedy,
        )


def json_records(text: str) -> list[Any]:
    """The values of a JSON list, or of JSON lines; one alone is a list too."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        values = _json_lines(text, error)
    return values if isinstance(values, list) else [values]


def _json_lines(text: str, of_whole: json.JSONDecodeError) -> list[Any]:
    """The value of each line; `of_whole` is raised where not even the first has one."""
    values = []
    # Not `splitlines`: texts hold other separators of lines, such as U+2028.
    for number, line in enumerate(re.split(r"\r\n|[\r\n]", text), 1):
        try:
            if line.strip():
                values.append(json.loads(line))
        except json.JSONDecodeError as error:
            if not values:
                raise of_whole from None
            place = f"line {number}, column {error.colno}"
            raise ValueError(f"{error.msg} in {place}") from error
    return values


def _csv_of_json(text: str) -> tuple[str, dict[str, np.dtype[Any]]]:
    """JSON objects as a table with commas, a line each; lists of scores as a column
    each. And the types of the columns that have a number, or a truth value, in each row.
    """
    rows = []
    for row, record in enumerate(json_records(text)):
        if not isinstance(record, dict):
            raise ValueError(
                f"entry {row} is no JSON object but {json.dumps(record)[:40]}"
            )
        cells: dict[str, Any] = {}
        for name, value in record.items():
            kind = _LISTS.get(name.strip().lower())
            if isinstance(value, list) and kind:
                if any(isinstance(item, (list, dict)) for item in value):
                    raise ValueError(
                        f"`{name}` of entry {row} is not one list of numbers"
                    )
                cells |= {f"{kind}_{k}": item for k, item in enumerate(value)}
            elif not isinstance(value, (list, dict)):  # on one line
                cells[name] = (
                    " ".join(value.split()) if isinstance(value, str) else value
                )
        rows.append(cells)
    stream = io.StringIO(newline="")
    names = [*dict.fromkeys(name for row in rows for name in row)]
    table = csv.DictWriter(stream, names, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return stream.getvalue(), _json_kinds(names, rows)


def _json_kinds(
    names: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> dict[str, np.dtype[Any]]:
    """The types of columns whose cells are all of one, other than text."""
    kinds = {}
    for name in names:
        types = {type(row.get(name)) for row in rows}
        if types and (types <= {int, float} or types == {bool}):
            column = np.array([row[name] for row in rows])
            if column.dtype.kind in "ifb":  # no whole numbers of more than 64 bits
                kinds[name.strip()] = column.dtype
    return kinds


def list_files(path: Path) -> list[Path]:
    """The Parquet files of a folder and its subfolders, those that match a pattern,
    or a file.
    """
    if path.is_file():
        return [path]
    if is_pattern(path):
        base = Path(path.anchor)
        files = sorted(base.glob(str(path.relative_to(base))))
    else:
        parts_of = {
            file: file.relative_to(path).parts for file in path.rglob("*.parquet")
        }
        files = sorted(
            file for file in parts_of if not any(p[0] in "._" for p in parts_of[file])
        )
    if not files:
        raise DataFileError(
            path, "expected .parquet files; found none.", "Check the name."
        )
    return files


def is_pattern(path: Path) -> bool:
    """Whether a path is meant to match several files."""
    return bool(_WILD & set(str(path))) and not path.exists()


def open_parquet(files: Sequence[Path], **options: Any) -> Any:
    """Files as one pyarrow Dataset."""
    arrow = import_arrow("pyarrow.dataset")
    with report_damage(files[0], PARQUET):
        data = arrow.dataset([str(file) for file in files], format="parquet", **options)
        _ = data.schema.names  # damaged ones cannot be decoded
    return data


def arrow_table(path: Path, data: Any, first_row: int = 0) -> Table:
    """Columns of a pyarrow Dataset or Table, before which the file has `first_row`
    rows.
    """

    def load(scores: Sequence[str], others: Sequence[str]) -> Arrays:
        names = [*dict.fromkeys((*scores, *others))]
        with report_damage(path, PARQUET):
            scan = hasattr(data, "to_table")
            table = (
                data.to_table(names, **scan_options(data))
                if scan
                else data.select(names)
            )
        columns = {name: to_column(table.column(name)) for name in others}
        return columns | {name: to_scores(path, table, [name]) for name in scores}

    columns_table = Table(path, data.schema.names, load)
    columns_table.first_row = first_row
    columns_table.numbers = [
        field.name for field in data.schema if _NUMERIC.match(str(field.type))
    ]
    return columns_table


def scan_options(data: Any) -> dict[str, Any]:
    """Options of a scan that reads little ahead and compares checksums."""
    arrow = import_arrow("pyarrow.dataset")
    options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(getattr(data, "format", None), arrow.ParquetFileFormat):
        checks = {"pre_buffer": False, "page_checksum_verification": True}
        options["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(**checks)
    return options


def to_scores(path: Path, table: Any, names: Sequence[str]) -> AnyArray:
    """Scores (n, classes) from a column per class or a column of lists; nulls are
    NaN.
    """
    columns = [table.column(name) for name in names]
    if len(columns) > 1 or "list" not in str(columns[0].type):
        arrays = [np.asarray(column.to_numpy()) for column in columns]
        return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)
    rows = columns[0].combine_chunks()
    lengths = set(rows.value_lengths().to_pylist())
    if len(lengths) > 1 or lengths & {None, 0}:
        raise DataFileError(
            path,
            f"expected as many scores in every row; found {sorted(map(str, lengths))}.",
            "Fix or drop these rows.",
        )
    values = np.asarray(rows.flatten().to_numpy(zero_copy_only=False))
    return values.reshape(len(rows), lengths.pop() if lengths else 0)


def write_table(path: str | os.PathLike[str], columns: dict[str, AnyArray]) -> int:
    """Write columns (n,) as .csv, .csv.gz, .parquet, .jsonl or .npz, by the name of the
    file.

    In a .jsonl each row is an object, with null for NaN and what is missing.
    In a .csv, text that a spreadsheet would take for a formula, as it begins with one
    of `=+-@` and is no number, gets a `'` before it; the number of such cells is
    returned.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_table(f"{folder}/new.csv", {"note": np.array(["=1 + 1", "b"])})
    1
    """
    name = os.fspath(path)
    marked = 0

    def cells(values: Iterable[Any]) -> Iterator[Any]:
        nonlocal marked
        for value in values:
            runs = isinstance(value, str) and _FORMULA.match(value) is not None
            marked += runs
            yield f"'{value}" if runs else "" if value != value else value  # NaN

    with replace_file(path) as stream:
        if name.endswith(".npz"):  # none holds objects; NumPy 2.1 has no `allow_pickle`
            arrays: Any = {key: _for_numpy(np.asarray(c)) for key, c in columns.items()}
            np.savez(stream, **arrays)
        elif name.endswith(".parquet"):
            lists = {
                key: c.tolist() if c.dtype.kind in "UTO" else c
                for key, c in columns.items()
            }
            table = import_arrow("pyarrow").table(lists)
            import_arrow("pyarrow.parquet").write_table(table, stream)
        elif name.endswith(".jsonl"):
            for values in zip(*(c.tolist() for c in columns.values()), strict=True):
                row = json_values(dict(zip(columns, values, strict=True)))
                line = json.dumps(row, ensure_ascii=False, allow_nan=False)
                stream.write(f"{line}\n".encode())
        else:
            text = io.StringIO(newline="")
            rows = csv.writer(text, lineterminator="\n")
            rows.writerow(cells(columns))
            rows.writerows(
                zip(*(cells(c.tolist()) for c in columns.values()), strict=True)
            )
            data = text.getvalue().encode("utf-8")
            stream.write(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    return marked


def _for_numpy(column: AnyArray) -> AnyArray:
    """Numbers as they are, whole ones with -1 where there is none; everything else
    as text.
    """
    if column.dtype.kind not in "OT":
        return column
    values = column.tolist()
    empty = "" if any(isinstance(value, str) for value in values) else -1
    filled = np.array([empty if value is None else value for value in values])
    return filled if filled.dtype.kind in "ibU" else column.astype(np.str_)


def check_output(
    path: str | os.PathLike[str], *, suffix: str | tuple[str, ...] = ""
) -> None:
    """Refuse a place that cannot be written to, before the work is done and lost."""
    path = Path(path)
    endings = suffix if isinstance(suffix, str) else " or ".join(suffix)
    folder = path.parent
    if not path.name.endswith(suffix):
        raise DataFileError(
            path, f"expected an output name that ends in {endings}.", "Rename it."
        )
    if not folder.is_dir():
        raise DataFileError(
            path, f"cannot be written: no folder {folder}.", "Make it first."
        )
    if path.exists() and not path.is_file():
        raise DataFileError(
            path, "cannot be written: it is not a file.", "Choose another name."
        )
    if not os.access(folder, os.W_OK):
        raise DataFileError(path, f"cannot be written: no right to write in {folder}.")

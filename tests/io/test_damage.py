"""Files that lie or were damaged are noticed by every reader, also when they are
read in parts.
"""

from __future__ import annotations

import errno
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hokical.calibrators import make
from hokical.io import DataFileError, read_examples
from hokical.streams import fit, open_source
from tests.conftest import synthetic_logits

X, Y = synthetic_logits(200, 3, seed=5)


def write_npz(path: Path, *, packed: bool, rows: int = 200) -> Path:
    """An archive whose members' headers announce so many rows."""
    (np.savez_compressed if packed else np.savez)(path, logits=X, labels=Y)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if packed else 0) as archive:
        for name, content in members.items():
            archive.writestr(name, content.replace(b"(200,", b"(%d," % rows))
    return path


def read_both(path: Path) -> None:
    """In memory, and in parts."""
    with pytest.raises(DataFileError, match=f"^{path}: .*damaged"):
        read_examples(path)
    with pytest.raises(DataFileError, match=f"^{path}: .*damaged"):
        fit(make("uncalibrated"), open_source(path))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rows", [300])
def test_headers_that_announce_other_sizes(
    tmp_path: Path, packed: bool, rows: int
) -> None:
    read_both(write_npz(tmp_path / "a.npz", packed=packed, rows=rows))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("place", [1000, 3000])
def test_a_flipped_byte(tmp_path: Path, packed: bool, place: int) -> None:
    content = bytearray(write_npz(tmp_path / "a.npz", packed=packed).read_bytes())
    content[place] ^= 0x40
    (tmp_path / "a.npz").write_bytes(content)
    read_both(tmp_path / "a.npz")


@pytest.mark.parametrize("rows", [100, 300])
def test_npy_files_of_another_size(tmp_path: Path, rows: int) -> None:
    np.save(tmp_path / "x_logits.npy", X)
    np.save(tmp_path / "x_labels.npy", np.resize(Y, rows))
    content = (tmp_path / "x_logits.npy").read_bytes()
    (tmp_path / "x_logits.npy").write_bytes(content.replace(b"(200,", b"(%d," % rows))
    read_both(tmp_path / "x_logits.npy")


def test_parquet_pages_with_checksums(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = arrow.table({f"logit_{k}": X[:, k] for k in range(3)} | {"label": Y})
    options = {
        "compression": "none",
        "use_dictionary": False,
        "write_page_checksum": True,
    }
    parquet.write_table(table, tmp_path / "a.parquet", **options)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[content.index(X[100, 1].tobytes())] ^= 0x40
    (tmp_path / "a.parquet").write_bytes(content)
    read_both(tmp_path / "a.parquet")


def test_parquet_lists_of_width_0(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    empty = arrow.array([[], []], arrow.list_(arrow.float64()))
    parquet.write_table(
        arrow.table({"logits": empty, "label": [0, 1]}), tmp_path / "a.parquet"
    )
    for read in (read_examples, lambda path: fit(make("temps"), path)):
        with pytest.raises(
            DataFileError, match=r"a\.parquet: .*every row; found \['0'\]"
        ):
            read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (MemoryError("Unable to allocate 8. GiB"), MemoryError),
        (OSError(errno.EMFILE, "Too many open files"), DataFileError),
    ],
)
def test_lack_of_memory_or_files_is_not_called_damage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    kind: type[Exception],
) -> None:
    path = write_npz(tmp_path / "a.npz", packed=False)

    def fail(*args: object, **options: object) -> None:
        raise raised

    monkeypatch.setattr(np, "load", fail)
    with pytest.raises(kind) as caught:
        read_examples(path)
    assert "damaged" not in str(caught.value)


def test_a_wide_header_with_a_column_twice_takes_linear_time(tmp_path: Path) -> None:
    names = [f"c{k}" for k in range(60_000)]
    (tmp_path / "a.csv").write_text(",".join([*names, names[-1]]) + "\n1\n")
    with pytest.raises(DataFileError, match="`c59999` twice"):
        read_examples(tmp_path / "a.csv")

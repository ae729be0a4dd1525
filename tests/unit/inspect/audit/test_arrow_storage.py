"""The storage of a collector: which file systems it knows, and the exit codes of their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from bkinspect.audit import arrow_storage
from bkinspect.audit.arrow_storage import ArrowStorage, collectors_storage
from bkinspect.audit.storage import LocalStorage

from bkctl.errors import BkctlError, NotFound, Refused, Unavailable, UsageError

PLACE = ArrowStorage("s3a://b/x", None, "b/x")


def test_the_storage_of_a_collector_is_a_path_or_a_file_system_that_it_knows(tmp_path: Path) -> None:
    assert collectors_storage("--to", f"file://{tmp_path}") == LocalStorage.of(tmp_path)
    for uri in ("nowhere://x/y", "s3a://b/*", "file://host/x"):
        with pytest.raises(UsageError, match=r"--to .* is not supported"):
            collectors_storage("--to", uri)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("AWS Error NO_SUCH_BUCKET during PutObject operation", NotFound),
        ("AWS Error ACCESS_DENIED during PutObject operation", Refused),
        ("AWS Error NETWORK_CONNECTION during PutObject operation", Unavailable),
    ],
)
def test_errors_of_an_object_store_have_their_exit_codes(text: str, error: type[BkctlError]) -> None:
    with pytest.raises(error, match=f"cannot write s3a://b/x: {text}"), arrow_storage._translated("write", PLACE):
        raise OSError(f"{text}\nand more")


@pytest.fixture
def storage(tmp_path: Path) -> ArrowStorage:
    """A folder by pyarrow's client of local files."""
    from pyarrow.fs import LocalFileSystem

    return ArrowStorage("mem://b/facts", LocalFileSystem(), str(tmp_path))


def test_files_below_a_folder_are_listed_by_pattern_and_with_sizes(storage: ArrowStorage) -> None:
    (storage / "a").make()
    storage.write("a/1.parquet", b"123")
    storage.write("b.txt", b"")
    assert [(item.name, item.is_dir) for item in storage.list()] == [("a", True), ("b.txt", False)]
    assert [item.name for item in storage.list("*/*.parquet")] == ["a/1.parquet"]
    assert storage.files() == {"a/1.parquet": 3, "b.txt": 0}
    assert storage.files("nothing") == {}
    assert storage.size() == 3
    storage.delete("a")
    storage.delete("never was there")
    assert not storage.exists("a/1.parquet")


def test_a_folder_knows_its_parent_and_its_location(storage: ArrowStorage, tmp_path: Path) -> None:
    inner = storage / "x"
    assert (str(inner), inner.root) == ("mem://b/facts/x", f"{tmp_path}/x")
    assert inner.parent == storage
    assert ArrowStorage("s3a://b", None, "b").parent is None


def test_reading_a_file_that_does_not_exist_names_it(storage: ArrowStorage) -> None:
    with pytest.raises(FileNotFoundError, match="cannot read mem://b/facts/none"):
        storage.open_input("none")

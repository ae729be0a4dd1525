"""Which files an audit reads again: a file is the same only if nothing of its fingerprint changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bkinspect.audit.incremental import INVENTORY, split, without, write_inventory
from bkinspect.audit.sources.directories import ScanFile, _file
from bkinspect.audit.sources.file_list import FileList
from bkinspect.audit.storage import LocalStorage, Storage
from bkinspect.source import Numbered


def scanned(path: Path) -> ScanFile:
    return _file(Numbered(1, path, ""), "b0:3181", "entry_log", False, None)


def read(path: Path, scan: LocalStorage, digests: str = "digests") -> tuple[list[ScanFile], dict[Storage, object]]:
    """What a run reads, and what it takes from an earlier scan."""
    reading = split(FileList.of([scanned(path)]), [scan], digests)
    return [*reading.fresh], {**reading.scans}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "1.log"
    path.write_bytes(bytes(2048))
    return path


@pytest.fixture
def scan(tmp_path: Path, log: Path) -> LocalStorage:
    """An earlier scan of the log."""
    scan = LocalStorage.of(tmp_path / "scan")
    scan.make()
    write_inventory(scan, FileList.of([scanned(log)]), "digests")
    return scan


def test_a_file_of_another_size_is_read_again_though_its_time_was_restored(log: Path, scan: LocalStorage) -> None:
    before, stat = scanned(log), log.stat()
    assert read(log, scan) == ([], {scan: [str(log)]})
    log.write_bytes(bytes(1024))
    os.utime(log, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = scanned(log)
    assert after.modified_ns == before.modified_ns
    assert read(log, scan) == ([after], {})


def test_a_file_is_read_again_after_another_time_or_with_other_digests(log: Path, scan: LocalStorage) -> None:
    assert read(log, scan, "other") == ([scanned(log)], {})
    os.utime(log, ns=(1, 1))
    assert read(log, scan) == ([scanned(log)], {})


def test_an_inventory_that_cannot_be_read_is_ignored(log: Path, scan: LocalStorage) -> None:
    inventory = scan.path / INVENTORY
    inventory.write_bytes(inventory.read_bytes()[:-9])
    assert read(log, scan) == ([scanned(log)], {})
    inventory.unlink()
    assert read(log, scan) == ([scanned(log)], {})


def test_stale_files_of_an_earlier_scan_are_read_again(tmp_path: Path, log: Path, scan: LocalStorage) -> None:
    other = tmp_path / "2.log"
    other.write_bytes(bytes(2048))
    both = FileList.of([scanned(log), scanned(other)])
    write_inventory(scan, both, "digests")
    reading = split(both, [scan], "digests")
    assert without(reading, {scan: []}).scans == {scan: [str(log), str(other)]}
    again = without(reading, {scan: [str(log)]})
    assert [file.file for file in again.fresh] == [str(log)]
    assert again.scans == {scan: [str(other)]}
    assert without(reading, {scan: [str(log), str(other)]}).scans == {}

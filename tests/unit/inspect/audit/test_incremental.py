"""Which files an audit reads again: a file is the same only if nothing of its fingerprint changed."""

from __future__ import annotations

import os
from pathlib import Path

from bkinspect.audit.incremental import split, write_inventory
from bkinspect.audit.sources.directories import ScanFile, _file
from bkinspect.audit.storage import LocalStorage
from bkinspect.source import Numbered


def scanned(path: Path) -> ScanFile:
    return _file(Numbered(1, path, ""), "b0:3181", "entry_log", False, None)


def test_a_file_of_another_size_is_read_again_though_its_time_was_restored(tmp_path: Path) -> None:
    log = tmp_path / "1.log"
    log.write_bytes(bytes(2048))
    before, stat = scanned(log), log.stat()
    scan = LocalStorage.of(tmp_path / "scan")
    scan.make()
    write_inventory(scan, [before], "digests")
    assert split([scanned(log)], [scan], "digests").kept == {scan: [str(log)]}
    log.write_bytes(bytes(1024))
    os.utime(log, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = scanned(log)
    assert after.modified_ns == before.modified_ns
    reading = split([after], [scan], "digests")
    assert (reading.fresh, reading.kept) == ([after], {})


def test_a_file_changed_at_another_time_or_told_other_digests_is_read_again(tmp_path: Path) -> None:
    log = tmp_path / "1.log"
    log.write_bytes(bytes(2048))
    scan = LocalStorage.of(tmp_path / "scan")
    scan.make()
    write_inventory(scan, [scanned(log)], "digests")
    assert split([scanned(log)], [scan], "other").fresh == [scanned(log)]
    os.utime(log, ns=(1, 1))
    assert split([scanned(log)], [scan], "digests").fresh == [scanned(log)]

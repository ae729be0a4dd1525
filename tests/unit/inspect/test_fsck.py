"""The check of a whole bookie: Java's directories are sound, and damage anywhere is found or does not matter."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bkinspect.data_dir import cookies, marks
from bkinspect.digests import DigestBook
from bkinspect.finding import OnError
from bkinspect.fsck import OWN_LOCK_NAME, BookieFiles, check, files_of, runs_on
from bkinspect.journal import scan
from bkinspect.ledger_index import IndexRow, entries, ledgers
from bkinspect.source import opened

from bkctl.codec.interleaved_index import index_path
from bkctl.codec.ledger_index import location_key
from bkctl.errors import BadBytes, NotFound
from bkctl.model.ledger import DigestType
from tests.golden import ALL, Golden
from tests.unit.inspect.bookie_check import CAPTURED, all_findings, book, codes

BEHIND_A_KEY = range(8, 1024)
"""In an .idx file: the key, the flag of a fence, the explicit LAC. No checksum, and no second copy of all of them."""


@pytest.mark.parametrize("name", ALL)
def test_javas_directories_are_sound(golden: Golden, name: str) -> None:
    found = list(check(files_of([golden.bookie(name)]), book(golden, name)))
    assert {f.code for f in found if f.severity == "info"} <= {"BKC005", "BKC104"}
    assert ("BKC005" in {f.code for f in found}) == name.endswith(".killed")
    rest = [f for f in found if f.severity != "info"]
    assert all(f.ledger_id is not None and f.ledger_id > CAPTURED for f in rest)
    assert {f.code for f in rest} == ({"BKC109"} if name == "bookie1" else set())


@pytest.mark.parametrize("name", ["bookie1.killed", "bookie5"])
def test_a_check_leaves_no_trace(golden: Golden, name: str, tmp_path: Path) -> None:
    folder = golden.unpack(name, tmp_path / "bookie")

    def picture() -> dict[str, tuple[int, int, int]]:
        stats = {str(path): path.stat() for path in folder.rglob("*")}
        return {path: (s.st_size, s.st_mtime_ns, s.st_ctime_ns) for path, s in stats.items()}

    before = picture()
    list(check(files_of([folder]), book(golden, name)))
    assert runs_on(files_of([folder])) is None
    assert picture() == before


def test_directories_given_one_by_one(golden: Golden) -> None:
    folder = golden.bookie("several_dirs")
    whole = files_of([folder])
    assert files_of(sorted(folder.iterdir())) == whole
    assert (len(whole.journals), len(whole.log_folders), len(whole.indexes)) == (2, 3, 3)
    assert files_of([folder / "ledgers0" / "current"]).log_folders == (folder / "ledgers0" / "current",)


def test_nothing_to_check_is_no_answer(tmp_path: Path) -> None:
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(NotFound):
            files_of([wrong])


def test_directories_that_are_not_whole(golden: Golden, folder: Path) -> None:
    (folder / "journal" / "current" / "VERSION").unlink()
    (folder / "ledgers" / "current" / "lastId").write_text("0\n")
    assert codes(golden, "bookie0", folder) == {"BKC007", "BKC008"}
    shutil.rmtree(folder / "index" / "current" / "ledgers")
    assert codes(golden, "bookie0", folder) == {"BKC007", "BKC008", "BKC302"}
    shutil.rmtree(folder / "index" / "current" / "locations")
    assert codes(golden, "bookie0", folder) == {"BKC007", "BKC008", "BKC302"}


def test_a_bookie_that_runs_is_noticed(folder: Path) -> None:
    files = files_of([folder])
    assert runs_on(files) is None
    own = folder / "ledgers" / OWN_LOCK_NAME
    with own.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert runs_on(files) == own
    assert runs_on(files) is None, "a file that nobody holds is what a bookie left"
    lock = folder / "index" / "current" / "locations" / "LOCK"
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:  # locks of a process are seen by others only
        with lock.open("r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            os.write(write_end, b"x")
            os.read(os.pipe()[0], 1)  # until it is killed
        os._exit(0)
    try:
        assert os.read(read_end, 1) == b"x"
        assert runs_on(files) == lock
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(read_end)
        os.close(write_end)


def entry_at(files: BookieFiles, row: IndexRow) -> bytes | None:
    """The bytes that a bookie gives for a row of its index."""
    for folder in files.log_folders:
        if (folder / row.log).exists():
            with opened(folder / row.log) as file:
                size = int.from_bytes(file.read(4, row.offset - 4), "big", signed=True)
                body = file.read(max(size, 0), row.offset)
            if len(body) == size and body[:16] == location_key(row.ledger_id, row.entry_id):
                return body
    return None


def meaning(folder: Path, unsealed: frozenset[int]) -> dict[object, object]:
    """All that a bookie takes from its directories: cookies, ledgers, entries, what it replays; of entries without a
    digest (those of the ledgers in unsealed) everything but the payload.

    Raises:
        BadBytes: it cannot.
    """

    def sealed(body: bytes | None) -> tuple[int, bytes] | None:
        """The size of an entry, and what of it a digest covers."""
        if body is None:
            return None
        return len(body), body[:32] if int.from_bytes(body[:8], "big") in unsealed else body

    files = files_of([folder])
    taken: dict[object, object] = {"cookies": [cookie for _, cookie in cookies(files.folders)]}
    for index in files.indexes:
        for ledger in ledgers(index):
            taken[index, ledger.ledger_id] = ledger
            for row in entries(index, ledger.ledger_id):
                taken[index, row.ledger_id, row.entry_id] = sealed(entry_at(files, row))
    start = {mark.journal_id: mark.offset for mark in marks(files.folders, lambda _: None)}
    for journal in files.journals:
        beside = {j.id for j in files.journals if j.path.parent == journal.path.parent} & start.keys()
        if beside and (journal.id or 0) < max(i for i in beside if i is not None):
            continue
        replayed = taken.setdefault(("replay", journal.path.parent), [])
        assert isinstance(replayed, list)
        try:
            rows = scan(journal, DigestBook(), on_error=OnError.STOP, report=print, start=start.get(journal.id or 0))
            with opened(journal.path) as file:
                replayed += [(row.kind, sealed(file.read(row.size, row.offset))) for row in rows]
        except BadBytes as error:
            replayed.append(type(error))
    return taken


def damages(folder: Path, count: int, seed: int) -> Iterator[tuple[Path, str, int]]:
    """Damages one file after the other, each kind of file as often, and mends it again."""
    chosen = random.Random(seed)
    by_kind: dict[str, list[Path]] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size):
        by_kind.setdefault(f"{path.parent.name}/{path.suffix or path.name}", []).append(path)
    kinds = sorted(by_kind)
    for number in range(count):
        path = chosen.choice(by_kind[kinds[number % len(kinds)]])
        whole = path.read_bytes()
        at = chosen.randrange(min(len(whole), len(whole.rstrip(b"\0")) + 64))
        how = chosen.choice(("flip", "flip", "cut", "zeros", "ones"))
        size = 1 if how == "flip" else 16
        changed = {
            "flip": bytes([whole[at] ^ 1 << chosen.randrange(8)]),
            "cut": b"",
            "zeros": bytes(size),
            "ones": b"\xff" * size,
        }[how]
        path.write_bytes(whole[:at] + changed + (b"" if how == "cut" else whole[at + size :]))
        try:
            yield path, how, at
        finally:
            path.write_bytes(whole)


@pytest.mark.parametrize(("name", "count"), [("bookie5", 24), ("bookie1.killed", 20), ("several_dirs", 12)])
def test_damage_is_found_or_does_not_matter(golden: Golden, name: str, count: int, tmp_path: Path) -> None:
    folder = golden.unpack(name, tmp_path / "bookie")
    unsealed = frozenset(e for e, row in golden.ledgers(name).items() if row.digest_type is DigestType.DUMMY)
    before = meaning(folder, unsealed)
    assert not all_findings(golden, name, folder)
    seen = 0
    for path, how, at in damages(folder, count, seed=len(name)):
        if all_findings(golden, name, folder):
            seen += 1
        elif path.suffix != ".idx" or at not in BEHIND_A_KEY:
            assert meaning(folder, unsealed) == before, f"{how} at {at} of {path}: nothing is found"
    assert seen > count / 3
    assert not all_findings(golden, name, folder)


def test_every_byte_of_an_index_file_and_of_a_mark(golden: Golden, tmp_path: Path) -> None:
    folder = golden.unpack("bookie5", tmp_path / "bookie")
    before = meaning(folder, frozenset())
    some = next(i for i in (26, 27, 29, 31) if (folder / "index/current" / index_path(i)).exists())
    places = [(folder / "index/current" / index_path(some), at) for at in (0, 3, 4, 7, 8, 1024, 1031, 1032, 1039)]
    places += [(mark, at) for mark in folder.rglob("lastMark") for at in range(16)]
    for path, at in places:
        whole = path.read_bytes()
        if at >= len(whole):
            continue
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        assert all_findings(golden, "bookie5", folder) or meaning(folder, frozenset()) == before, (path, at)
        path.write_bytes(whole)

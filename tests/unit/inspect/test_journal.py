"""Cold eyes on journals: Java's as they are, and journals that were cut, flipped and overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkinspect import journal
from bkinspect.digests import DigestBook
from bkinspect.finding import Finding, OnError
from bkinspect.journal import JournalRow
from bkinspect.source import Numbered, journals
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bkctl.codec import journal as codec
from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import encode_entry
from bkctl.errors import BadBytes, Corrupt
from bkctl.model.ledger import DigestType
from tests.golden import ALL, Golden

CRC32C = digest_for(DigestType.CRC32C)


def record(entry_id: int) -> bytes:
    payload = b"p" * 50
    return codec.encode_entry_record(encode_entry(5, entry_id, entry_id - 1, 50 * entry_id + 50, payload, CRC32C))


def sound(groups: int = 4, per_group: int = 5, zeros: int = 2000) -> bytes:
    """Groups of records, each padded, and the preallocated rest."""
    data = codec.encode_header() + codec.encode_key(5, b"k" * 20)
    for group in range(groups):
        data += b"".join(record(group * per_group + i) for i in range(per_group))
        data += codec.encode_padding(len(data))
    return data + bytes(zeros)


def saved(folder: Path, data: bytes) -> Numbered:
    path = folder / "1.txn"
    path.write_bytes(data)
    return Numbered(1, path)


def resumed(file: Numbered) -> tuple[list[JournalRow], list[Finding]]:
    found: list[Finding] = []
    return list(journal.scan(file, DigestBook(), on_error=OnError.RESUME, report=found.append)), found


def scan_whole(file: Numbered) -> BadBytes | None:
    try:
        for _ in journal.scan(file, DigestBook(), on_error=OnError.STOP, report=lambda _: None):
            pass
    except BadBytes as error:
        return error
    return None


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


@pytest.mark.parametrize("name", ALL)
def test_java_journals_are_sound(golden: Golden, name: str) -> None:
    files = journals([str(golden.bookie(name))])
    assert files
    for file in files:
        assert list(journal.verify(file, DigestBook())) == []
        assert journal.summary(file).version == (5 if name == "journal5_idx0" else 6)
        end = journal.data_end(file)
        assert journal.record_starts_at(file, end)
        assert journal.record_starts_at(file, end + 4)
        assert journal.record_starts_at(file, 512)
        assert not journal.record_starts_at(file, 513)
        assert not journal.record_starts_at(file, end + 512)


def test_cut_at_every_byte(tmp_path: Path) -> None:
    data = sound(2, 2, 0)
    whole = resumed(saved(tmp_path, data))[0]
    for cut in range(512, len(data)):
        file = saved(tmp_path, data[:cut])
        rows, found = resumed(file)
        stopped = scan_whole(file)
        assert (stopped is None) == (not found)
        assert stopped is None or (stopped.source, stopped.offset) == (found[0].file, found[0].offset)
        assert rows == whole[: len(rows)]
        assert len(rows) == sum(row.offset + row.size <= cut for row in whole)
        assert set(codes(found)) <= {"BKC202"}


@pytest.mark.parametrize("size", [1, 15, 83, 87, 0x7FFFFFFF, 0xFFFFFFFE])
def test_a_wrong_size_costs_little(tmp_path: Path, size: int) -> None:
    data = bytearray(sound())
    file = saved(tmp_path, bytes(data))
    whole, found = resumed(file)
    assert found == []
    at = whole[7].offset - 4
    data[at : at + 4] = size.to_bytes(4, "big")
    rows, found = resumed(saved(tmp_path, bytes(data)))
    assert found
    kept = {row.entry_id for row in rows if row.kind == "entry" and row.digest_ok}
    assert kept >= {row.entry_id for row in whole if row.kind == "entry"} - {whole[7].entry_id, whole[8].entry_id}


def test_zeros_in_the_middle_are_reported_and_passed(tmp_path: Path) -> None:
    data = bytearray(sound())
    data[1024:1536] = bytes(512)
    rows, found = resumed(saved(tmp_path, bytes(data)))
    assert codes(found) == ["BKC205"]
    assert [row.entry_id for row in rows if row.kind == "entry"][-1] == 19


def test_flipped_payload_and_unknown_mark(tmp_path: Path) -> None:
    data = bytearray(sound())
    data[700] ^= 1
    assert codes(list(journal.verify(saved(tmp_path, bytes(data)), DigestBook()))) == ["BKC204"]
    odd = codec.encode_entry_record((5).to_bytes(8, "big") + (-7).to_bytes(8, "big", signed=True))
    assert codes(list(journal.verify(saved(tmp_path, codec.encode_header() + odd), DigestBook()))) == ["BKC208"]


def test_an_unknown_version(tmp_path: Path) -> None:
    file = saved(tmp_path, b"BKLG\0\0\0\x07" + sound()[8:])
    assert journal.summary(file).version is None
    with pytest.raises(Corrupt, match="journal version"):
        list(journal.scan(file, DigestBook(), on_error=OnError.STOP, report=lambda _: None))
    rows, found = resumed(file)
    assert codes(found) == ["BKC201"]
    assert len(rows) == 21


def test_padding_is_shown_on_request(tmp_path: Path) -> None:
    file = saved(tmp_path, sound())
    rows = list(journal.scan(file, DigestBook(), on_error=OnError.STOP, report=lambda _: None, padding=True))
    padding = [row for row in rows if row.kind == "padding"]
    assert len(padding) == 4
    assert all((row.ledger_id, row.entry_id) == (None, None) for row in padding)
    ends = [row.offset + row.size for row in rows]
    assert [row.offset - 4 for row in rows[1:]] == ends[:-1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=6), st.integers(0, 3000))
def test_no_damage_breaks_the_reader(tmp_path: Path, changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(sound())
    for offset, value in changes:
        data[offset % len(data)] = value
    file = saved(tmp_path, bytes(data[: max(len(data) - cut, 0)]))
    resumed(file)
    list(journal.verify(file, DigestBook()))

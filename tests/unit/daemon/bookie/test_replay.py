"""Replay of journals: seals, torn tails, and damage that is not a torn tail."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from bkdaemon.bookie.replay import journal_ids, replay, trim
from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.codec import journal as codec
from bkctl.codec.data_dir import NO_MARK, LogMark
from bkctl.codec.journal import JournalRecord, encode_entry_record, encode_fence, encode_key, journal_name
from bkctl.codec.journal_seal import SEAL_SIZE, decode_seal, encode_seal, encode_sealed_header, is_sealed
from bkctl.errors import BadBytes, Corrupt
from tests.unit.daemon.bookie.world import entry, sim_disk

HERE = Path("/journal")
ID = 0x1A


class Files:
    """A journal directory in memory."""

    def __init__(self) -> None:
        self.disk = sim_disk().door(lambda: True)
        self.disk.make_dirs(HERE)

    def write(self, data: bytes, journal_id: int = ID, size: int = 0) -> None:
        file = self.disk.open(HERE / journal_name(journal_id), create=True, write=True)
        file.truncate(0)
        file.pwrite(data, 0)
        if size:
            file.truncate(size)

    def replay(self, mark: LogMark = NO_MARK, *, skip_invalid: bool = False) -> tuple[list[JournalRecord], LogMark]:
        found: list[JournalRecord] = []
        end = replay(self.disk, HERE, mark, found.append, skip_invalid=skip_invalid)
        return found, end


@pytest.fixture
def files() -> Files:
    return Files()


def record(entry_id: int, size: int = 700) -> bytes:
    return encode_entry_record(entry(5, entry_id, bytes([entry_id % 255 + 1]) * size))


def sealed(groups: list[list[bytes]]) -> tuple[bytes, list[int]]:
    """A journal of ours, and where its groups begin and the last one ends."""
    data = encode_sealed_header()
    starts = []
    for group in groups:
        starts.append(len(data))
        records = b"".join(group)
        data += records + encode_seal(len(data), records)
    return data, [*starts, len(data)]


GROUPS = [[encode_key(5, b"k" * 20), record(0), record(1)], [record(2)], [encode_fence(5), record(3), record(4)]]


def ids_of(records: list[JournalRecord]) -> list[int]:
    return [r.entry_id for r in records]


ALL_IDS = [codec.KEY_ENTRY_ID, 0, 1, 2, codec.FENCE_ENTRY_ID, 3, 4]


def test_a_sealed_journal_is_readable_as_an_ordinary_one() -> None:
    """Every reader of BookKeeper's format passes the seals over."""
    data, _ = sealed(GROUPS)
    header = codec.decode_header(data, source="j")
    assert (header.version, header.first_record_offset) == (6, 512)
    assert is_sealed(data)
    assert not is_sealed(codec.encode_header())
    assert ids_of(list(codec.records(data, 512, version=6, source="j"))) == ALL_IDS
    assert len(data) % 512 == 0


@given(st.integers(0, 5000), st.binary(max_size=3000), st.sampled_from([512, 4096]))
def test_a_seal_is_decoded_as_it_was_encoded(offset: int, records: bytes, alignment: int) -> None:
    padding = encode_seal(offset, records, alignment)
    assert (offset + len(records) + len(padding)) % alignment == 0
    seal = decode_seal(padding)
    assert seal is not None
    assert (seal.offset, seal.size) == (offset, len(records))
    assert seal.fits(records)
    assert not seal.fits(records + b"x")


@given(st.binary(max_size=200))
def test_bytes_without_a_seal_are_not_decoded_as_one(data: bytes) -> None:
    assert decode_seal(data) is None


def test_all_records_are_replayed_and_the_mark_is_their_end(files: Files) -> None:
    data, starts = sealed(GROUPS)
    files.write(data, size=16384)
    found, mark = files.replay()
    assert ids_of(found) == ALL_IDS
    assert mark == (ID, len(data))
    assert files.replay(mark) == ([], mark)
    assert ids_of(files.replay(LogMark(ID, starts[1]))[0]) == ALL_IDS[3:]


@pytest.mark.parametrize("preallocated", [False, True])
def test_a_journal_truncated_at_any_byte_has_all_earlier_groups(files: Files, preallocated: bool) -> None:
    data, starts = sealed(GROUPS)
    counts = [0, 3, 4, 7]
    for cut in range(512 if preallocated else 0, len(data), 7):  # a header is one sector: all of it, or nothing
        files.write(data[:cut], size=16384 if preallocated else 0)
        whole = max((n for n, start in enumerate(starts) if start <= cut), default=0)
        found, mark = files.replay()
        assert ids_of(found) == ALL_IDS[: counts[whole]], f"cut at {cut}"
        assert files.replay(mark)[0] == []


@settings(max_examples=100)
@given(st.data())
def test_any_sectors_of_the_last_group_may_be_lost(data: st.DataObject) -> None:
    files = Files()
    whole, starts = sealed(GROUPS)
    torn = bytearray(whole)
    sectors = range(starts[2] // 512, len(whole) // 512)
    lost = data.draw(st.sets(st.sampled_from(list(sectors)), min_size=1))
    for sector in lost:
        torn[sector * 512 : sector * 512 + 512] = bytes(512)
    files.write(bytes(torn), size=16384)
    found, mark = files.replay()
    assert ids_of(found) == ALL_IDS[:4]
    assert files.replay(mark)[0] == []


def test_damage_before_a_sealed_group_stops_the_start(files: Files) -> None:
    data, starts = sealed(GROUPS)
    files.write(data, size=16384)
    whole, _ = files.replay()
    end_of_records = starts[1] + len(GROUPS[1][0]) + 8
    for at in range(starts[1], starts[2], 9):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        files.write(bytes(damaged), size=16384)
        if end_of_records <= at < starts[2] - SEAL_SIZE:
            assert files.replay()[0] == whole, "nothing is kept in the padding before the seal"
            continue
        with pytest.raises(Corrupt) as failed:
            files.replay()
        assert failed.value.source == str(HERE / "1a.txn")
        assert failed.value.offset >= starts[1]
        assert ids_of(files.replay(skip_invalid=True)[0]) == ALL_IDS[:3]


@settings(max_examples=100)
@given(st.binary(max_size=3000))
def test_garbage_raises_bad_bytes_only(garbage: bytes) -> None:
    for head in (b"", codec.encode_header(), encode_sealed_header()):
        files = Files()
        files.write(head + garbage)
        with contextlib.suppress(BadBytes):
            files.replay()


def test_journals_of_java(files: Files) -> None:
    plain = codec.encode_header() + b"".join(GROUPS[0]) + codec.encode_padding(512 + len(b"".join(GROUPS[0])))
    files.write(plain + record(2)[:-1])
    found, _ = files.replay()
    assert ids_of(found) == ALL_IDS[:3], "a truncated record is a torn tail"
    files.write(plain + b"\xff\xff\xff\xfe" + bytes(600))
    with pytest.raises(Corrupt):
        files.replay()


def test_files_are_replayed_in_order_and_the_marked_one_must_exist(files: Files) -> None:
    for number, group in enumerate(GROUPS):
        files.write(sealed([group])[0], journal_id=ID + number)
    found, mark = files.replay()
    assert ids_of(found) == ALL_IDS
    assert mark.journal_id == ID + 2
    assert journal_ids(files.disk, HERE) == [ID, ID + 1, ID + 2]
    trim(files.disk, HERE, LogMark(ID + 2, 512), backups=1)
    assert journal_ids(files.disk, HERE) == [ID + 1, ID + 2]
    trim(files.disk, HERE, LogMark(ID + 2, 512), backups=0)
    assert ids_of(files.replay(LogMark(ID + 2, 512))[0]) == ALL_IDS[4:]
    with pytest.raises(Corrupt, match="lastMark names"):
        files.replay(LogMark(ID, 512))
    files.disk.remove(HERE / journal_name(ID + 2))
    with pytest.raises(Corrupt, match="no journal"):
        files.replay(LogMark(ID, 512))


def test_an_empty_directory_and_an_empty_file_are_replayed_as_nothing(files: Files) -> None:
    assert files.replay() == ([], NO_MARK)
    files.write(b"")
    assert files.replay() == ([], LogMark(ID, 0))

"""Cold eyes on entry logs: Java's logs as they are, and logs that were cut, flipped and overwritten."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bkinspect import entry_log
from bkinspect.digests import DigestBook
from bkinspect.entry_log import LogRow, LogState
from bkinspect.finding import Finding, OnError, Severity
from bkinspect.source import Numbered
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bkctl.codec import entry_log as codec
from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import encode_entry
from bkctl.errors import BadBytes, Corrupt, TornTail
from bkctl.model.ledger import DigestType
from tests.golden import ALL, Golden

CRC32C = digest_for(DigestType.CRC32C)


def frame(ledger_id: int, entry_id: int, payload: bytes = b"payload") -> bytes:
    entry = encode_entry(ledger_id, entry_id, entry_id - 1, (entry_id + 1) * len(payload), payload, CRC32C)
    return len(entry).to_bytes(4, "big") + entry


def closed_log(entries: int = 20, payload: bytes = b"x" * 50) -> bytes:
    """A log of two ledgers with its map."""
    frames = [frame(5 + i % 2, i // 2, payload) for i in range(entries)]
    sizes = {5: sum(map(len, frames[::2])), 6: sum(map(len, frames[1::2]))}
    body = b"".join(frames)
    return codec.encode_header(1024 + len(body), 2) + body + b"".join(codec.encode_ledgers_map(sizes))


def saved(folder: Path, data: bytes, name: str = "3.log") -> Numbered:
    path = folder / name
    path.write_bytes(data)
    return Numbered(3, path)


def resumed(log: Numbered) -> tuple[list[LogRow], list[Finding]]:
    found: list[Finding] = []
    rows = entry_log.scan(log, DigestBook(), on_error=OnError.RESUME, report=found.append)
    return [row for row in rows if row.kind == "entry"], found


def until_the_first_fault(log: Numbered) -> tuple[list[LogRow], BadBytes | None]:
    rows: list[LogRow] = []
    try:
        rows.extend(entry_log.scan(log, DigestBook(), on_error=OnError.STOP, report=lambda _: None))
    except BadBytes as error:
        return [row for row in rows if row.kind == "entry"], error
    return [row for row in rows if row.kind == "entry"], None


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def verified(log: Numbered, *, newest: bool = False) -> list[Finding]:
    return list(entry_log.verify(log, DigestBook(), newest=newest))


@pytest.mark.parametrize("name", ALL)
def test_java_logs_are_sound(golden: Golden, name: str) -> None:
    from bkinspect.source import entry_logs

    logs = entry_logs([str(golden.bookie(name))])
    assert logs
    for log in logs:
        serious = [f for f in verified(log) if f.severity is not Severity.INFO]
        # Ledgers from 900001 on are hand-made frames, some too short to be a client's entry.
        assert [f for f in serious if (f.ledger_id or 0) < 900_000] == []
        summary = entry_log.summary(log)
        assert summary.state in (LogState.CLOSED, LogState.OPEN, LogState.EMPTY)
        contents = entry_log.contents(log, serious.append)
        assert contents.counted_by == ("map" if summary.state is LogState.CLOSED else "scan")
        if summary.state is LogState.CLOSED:
            assert contents.ledger_count == summary.ledger_count


def test_a_sound_log(tmp_path: Path) -> None:
    log = saved(tmp_path, closed_log())
    assert verified(log) == []
    rows, found = resumed(log)
    assert found == []
    assert rows[3] == LogRow(6, 1, rows[3].offset, 86, 0, 100, True, "entry", str(log.path))
    contents = entry_log.contents(log, found.append)
    assert [(share.ledger_id, share.size) for share in contents.ledgers] == [(5, 900), (6, 900)]
    assert (contents.counted_by, contents.entries, contents.total_size) == ("map", None, 1800)


def test_cut_at_every_byte(tmp_path: Path) -> None:
    data = closed_log(6)
    whole = resumed(saved(tmp_path, data))[0]
    for cut in range(len(data)):
        log = saved(tmp_path, data[:cut])
        seen, fault = until_the_first_fault(log)
        assert fault is None or (fault.source == str(log.path) and fault.offset <= cut)
        assert seen == whole[: len(seen)]
        rows, found = resumed(log)
        assert rows == seen
        assert bool(found) == (fault is not None)
        verified(log)  # says something or nothing, and never fails


def test_an_active_log_cut_in_its_last_frame_is_torn(tmp_path: Path) -> None:
    log = saved(tmp_path, codec.encode_header() + frame(1, 0) + frame(1, 1)[:-3])
    with pytest.raises(TornTail) as caught:
        list(entry_log.scan(log, DigestBook(), on_error=OnError.STOP, report=lambda _: None))
    assert caught.value.offset == 1024 + len(frame(1, 0))
    rows, found = resumed(log)
    assert len(rows) == 1
    assert codes(found) == ["BKC102"]


def test_a_flipped_payload_bit_is_a_wrong_digest(tmp_path: Path) -> None:
    data = bytearray(closed_log())
    data[1024 + 5 * 90 + 60] ^= 1
    found = verified(saved(tmp_path, bytes(data)))
    assert [(f.code, f.ledger_id, f.entry_id, f.offset) for f in found] == [("BKC107", 6, 2, 1024 + 5 * 90 + 4)]


@pytest.mark.parametrize("size", [0, 1, 15, 85, 87, 0x7FFFFFFF, 0xFFFFFFFF, 0xF0F0F0F0, 200, 5000])
def test_a_wrong_size_costs_one_entry(tmp_path: Path, size: int) -> None:
    data = bytearray(closed_log())
    at = 1024 + 7 * 90
    data[at : at + 4] = size.to_bytes(4, "big")
    log = saved(tmp_path, bytes(data))
    rows, found = resumed(log)
    assert {(row.ledger_id, row.entry_id) for row in rows if row.digest_ok} == {
        (5 + i % 2, i // 2) for i in range(20) if i != 7
    }
    assert "BKC103" in codes(found)
    assert "BKC106" in codes(verified(log))
    with pytest.raises(Corrupt):
        list(entry_log.scan(log, DigestBook(), on_error=OnError.STOP, report=found.append))


@pytest.mark.parametrize("hole", [1, 50, 90, 300, 4096])
@pytest.mark.parametrize("filled", [b"\0", b"\xff", b"\xf0", b"\x01"])
def test_an_overwritten_stretch_costs_what_it_covers(tmp_path: Path, hole: int, filled: bytes) -> None:
    data = bytearray(closed_log(200))
    at = 1024 + 70 * 90
    data[at : at + hole] = filled * hole
    rows, _ = resumed(saved(tmp_path, bytes(data)))
    lost = {(5 + i % 2, i // 2) for i in range(70, 70 + (hole + 89) // 90)}
    sound = {(row.ledger_id, row.entry_id) for row in rows if row.digest_ok}
    assert sound >= {(5 + i % 2, i // 2) for i in range(200)} - lost


def test_a_damaged_header(tmp_path: Path) -> None:
    log = saved(tmp_path, b"XKLO" + closed_log()[4:])
    assert entry_log.summary(log).state is LogState.DAMAGED
    with pytest.raises(Corrupt, match="not an entry log"):
        entry_log.contents(log, lambda _: None)
    rows, found = resumed(log)
    assert len(rows) == 20
    assert codes(found) == ["BKC101"]


def test_maps_that_cannot_be_trusted(tmp_path: Path) -> None:
    data = closed_log()
    map_offset = 1024 + 20 * 90
    for offset, value in ((map_offset, 7), (map_offset + 23, 3), (19, 3)):
        wrong = bytearray(data)
        wrong[offset] = value
        log = saved(tmp_path, bytes(wrong))
        found: list[Finding] = []
        if offset != map_offset:  # a wrong size there is a fault of the frames, too
            contents = entry_log.contents(log, found.append)
            assert (contents.counted_by, contents.entries) == ("scan", 20)
            assert codes(found) == ["BKC105"]
        assert "BKC105" in codes(verified(log))
    wrong = bytearray(data)
    wrong[14] = 200  # behind the end of the file: as if the log had been cut
    log = saved(tmp_path, bytes(wrong))
    assert codes(verified(log)) == ["BKC102", "BKC105"]
    with pytest.raises(TornTail, match="end of the log"):
        entry_log.contents(log, lambda _: None)
    wrong = bytearray(data)
    wrong[map_offset + 39] ^= 1
    assert codes(verified(saved(tmp_path, bytes(wrong)))) == ["BKC106"]


def test_impossible_entries(tmp_path: Path) -> None:
    negative = (-5).to_bytes(8, "big", signed=True) * 2 + bytes(20)
    data = codec.encode_header() + len(negative).to_bytes(4, "big") + negative + frame(1, 0)
    assert codes(verified(saved(tmp_path, data), newest=True)) == ["BKC108"]
    later = encode_entry(1, 3, 3, 5, b"hello", CRC32C)  # confirmed before it was written
    data = codec.encode_header() + len(later).to_bytes(4, "big") + later
    assert codes(verified(saved(tmp_path, data), newest=True)) == ["BKC109"]


def test_leftovers_of_a_compaction(tmp_path: Path) -> None:
    log = saved(tmp_path, closed_log(), "3.log.1.compacted")
    leftover = Numbered(3, log.path, "compacted")
    assert codes(verified(leftover)) == ["BKC110"]
    assert entry_log.summary(leftover).state is LogState.COMPACTED


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=6), st.integers(0, 3000))
def test_no_damage_breaks_the_reader(tmp_path: Path, changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(closed_log(12))
    for offset, value in changes:
        data[offset % len(data)] = value
    log = saved(tmp_path, bytes(data[: max(len(data) - cut, 0)]))
    resumed(log)
    verified(log)


def test_a_file_that_java_wrote_with_a_stretch_overwritten(golden: Golden, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    shutil.copy(golden.bookie("bookie2") / "ledgers/current/0.log", path)
    log = Numbered(0, path)
    before, _ = resumed(log)
    with path.open("r+b") as file:
        file.seek(before[40].offset - 4)
        file.write(b"\xab" * 64)
    after, found = resumed(log)
    assert [(f.code, f.offset) for f in found] == [("BKC103", before[40].offset - 4)]
    assert after == before[:40] + before[41:]

"""Every file of the golden directories through the codecs, and back to the same bytes where we write the format."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path

import pytest

from bkctl.codec import data_dir, entry_log, interleaved_index, journal
from bkctl.codec.checksum import digest_for, master_key
from bkctl.codec.entry import decode_entry, decode_lac
from bkctl.codec.journal import JournalEnd, RecordKind
from tests.golden import ALL, DIGESTS, Golden, GoldenLedger, files

pytestmark = pytest.mark.parametrize("name", ALL)


def check_entry(ledgers: dict[int, GoldenLedger], body: bytes, ledger_id: int, entry_id: int) -> bool:
    """Digest, ids, length and payload of an entry of the manifest; False for ledgers that it does not know."""
    ledger = ledgers.get(ledger_id)
    if ledger is None or "sizes" not in ledger.row:
        return False
    entry = decode_entry(body, digest_for(ledger.digest_type, ledger.password), ledger_id, entry_id)
    assert entry.payload == ledger.payload(entry_id)
    assert entry.length == ledger.length(entry_id)
    assert -1 <= entry.last_confirmed < entry_id
    return True


def reencode(record: journal.JournalRecord) -> bytes:
    """The bytes of a record with its size, from what was decoded."""
    match record.kind:
        case RecordKind.ENTRY:
            return journal.encode_entry_record(record.body)
        case RecordKind.LEDGER_KEY:
            return journal.encode_key(record.ledger_id, record.body)
        case RecordKind.FENCE:
            return journal.encode_fence(record.ledger_id)
        case RecordKind.EXPLICIT_LAC:
            return journal.encode_explicit_lac(record.ledger_id, record.body)
        case RecordKind.PADDING:
            return journal.encode_padding(record.offset - 4)
    raise AssertionError(f"Java wrote a {record.kind} record")


def test_journals(golden: Golden, name: str) -> None:
    ledgers = golden.ledgers(name)
    known = 0
    for path in files(golden.bookie(name), "*.txn"):
        assert journal.journal_name(journal.parse_journal_name(path.name) or 0) == path.name
        data = path.read_bytes()
        header = journal.decode_header(data, source=path.name)
        walked = journal.records(
            data, header.first_record_offset, version=header.version, source=path.name, padding=True
        )
        written = [journal.encode_header(header.version)]
        for record in walked:
            written.append(reencode(record))
            ledger = ledgers.get(record.ledger_id)
            if record.kind is RecordKind.ENTRY:
                known += check_entry(ledgers, record.body, record.ledger_id, record.entry_id)
            elif record.kind is RecordKind.LEDGER_KEY and ledger is not None:
                assert record.body == master_key(ledger.password)
            elif record.kind is RecordKind.EXPLICIT_LAC and ledger is not None:
                digest = digest_for(ledger.digest_type, ledger.password)
                assert decode_lac(record.body, digest, record.ledger_id) < ledger.row["entries"]
        assert walked.end is JournalEnd.ZEROS
        assert walked.torn is None
        joined = b"".join(written)
        assert data[: walked.data_end] == joined
        assert not any(data[walked.data_end :])
    assert known


def test_entry_logs(golden: Golden, name: str) -> None:
    ledgers = golden.ledgers(name)
    maps = known = 0
    for path in files(golden.bookie(name), "*.log"):
        data = path.read_bytes()
        if not data:
            continue  # preallocated, never used
        header = entry_log.decode_header(data, source=path.name)
        sizes: dict[int, int] = defaultdict(int)
        walked = entry_log.records(data, source=path.name)
        for record in walked:
            if record.kind is entry_log.FrameKind.ENTRY:
                sizes[record.ledger_id] += record.size + 4
                known += check_entry(ledgers, record.body, record.ledger_id, record.entry_id)
        assert walked.torn is None
        if name == "direct_io":
            assert data[:4096] == entry_log.encode_direct_header(header.map_offset, header.ledger_count)
        else:
            assert data[:1024] == entry_log.encode_header(header.map_offset, header.ledger_count)
            assert walked.data_end == len(data)
        if header.has_map:
            maps += 1
            found = entry_log.decode_ledgers_map(data[header.map_offset :], header, source=path.name)
            assert found == sizes
            frames = b"".join(entry_log.encode_ledgers_map(found))
            assert data[header.map_offset :].rstrip(b"\xf0\0") == frames.rstrip(b"\xf0\0")
    assert known
    assert maps or name not in ("bookie0", "bookie1", "direct_io", "gc_cache_transactional")


def test_index_files(golden: Golden, name: str) -> None:
    folder = golden.bookie(name)
    ledgers = golden.ledgers(name)
    logs = {entry_log.parse_log_name(p.name): p.read_bytes() for p in files(folder, "*.log")}
    for path in files(folder, "*.idx"):
        ledger_id = interleaved_index.parse_index_name(path.name)
        assert ledger_id is not None
        assert str(path).endswith(interleaved_index.index_path(ledger_id))
        data = path.read_bytes()
        header = interleaved_index.decode_header(data[:1024], source=path.name)
        assert header.version == (0 if name == "journal5_idx0" else 1)
        if ledger_id in ledgers:
            assert header.master_key == master_key(ledgers[ledger_id].password)
        for entry_id, location in interleaved_index.slots(data[1024:]):
            log_id, position = entry_log.split_location(location)
            size, found_ledger, found_entry = struct.unpack_from(">iqq", logs[log_id], position - 4)
            assert (found_ledger, found_entry) == (ledger_id, entry_id)
            check_entry(ledgers, logs[log_id][position : position + size], ledger_id, entry_id)


def test_small_files(golden: Golden, name: str) -> None:
    folder = golden.bookie(name)
    cookies = {p.read_bytes() for p in files(folder, "VERSION")}
    assert len(cookies) == 1
    for text in cookies:
        cookie = data_dir.decode_cookie(text, source="VERSION")
        assert cookie.bookie_id.startswith("127.0.0.1:328")
        assert data_dir.encode_cookie(cookie) == text
    for path in files(folder, "lastMark*"):
        index = data_dir.parse_mark_name(path.name)
        assert index is not None
        mark = data_dir.decode_mark(path.read_bytes(), source=path.name)
        assert data_dir.encode_mark(mark) == path.read_bytes()
        journal_dir = "journal" if name != "several_dirs" else f"journal{index}"
        if mark != data_dir.NO_MARK:
            assert (folder / journal_dir / "current" / journal.journal_name(mark.journal_id)).exists()
    for path in files(folder, "lastId"):
        last = data_dir.decode_last_id(path.read_bytes(), source=path.name)
        assert data_dir.encode_last_id(last) == path.read_bytes()
        assert last == max(entry_log.parse_log_name(p.name) or 0 for p in path.parent.glob("*.log"))
    for path in files(folder, "BOOKIE_STATUS"):
        status = data_dir.decode_status(path.read_bytes(), source=path.name)
        assert data_dir.encode_status(status) == path.read_bytes()
    assert [p.name for p in files(folder, "DIRTY")] == (["DIRTY"] if name == "bookie1.killed" else [])


def test_digests_of_the_manifest_are_all_known(golden: Golden, name: str) -> None:
    assert {row["digest"] for row in golden.manifest_of(name)["ledgers"]} <= DIGESTS.keys()


def test_folder_is_unchanged(golden: Golden, name: str) -> None:
    folder = golden.bookie(name)
    assert sum(1 for p in Path(folder).rglob("*") if p.is_file()) == len(golden.bookie_row(name)["files"])

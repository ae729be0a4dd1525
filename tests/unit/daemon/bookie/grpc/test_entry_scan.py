"""The scan process beside a bookie: entries of entry logs with their digests, as encoded batches."""

from __future__ import annotations

import pickle
import struct
from io import BytesIO
from pathlib import Path

import pytest
from bkdaemon.bookie.entry_log import EntryLogs
from bkdaemon.bookie.grpc import entry_scan
from bkdaemon.bookie.grpc.entry_scan import ROW, SIZE, Logs, Part, answer, serve

from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import encode_entry
from bkctl.codec.proto import admin_pb2 as pb
from bkctl.model.ledger import DigestType
from bkctl.world import real_world

PAYLOADS = [b"p" * 10, b"", b"q" * 5_000, b"r" * 300]


def sealed(entry_id: int, type_: DigestType = DigestType.CRC32C, password: bytes = b"") -> bytes:
    payload = PAYLOADS[entry_id]
    return encode_entry(5, entry_id, entry_id - 1, len(payload), payload, digest_for(type_, password))


def logged(folder: Path, entries: list[bytes]) -> bytes:
    """Writes entries of ledger 5 into an entry log; returns their ROWs."""
    rows: list[tuple[int, int, int]] = []

    def put(key: bytes, value: bytes) -> None:
        rows.append((*struct.unpack(">qq", key), int.from_bytes(value, "big")))

    folder.mkdir(exist_ok=True)
    logs = EntryLogs(real_world().disk, folder, 1 << 20, 100)
    logs.append(5, list(enumerate(entries)), put)
    logs.sync()
    logs.close()
    return b"".join(ROW.pack(*row) for row in reversed(rows))


def batch_of(*parts: Part) -> pb.EntryBatch:
    return pb.EntryBatch.FromString(answer(list(parts), Logs()))


def column(batch: pb.EntryBatch, name: str) -> list[int]:
    return list(struct.unpack(f"<{batch.rows}q", getattr(batch, name)))


def verdicts(batch: pb.EntryBatch) -> list[int]:
    return list(struct.unpack(f"<{batch.rows}b", batch.digest_ok))


@pytest.fixture(params=[1 << 20, 64], ids=["one window", "many windows"])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes that are read of a log at once: all, or fewer than one entry."""
    monkeypatch.setattr(entry_scan, "WINDOW_BYTES", request.param)
    return int(request.param)


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize(
    ("type_", "seal", "password"),
    [
        (DigestType.CRC32C, pb.SEAL_CRC32C, b""),
        (DigestType.CRC32, pb.SEAL_CRC32, b""),
        (DigestType.HMAC, pb.SEAL_HMAC, b"pw"),
    ],
)
def test_entries_of_a_log_and_of_memory_are_returned_with_a_valid_digest(
    tmp_path: Path, type_: DigestType, seal: int, password: bytes
) -> None:
    entries = [sealed(n, type_, password) for n in range(4)]
    rows = logged(tmp_path, entries[:3])
    batch = batch_of(Part(5, seal, password, str(tmp_path), rows, (entries[3],)))
    assert (batch.rows, verdicts(batch), batch.unreadable) == (4, [1] * 4, 0)
    assert column(batch, "entry_id") == [0, 1, 2, 3]
    assert column(batch, "ledger_id") == [5] * 4
    assert column(batch, "last_confirmed") == [-1, 0, 1, 2]
    assert column(batch, "payload_size") == column(batch, "length") == [len(payload) for payload in PAYLOADS]
    assert column(batch, "size") == [len(entry) for entry in entries]


@pytest.mark.usefixtures("window")
def test_a_changed_payload_is_returned_as_bad_with_its_file_and_offset(tmp_path: Path) -> None:
    entries = [sealed(n) for n in range(3)]
    changed = entries[1][:-1] + bytes([entries[1][-1] ^ 1])
    rows = logged(tmp_path, [entries[0], changed, entries[2]])
    batch = batch_of(Part(5, pb.SEAL_CRC32C, b"", str(tmp_path), rows))
    found = dict(zip(column(batch, "entry_id"), verdicts(batch), strict=True))
    assert found == {0: 1, 1: 0, 2: 1}
    (bad,) = batch.bad
    assert column(batch, "entry_id")[bad.row] == 1
    assert Path(bad.file).read_bytes()[bad.offset : bad.offset + 16] == changed[:16]


def test_an_unknown_digest_type_is_not_reported_as_bad(tmp_path: Path) -> None:
    rows = logged(tmp_path, [sealed(0), sealed(1, DigestType.HMAC, b"pw")])
    batch = batch_of(Part(5, pb.SEAL_UNKNOWN, b"", str(tmp_path), rows))
    found = dict(zip(column(batch, "entry_id"), verdicts(batch), strict=True))
    assert (found, len(batch.bad)) == ({0: 1, 1: -1}, 0)


def test_rows_of_missing_logs_and_other_entries_are_counted_as_unreadable(tmp_path: Path) -> None:
    rows = logged(tmp_path, [sealed(0), sealed(1)])
    (_, _, location), *_ = ROW.iter_unpack(rows)
    others = ROW.pack(5, 7, location) + ROW.pack(5, 8, (99 << 32) + 1028) + ROW.pack(5, 9, location + 1)
    for seal in (pb.SEAL_CRC32C, pb.SEAL_CRC32):
        batch = batch_of(Part(5, seal, b"", str(tmp_path), others))
        assert (batch.rows, batch.unreadable) == (0, 3)


def test_an_entry_that_is_shorter_than_its_digest_is_bad() -> None:
    short = sealed(1)[:33]
    batch = batch_of(Part(5, pb.SEAL_CRC32C, b"", "", b"", (short,)))
    assert (batch.rows, verdicts(batch), column(batch, "size")) == (1, [0], [33])


def test_tasks_on_stdin_are_answered_in_order_until_its_end(tmp_path: Path) -> None:
    rows = logged(tmp_path, [sealed(0), sealed(1)])
    tasks = [[Part(5, pb.SEAL_CRC32C, b"", str(tmp_path), part)] for part in (rows[:24], rows[24:], b"")]
    replies = BytesIO()
    serve(BytesIO(b"".join(map(pickle.dumps, tasks))), replies)
    data, found = replies.getvalue(), []
    while data:
        (size,) = SIZE.unpack_from(data)
        found.append(column(pb.EntryBatch.FromString(data[4 : 4 + size]), "entry_id"))
        data = data[4 + size :]
    assert found == [[1], [0], []]

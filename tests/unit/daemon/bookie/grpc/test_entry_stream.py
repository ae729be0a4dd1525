"""ScanEntries: the entries of a bookie, from memory and from its logs, with the results of their digests."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.bookie.grpc import entry_stream
from bkdaemon.bookie.index import MemoryIndex
from google_crc32c import value

from bkctl.client.admin import BUSY
from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import encode_entry
from bkctl.codec.entry_log import log_name
from bkctl.codec.ledger_index import encode_location, location_key
from bkctl.codec.proto import admin_pb2 as pb
from bkctl.errors import ServerError
from bkctl.model.ledger import DigestType
from bkctl.model.status import Status
from bkctl.world import real_world
from tests.unit.daemon.bookie.services import admin, config_at, new_cluster, serving, until
from tests.unit.daemon.bookie.world import Calls

KEY = b"k" * 20
PAYLOAD = b"what is kept" * 50


def sealed(ledger_id: int, entry_id: int, type_: DigestType = DigestType.CRC32C, password: bytes = b"") -> bytes:
    digest = digest_for(type_, password)
    return encode_entry(ledger_id, entry_id, entry_id - 1, (entry_id + 1) * len(PAYLOAD), PAYLOAD, digest)


async def add(service: Any, *entries: bytes) -> None:
    """Adds entries, acknowledged."""
    adds = [(*struct.unpack_from(">qq", entry), KEY, entry, 0, None) for entry in entries]
    assert set(await Calls(service.bookie).add_raw(adds)) == {Status.OK}


def request(**seals: tuple[int, bytes]) -> pb.ScanEntriesRequest:
    """A request for ledgers, l5=(kind, password)."""
    made = pb.ScanEntriesRequest()
    for name, (seal, password) in seals.items():
        made.ledgers.add(ledger_id=int(name[1:]), seal=seal, password=password)
    return made


async def told(service: Any, asked: pb.ScanEntriesRequest) -> tuple[list[pb.EntryBatch], list[dict[str, int]]]:
    """The batches, and their rows."""
    async with admin(service) as client:
        batches = [batch async for batch in client.entries(asked, 60)]
    rows = []
    for batch in batches:
        columns = {
            name: struct.unpack(f"<{batch.rows}q", getattr(batch, name))
            for name in ("ledger_id", "entry_id", "last_confirmed", "length", "payload_size", "content_digest", "size")
        }
        columns["digest_ok"] = struct.unpack(f"<{batch.rows}b", batch.digest_ok)
        rows += [{name: column[i] for name, column in columns.items()} for i in range(batch.rows)]
    return batches, rows


def bytes_at(file: str, offset: int, size: int) -> bytes:
    return Path(file).read_bytes()[offset : offset + size]


def changed_log(directory: str, entry: bytes) -> Path:
    """The only log, after a bit of the id of an entry was changed in it."""
    (log,) = Path(directory, "current").glob("*.log")
    data = bytearray(log.read_bytes())
    data[data.index(entry) + 8] ^= 0x40
    log.write_bytes(data)
    return log


CRC32C = {"l5": (pb.SEAL_CRC32C, b"")}


async def test_entries_in_memory_and_in_logs_are_returned_once(tmp_path: Path) -> None:
    async with serving(await new_cluster(), config_at(tmp_path)) as service:
        await add(service, *(sealed(5, i) for i in range(40)))
        await service.bookie.flush()
        await add(service, *(sealed(5, i) for i in range(35, 60)))  # some of them again
        asked = request(**CRC32C)
        asked.batch_rows = 7
        batches, rows = await told(service, asked)
        assert sorted(row["entry_id"] for row in rows) == list(range(60))
        assert max(batch.rows for batch in batches) <= 7
        entry = sealed(5, 3)
        (row,) = [row for row in rows if row["entry_id"] == 3]
        content = value(entry[:32] + entry[36:]) << 32 | int.from_bytes(entry[32:36], "big")
        assert row == {
            "ledger_id": 5, "entry_id": 3, "last_confirmed": 2, "length": 4 * len(PAYLOAD), "digest_ok": 1,
            "payload_size": len(PAYLOAD), "size": len(entry),
            "content_digest": content - (1 << 64) if content >> 63 else content,
        }  # fmt: skip
        assert all(row["digest_ok"] == 1 for row in rows)


@pytest.mark.parametrize(
    ("type_", "seal", "right", "wrong"),
    [
        (DigestType.CRC32, pb.SEAL_CRC32, 1, 0),
        (DigestType.HMAC, pb.SEAL_HMAC, 1, 0),
        (DigestType.CRC32C, pb.SEAL_CRC32C, 1, 0),
        (DigestType.CRC32C, pb.SEAL_UNKNOWN, 1, -1),
        (DigestType.HMAC, pb.SEAL_UNKNOWN, -1, -1),
        (DigestType.DUMMY, pb.SEAL_DUMMY, -1, -1),
    ],
)
async def test_every_digest_is_checked_on_the_bookie(
    tmp_path: Path, type_: DigestType, seal: int, right: int, wrong: int
) -> None:
    async with serving(await new_cluster(), config_at(tmp_path)) as service:
        entry = sealed(5, 1, type_, b"secret")
        await add(service, sealed(5, 0, type_, b"secret"), entry[:-1] + bytes([entry[-1] ^ 1]))
        await service.bookie.flush()
        batches, rows = await told(service, request(l5=(seal, b"secret")))
        assert {row["entry_id"]: row["digest_ok"] for row in rows} == {0: right, 1: wrong}
        bad = [(place.row, place.file, place.offset) for batch in batches for place in batch.bad]
        assert len(bad) == (wrong == 0)
        for row, file, offset in bad:
            assert bytes_at(file, offset, 16) == entry[:16], "with file and offset"
            assert rows[row]["entry_id"] == 1


async def test_other_ledgers_are_returned_if_requested(tmp_path: Path) -> None:
    async with serving(await new_cluster(), config_at(tmp_path)) as service:
        await add(service, *(sealed(ledger_id, 0) for ledger_id in (3, 5, 8, 12)))
        assert {row["ledger_id"] for row in (await told(service, request(**CRC32C)))[1]} == {5}
        asked = request(**CRC32C)
        asked.others, asked.first_ledger, asked.last_ledger = True, 4, 10
        batches, rows = await told(service, asked)
        assert list(batches[0].others) == [8]
        assert not batches[0].garbage_is_overdue
        assert {row["ledger_id"] for row in rows} == {5, 8}
        assert (await told(service, request(l77=(pb.SEAL_CRC32C, b""))))[1] == []


async def test_an_entry_that_cannot_be_read_has_no_row(tmp_path: Path) -> None:
    async with serving(await new_cluster(), config_at(tmp_path)) as service:
        await add(service, *(sealed(5, i) for i in range(10)))
        await service.bookie.flush()
        log = changed_log(service.config.ledger_dirs[0], sealed(5, 4))
        batches, rows = await told(service, request(**CRC32C))
        assert sorted(row["entry_id"] for row in rows) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        assert sum(batch.unreadable for batch in batches) == 1
        log.unlink()  # collected under our hands
        batches, rows = await told(service, request(**CRC32C))
        assert not rows
        assert sum(batch.unreadable for batch in batches) == 10


async def test_a_call_that_is_left_makes_room_for_the_next(tmp_path: Path) -> None:
    async with serving(await new_cluster(), config_at(tmp_path)) as service:
        for ledger_id in range(entry_stream.SCANS_MAX + 20):
            await add(service, *(sealed(ledger_id, i) for i in range(50)))
        await service.bookie.flush()
        asked = pb.ScanEntriesRequest(others=True, last_ledger=1000, batch_rows=1)
        async with admin(service) as client:
            calls = [client.entries(asked, 60) for _ in range(entry_stream.SCANS_MAX)]
            for call in calls:
                await anext(call)  # the rest waits for who reads it
            async with admin(service) as other:
                with pytest.raises(ServerError) as refused:
                    await anext(other.entries(asked, 60))
                assert refused.value.status == BUSY
                for call in calls:
                    await call.aclose()  # type: ignore[attr-defined]

                async def again() -> bool:
                    try:
                        return [batch.rows async for batch in other.entries(asked, 60)][1:] != []
                    except ServerError:
                        return False

                await until(again)


def test_rows_of_an_index(tmp_path: Path) -> None:
    index = MemoryIndex(real_world().disk, tmp_path)
    batch = index.batch()
    for ledger_id, entry_id in ((4, 9), (5, 3), (5, 1), (5, 7), (6, 0)):
        batch.put(location_key(ledger_id, entry_id), encode_location(entry_id + 100))
    index.commit(batch)
    expected = b"".join(location_key(5, i) + encode_location(i + 100) for i in (3, 7))
    assert index.location_rows(5, 2, 10) == expected
    assert index.location_rows(5, 2, 1) == expected[:24]
    assert index.location_rows(7, 0, 10) == b""
    assert log_name(0) == "0.log"
    index.close()

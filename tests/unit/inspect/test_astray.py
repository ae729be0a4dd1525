"""Sizes of records that are a few bytes wrong: one finding where the size stands, and every other record is read."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from bkinspect import entry_log, journal
from bkinspect.digests import DigestBook
from bkinspect.finding import Finding
from bkinspect.source import Numbered

from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import encode_entry
from bkctl.codec.entry_log import encode_header, encode_ledgers_map
from bkctl.codec.journal import encode_header as encode_journal_header
from bkctl.model.ledger import DigestType

LEDGERS = (7, 1_300, 0x1234_5678)
ENTRIES = 40
WRONG_BY = (*range(-40, 0), *range(1, 90), 200, 255, 256, 257, 1000, 65_536)


def bodies(seed: int) -> list[bytes]:
    """Records of three ledgers in turn, with payloads of chance, of zeros and of text."""
    chance = random.Random(seed)
    digest = digest_for(DigestType.CRC32C)
    made, lengths = [], dict.fromkeys(LEDGERS, 0)
    for entry_id in range(ENTRIES):
        for ledger_id in LEDGERS:
            size = chance.choice((1, 30, 300, 700))
            payload = chance.choice((chance.randbytes(size), bytes(size), b"x" * size))
            lengths[ledger_id] += size
            made.append(encode_entry(ledger_id, entry_id, entry_id - 1, lengths[ledger_id], payload, digest))
    return made


def made(folder: Path, *, log: bool, seed: int) -> tuple[Path, list[int], list[bytes]]:
    """A log with a map, or a journal; the offset of every record, behind its size."""
    records = bodies(seed)
    name = "ledgers/current/0.log" if log else "journal/current/1.txn"
    path = folder / name
    path.parent.mkdir(parents=True)
    data = bytearray(encode_header() if log else encode_journal_header())
    offsets = []
    for body in records:
        data += struct.pack(">i", len(body))
        offsets.append(len(data))
        data += body
    if log:
        sizes = {ledger: sum(len(b) + 4 for b in records if b[:8] == ledger.to_bytes(8, "big")) for ledger in LEDGERS}
        data[:1024] = encode_header(len(data), len(LEDGERS))
        data += b"".join(encode_ledgers_map(sizes))
    else:
        data += bytes(4096)
    path.write_bytes(data)
    return path, offsets, records


def checked(path: Path) -> list[Finding]:
    """What `entrylog verify` and `journal verify` say; a map cannot fit records that are damaged."""
    log = Numbered(0, path)
    if path.suffix == ".log":
        return [one for one in entry_log.verify(log, DigestBook(), newest=False) if one.code != "BKC106"]
    return list(journal.verify(log, DigestBook()))


def scanned(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What the audit reads: records, damage."""
    from bkinspect.audit.sources.scan import DAMAGE, SCAN, ScanReader

    reader = ScanReader(SCAN, {"paths": str(folder)})
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    damage = [{**json.loads(row["note"]), "offset": row["offset"]} for row in rows if row["kind"] == DAMAGE]
    return [row for row in rows if row["kind"] == "entry"], damage


@pytest.mark.parametrize("log", [True, False], ids=["entry log", "journal"])
@pytest.mark.parametrize("seed", range(3))
def test_a_size_that_is_a_little_wrong_is_one_finding(log: bool, seed: int, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    path, offsets, records = made(tmp_path, log=log, seed=seed)
    sound = path.read_bytes()
    chance = random.Random(seed)
    assert checked(path) == []
    for wrong_by in WRONG_BY:
        at = chance.randrange(10, len(records) - 10)
        size = len(records[at]) + wrong_by
        if size < 16:
            continue
        data = bytearray(sound)
        struct.pack_into(">i", data, offsets[at] - 4, size)
        path.write_bytes(data)
        (found, *more) = checked(path)
        assert more == [], wrong_by
        assert (found.code, found.offset) == ("BKC103" if log else "BKC203", offsets[at] - 4), wrong_by
        rows, damage = scanned(tmp_path)
        assert [(row["code"], row["offset"]) for row in damage] == [(found.code, offsets[at] - 4)], wrong_by
        others = [row["offset"] for row in rows if row["digest_ok"]]
        assert others == offsets[:at] + offsets[at + 1 :], wrong_by
        assert [row["offset"] for row in rows if not row["digest_ok"]] == [offsets[at]] * (len(rows) - len(others))

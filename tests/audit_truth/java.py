"""Directories and nodes that Java made, changed from a seed: each change with the finding that must follow.

The golden bookies are unpacked and read once; a cell is one entry of a closed ledger with all of its copies, far
enough from other cells of its ledger that two faults never meet. What a fault changes is bytes of files, rows of an
index, or nodes of the export; what it returns is the key of the one finding more.
"""

from __future__ import annotations

import base64
import json
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bkinspect.audit.schemas import BOOKIE_LEDGERS, INDEX
from bkinspect.audit.sources.index import IndexReader
from bkinspect.audit.sources.scan import SCAN, ScanReader
from rocksdict import Options, Rdict

from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import decode_entry, encode_entry
from bkctl.codec.entry_log import decode_header
from bkctl.codec.interleaved_index import index_path
from bkctl.codec.ledger_index import location_key
from bkctl.codec.ledger_metadata import decode_metadata, encode_metadata
from bkctl.meta.paths import parse_ledger_path
from bkctl.model.ledger import DigestType, LedgerMetadata, LedgerState
from tests.audit_truth.faults import Expected
from tests.golden import BOOKIES, FOLDER, Golden

NEIGHBOUR, FAR = 64, 1500
"""Bytes between two faults in a file: of bytes inside records, and of what leads a reader astray."""
CELL_DISTANCE = 3
"""Entries between two cells of a ledger: neighbours are compared with each other."""
SMALL_LEDGER_CELLS = 20
"""What a fault of a whole ledger may use up."""
CHECKED = (DigestType.CRC32, DigestType.CRC32C, DigestType.HMAC)
Row = dict[str, Any]


@dataclass
class Copy:
    """One copy that a bookie serves: where its record is, and what says so."""

    bookie: str
    file: str
    offset: int
    size: int
    index: str

    def read(self) -> bytes:
        """The record."""
        with Path(self.file).open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)

    def write(self, data: bytes, at: int = 0) -> None:
        """Changes its bytes from `at` on, which counts from the entry and may be negative."""
        with Path(self.file).open("r+b") as file:
            file.seek(self.offset + at)
            file.write(data)


class Cell(NamedTuple):
    """An entry to break."""

    ledger_id: int
    entry_id: int
    metadata: LedgerMetadata
    copies: list[Copy]

    def sealed(self, body: bytes, **other: int) -> bytes:
        """The entry as it is, but for what is given (last_confirmed, length), or with its payload turned around."""
        metadata = self.metadata
        assert metadata.digest_type is not None
        digest = digest_for(metadata.digest_type, metadata.password or b"")
        entry = decode_entry(body, digest, self.ledger_id, self.entry_id)
        values = {"last_confirmed": entry.last_confirmed, "length": entry.length, **other}
        payload = bytes(entry.payload) if other else bytes(byte ^ 0x55 for byte in bytes(entry.payload))
        return encode_entry(self.ledger_id, self.entry_id, values["last_confirmed"], values["length"], payload, digest)


class Java:
    """The golden cluster in a folder of its own."""

    def __init__(self, golden: Golden, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.nodes: dict[str, Row] = {}
        for line in (FOLDER / "zk_tree.json").read_text().splitlines():
            if '"path"' in line:
                row = json.loads(line.strip().rstrip(","))
                self.nodes[row["path"]] = row
        for name in BOOKIES:
            if not name.endswith(".killed"):
                golden.unpack(name, folder / name)
        self._rows = list(_rows(ScanReader(SCAN, {"paths": str(folder)})))
        self.logs: dict[str, list[str]] = {}
        for row in self._rows:
            if row["kind"] == "_file" and row["source"] == "entry_log" and row["size"]:
                self.logs.setdefault(row["bookie_id"], []).append(row["file"])
        self._touched: dict[str, list[tuple[int, int]]] = {}
        self.row: Row = {}
        self.records: dict[tuple[int, int], list[Copy]] = {}
        for row in self._rows:
            if row["kind"] == "entry":
                self.records.setdefault((row["ledger_id"], row["entry_id"]), []).append(_copy(row))
        self.copies = self._served()
        self.paths = {
            ledger_id: path for path in self.nodes if (ledger_id := parse_ledger_path("/ledgers", path)) is not None
        }
        self._free = self._cells()
        self._journal = [row for row in self._rows if row["source"] == "journal" and row["kind"] == "entry"]
        self.random.shuffle(self._journal)
        self.untouched = [ledger_id for ledger_id in self.paths if self.metadata(ledger_id).closed]

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        """What the ledger's node says now."""
        path = self.paths[ledger_id]
        return decode_metadata(base64.b64decode(self.nodes[path]["data"]), source=path)

    def set_node(self, ledger_id: int, data: bytes) -> None:
        """Replaces the data of a ledger's node."""
        self.nodes[self.paths[ledger_id]]["data"] = base64.b64encode(data).decode()

    def _served(self) -> dict[tuple[int, int], list[Copy]]:
        records = {(r["file"], r["offset"]): r for r in self._rows if r["kind"] == "entry"}
        found: dict[tuple[int, int], list[Copy]] = {}
        for row in _rows(IndexReader(INDEX, {"paths": str(self.folder)})):
            record = records[row["file"], row["offset"]]
            copy = Copy(row["bookie_id"], row["file"], row["offset"], record["size"], row["index"])
            found.setdefault((row["ledger_id"], row["entry_id"]), []).append(copy)
        return found

    def _cells(self) -> list[Cell]:
        cells = []
        for ledger_id in self.paths:
            metadata = self.metadata(ledger_id)
            if not metadata.closed or metadata.digest_type is None:
                continue
            for entry_id in range(1, metadata.last_entry_id - 1, CELL_DISTANCE):
                copies = self.copies.get((ledger_id, entry_id), [])
                if len(copies) == metadata.write_quorum_size and all(copy.size < 100_000 for copy in copies):
                    cells.append(Cell(ledger_id, entry_id, metadata, copies))
        self.random.shuffle(cells)
        return cells

    def cell(self, fits: Callable[[Cell], bool] = lambda _: True, *, apart: int = NEIGHBOUR) -> tuple[Cell, Copy]:
        """A cell that no fault has had, and one of its copies; apart: bytes to any other fault in its files."""
        found = next(cell for cell in self._free if fits(cell) and all(self._alone(c, apart) for c in cell.copies))
        self._free.remove(found)
        for copy in found.copies:
            self._touch(copy, apart)
        if found.ledger_id in self.untouched:
            self.untouched.remove(found.ledger_id)
        return found, self.random.choice(found.copies)

    def whole_ledger(self) -> int:
        """A closed ledger with entries for a fault of its node; its cells are used up with it."""
        sizes = Counter(cell.ledger_id for cell in self._free)
        cell, _ = self.cell(
            lambda cell: cell.ledger_id in self.untouched and sizes[cell.ledger_id] < SMALL_LEDGER_CELLS
        )
        self._free = [one for one in self._free if one.ledger_id != cell.ledger_id]
        return cell.ledger_id

    def reserve(self, file: str) -> None:
        """Keeps cells out of a file."""
        self._touched[file] = [(-(1 << 62), 1 << 62)]

    def _alone(self, copy: Copy, apart: int) -> bool:
        start, end = copy.offset - apart, copy.offset + copy.size + apart
        return all(
            end < other_start or other_end < start for other_start, other_end in self._touched.get(copy.file, ())
        )

    def _touch(self, copy: Copy, apart: int) -> None:
        self._touched.setdefault(copy.file, []).append((copy.offset - apart, copy.offset + copy.size + apart))

    def journal_record(self, fits: Callable[[Row], bool] = lambda _: True, *, apart: int = NEIGHBOUR) -> Copy:
        """An entry in a journal that no fault is near."""
        for row in self._journal:
            copy = _copy(row)
            if fits(row) and self._alone(copy, apart):
                self._touch(copy, apart)
                self.row = row
                return copy
        raise StopIteration

    def write(self) -> Path:
        """Writes the export of the nodes."""
        export = self.folder.parent / f"{self.folder.name}.jsonl"
        export.write_text("".join(json.dumps(row) + "\n" for row in self.nodes.values()))
        return export


def _rows(reader: Any) -> Iterator[Row]:
    for part in reader.partitions():
        for batch in reader.read(part):
            yield from batch.to_pylist()


Fault = Callable[[Java], Expected]


def _checked(cell: Cell) -> bool:
    return cell.metadata.digest_type in CHECKED


def _crc32c(cell: Cell) -> bool:
    return cell.metadata.digest_type is DigestType.CRC32C


def payload_bit(java: Java) -> Expected:
    """A bit of a payload turned."""
    cell, copy = java.cell(_checked)
    at = copy.size - 1 - java.random.randrange(10)
    copy.write(bytes((copy.read()[at] ^ 1 << java.random.randrange(8),)), at)
    return Expected("BKC107", cell.ledger_id, cell.entry_id, copy.bookie, copy.file, copy.offset)


def header_bit(java: Java) -> Expected:
    """A bit in last confirmed, length or digest turned."""
    cell, copy = java.cell(_crc32c)
    at = java.random.randrange(16, 36)
    copy.write(bytes((copy.read()[at] ^ 1 << java.random.randrange(8),)), at)
    return Expected("BKC107", cell.ledger_id, cell.entry_id, copy.bookie, copy.file, copy.offset)


def entry_id_bit(java: Java) -> Expected:
    """The record says that it is another entry."""
    cell, copy = java.cell(_crc32c)
    copy.write(bytes((copy.read()[13] ^ 1,)), 13)
    return Expected("BKC107", cell.ledger_id, cell.entry_id + (1 << 16), copy.bookie, copy.file, copy.offset)


def negative_ids(java: Java) -> Expected:
    """The record has ids that nothing has."""
    _, copy = java.cell(apart=FAR)
    copy.write(b"\x90")
    return Expected("BKC108", None, None, copy.bookie, copy.file, copy.offset)


def bad_size(java: Java) -> Expected:
    """The size in front of the record is impossible."""
    cell, copy = java.cell(_crc32c, apart=FAR)
    copy.write(struct.pack(">i", java.random.choice((-5, 1 << 30))), -4)
    return Expected("BKC103", cell.ledger_id, cell.entry_id, copy.bookie, copy.file, copy.offset - 4)


def size_astray(java: Java) -> Expected:
    """The size in front of the record is a little too long or too short: it ends inside another one."""
    cell, copy = java.cell(_crc32c, apart=FAR)
    copy.write(struct.pack(">i", copy.size + java.random.choice((-3, 2, 5, 9, 11, 17, 33))), -4)
    return Expected("BKC103", cell.ledger_id, cell.entry_id, copy.bookie, copy.file, copy.offset - 4)


def other_payload(java: Java) -> Expected:
    """One copy of three has another payload, sealed well."""
    cell, copy = java.cell(lambda cell: _checked(cell) and len(cell.copies) > 2)
    copy.write(cell.sealed(copy.read()))
    return Expected("BKC404", cell.ledger_id, cell.entry_id, copy.bookie, copy.file, copy.offset)


def tied_payload(java: Java) -> Expected:
    """One copy of two has another payload, sealed well: nobody can say which is right."""
    cell, copy = java.cell(lambda cell: len(cell.copies) == 2)
    copy.write(cell.sealed(copy.read()))
    return Expected("BKC404", cell.ledger_id, cell.entry_id)


def wrong_length(java: Java) -> Expected:
    """All copies say the same wrong length, those in journals too."""
    cell, _ = java.cell(_checked)
    for copy in java.records[cell.ledger_id, cell.entry_id]:
        body = copy.read()
        length = int.from_bytes(body[24:32], "big") + 7
        copy.write(cell.sealed(body, length=length))
    return Expected("BKC431", cell.ledger_id, cell.entry_id)


def absurd_confirmed(java: Java) -> Expected:
    """A copy says, sealed well, that entries behind it were confirmed."""
    cell, copy = java.cell(_checked)
    copy.write(cell.sealed(copy.read(), last_confirmed=cell.entry_id + 5))
    return Expected("BKC109", cell.ledger_id, cell.entry_id, copy.bookie, copy.file, copy.offset)


def index_astray(java: Java) -> Expected:
    """The index points to where the entry is not."""
    cell, copy = java.cell()
    _point(copy, cell, copy.offset + 3)
    return Expected("BKC351", cell.ledger_id, cell.entry_id, copy.bookie, copy.file, copy.offset + 3)


def index_row_lost(java: Java) -> Expected:
    """The index has no row for an entry that is in a log."""
    cell, copy = java.cell()
    _point(copy, cell, None)
    return Expected("BKC353", cell.ledger_id, cell.entry_id, copy.bookie, copy.file, copy.offset)


def _point(copy: Copy, cell: Cell, offset: int | None) -> None:
    """Changes or removes the row of the index, be it a database of Java's or an .idx file."""
    log_id = int(Path(copy.file).stem, 16)
    place = None if offset is None else (log_id << 32 | offset).to_bytes(8, "big")
    if copy.index.endswith(".idx"):
        assert copy.index.endswith(index_path(cell.ledger_id))
        with Path(copy.index).open("r+b") as file:
            file.seek(1024 + 8 * cell.entry_id)
            file.write(place or bytes(8))
        return
    database = Rdict(copy.index, Options(raw_mode=True))
    key = location_key(cell.ledger_id, cell.entry_id)
    assert key in database
    if place is None:
        del database[key]
    else:
        database[key] = place
    database.close()


def copy_lost(java: Java) -> Expected:
    """A bookie lost its row of the index, and its record became one of a ledger that nobody knows."""
    unmapped = {file for files in java.logs.values() for file in files if not _has_map(file)}
    cell, copy = java.cell(lambda cell: all(copy.file in unmapped for copy in cell.copies))
    _point(copy, cell, None)
    copy.write((0x7777_0000 + cell.ledger_id % 1000).to_bytes(8, "big"))
    return Expected("BKC401", cell.ledger_id, cell.entry_id, copy.bookie)


def entry_lost(java: Java) -> Expected:
    """The same on all bookies of the write set."""
    unmapped = {file for files in java.logs.values() for file in files if not _has_map(file)}
    cell, _ = java.cell(lambda cell: all(copy.file in unmapped for copy in cell.copies))
    for copy in cell.copies:
        _point(copy, cell, None)
        copy.write((0x7777_0000 + cell.ledger_id % 1000).to_bytes(8, "big"))
    return Expected("BKC402", cell.ledger_id, cell.entry_id)


def _has_map(file: str) -> bool:
    with Path(file).open("rb") as log:
        return decode_header(log.read(1024), source=file).has_map


def metadata_length(java: Java) -> Expected:
    """The node has another length than the last entry."""
    ledger_id = java.whole_ledger()
    metadata = java.metadata(ledger_id)
    java.set_node(ledger_id, encode_metadata(replace(metadata, length=metadata.length + 11)))
    return Expected("BKC432", ledger_id)


def node_damaged(java: Java) -> Expected:
    """The node holds something else."""
    ledger_id = java.whole_ledger()
    java.set_node(ledger_id, b"\0" * 20)
    return Expected("BKC451", ledger_id)


def node_lost(java: Java) -> Expected:
    """The node is gone, the bookies have the ledger still."""
    ledger_id = java.whole_ledger()
    del java.nodes[java.paths[ledger_id]]
    return Expected("BKC412", ledger_id)


def left_open(java: Java) -> Expected:
    """The ledger was never closed."""
    ledger_id = java.whole_ledger()
    java.set_node(ledger_id, encode_metadata(_in_state(java.metadata(ledger_id), LedgerState.OPEN)))
    return Expected("BKC441", ledger_id)


def left_in_recovery(java: Java) -> Expected:
    """A recovery never came to its end."""
    ledger_id = java.whole_ledger()
    java.set_node(ledger_id, encode_metadata(_in_state(java.metadata(ledger_id), LedgerState.IN_RECOVERY)))
    return Expected("BKC442", ledger_id)


def _in_state(metadata: LedgerMetadata, state: LedgerState) -> LedgerMetadata:
    from bkctl.model.ids import NO_ENTRY

    return replace(metadata, state=state, length=0, last_entry_id=NO_ENTRY)


def journal_bit(java: Java) -> Expected:
    """Two bytes of an entry in a journal changed."""
    copy = java.journal_record(lambda row: row["digest_ok"] and row["size"] > 60)
    copy.write(b"\xa5\x5a", 50)
    return Expected("BKC204", java.row["ledger_id"], java.row["entry_id"], copy.bookie, copy.file, copy.offset)


def journal_size(java: Java) -> Expected:
    """The size in front of a journal's record is impossible."""
    copy = java.journal_record(apart=FAR)
    copy.write(b"\x80", -4)
    return Expected("BKC203", None, None, copy.bookie, copy.file, copy.offset - 4, copy.offset + 4)


def _copy(row: Row) -> Copy:
    return Copy(row["bookie_id"], row["file"], row["offset"], row["size"], "")


LEDGER_FAULTS: tuple[Fault, ...] = (node_damaged, node_lost, left_open, left_in_recovery, metadata_length)
ENTRY_FAULTS: tuple[Fault, ...] = (
    *LEDGER_FAULTS,
    *(bad_size, size_astray, negative_ids, journal_size),
    *(copy_lost, entry_lost, other_payload, tied_payload, wrong_length, payload_bit, header_bit, entry_id_bit),
    *(absurd_confirmed, index_astray, index_row_lost, journal_bit),
)
"""Those that need most of a ledger come first."""


def log_gone(java: Java, file: str, bookie: str) -> Expected:
    """A log was deleted."""
    Path(file).unlink()
    return Expected("BKC352", None, None, bookie, file)


def log_header(java: Java, file: str, bookie: str) -> Expected:
    """The first letters of a log are wrong."""
    with Path(file).open("r+b") as log:
        log.write(b"BKXX")
    return Expected("BKC101", None, None, bookie, file, 0)


def log_cut(java: Java, file: str, bookie: str) -> Expected:
    """A log was truncated inside a record that the index points to."""
    copy = java.random.choice([c for copies in java.copies.values() for c in copies if c.file == file and c.size > 9])
    with Path(file).open("r+b") as log:
        log.truncate(copy.offset + java.random.randrange(1, copy.size))
    return Expected("BKC102", None, None, bookie, file, copy.offset - 4, copy.offset + copy.size)


def map_value(java: Java, file: str, bookie: str) -> Expected:
    """The ledgers map gives a ledger other bytes than it has."""
    header = decode_header(Path(file).read_bytes()[:1024], source=file)
    data = bytearray(Path(file).read_bytes())
    data[header.map_offset + 32 + 7] ^= 0x10
    Path(file).write_bytes(data)
    ledger_id = int.from_bytes(data[header.map_offset + 24 : header.map_offset + 32], "big")
    return Expected("BKC106", ledger_id, None, bookie, file, header.map_offset)


def map_count(java: Java, file: str, bookie: str) -> Expected:
    """The ledgers map is not what its header says."""
    with Path(file).open("r+b") as log:
        log.seek(16)
        log.write((9999).to_bytes(4, "big"))
    return Expected("BKC105", None, None, bookie, file, 0, 1 << 40)


FileFault = Callable[[Java, str, str], Expected]
FILE_FAULTS: tuple[FileFault, ...] = (map_value, map_count, log_gone, log_header, log_cut)


def broken(java: Java, rounds: int) -> list[tuple[str, Expected]]:
    """All faults together: of whole logs, each on a bookie of its own, and of entries, nodes and records elsewhere.

    A fault of an entry comes `rounds` times, or as often as there are cells for it; one that takes a ledger, once.
    """
    places = _places(java)
    for _, file, _ in places:
        java.reserve(file)
    expected = []
    for fault in ENTRY_FAULTS:
        for _ in range(1 if fault in LEDGER_FAULTS else rounds):
            try:
                expected.append((fault.__name__, fault(java)))
            except StopIteration:
                break
    return expected + [(fault.__name__, fault(java, file, bookie)) for fault, file, bookie in places]


def _places(java: Java) -> list[tuple[FileFault, str, str]]:
    """A log for each fault of a log: with a map where the map is hit, else the smallest that the index points to."""
    bookies = sorted(java.logs)
    java.random.shuffle(bookies)
    served = Counter(copy.file for copies in java.copies.values() for copy in copies)
    chosen = []
    for fault in FILE_FAULTS:
        mapped = fault in (map_value, map_count)
        fitting = [
            (served[file], bookie, file)
            for bookie in bookies
            for file in java.logs[bookie]
            if served[file] > 1 and (_has_map(file) or not mapped)
        ]
        _, bookie, file = min(fitting)
        bookies.remove(bookie)
        chosen.append((fault, file, bookie))
    return chosen


def known_before(java: Java) -> set[tuple[str, int]]:
    """What the golden README says is wrong with the undamaged directories: (code, ledger) of ledgers without metadata,
    of open ones and of recoveries that never ended."""
    rows = _rows(IndexReader(BOOKIE_LEDGERS, {"paths": str(java.folder)}))
    found = {("BKC412", int(row["ledger_id"])) for row in rows if row["ledger_id"] not in java.paths}
    for ledger_id in java.paths:
        state = java.metadata(ledger_id).state
        if state is not LedgerState.CLOSED:
            found.add(("BKC441" if state is LedgerState.OPEN else "BKC442", ledger_id))
    return found

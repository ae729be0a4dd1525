"""A cluster in memory: bookies' files and the nodes of the metadata store, as bytes that faults may change.

Every ledger is a cell of its own: its copies on a bookie have their own entry log, so that a fault in one of them
cannot touch another ledger. `write` puts the files below a folder, and the nodes into an export beside them.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from rocksdict import Options, Rdict

from bkctl.codec.checksum import digest_for, master_key
from bkctl.codec.data_dir import LogMark, encode_cookie, encode_last_id, encode_mark
from bkctl.codec.entry import encode_entry
from bkctl.codec.entry_log import HEADER_SIZE, encode_header, encode_ledgers_map, encode_map_fields, log_name
from bkctl.codec.interleaved_index import index_path
from bkctl.codec.journal import encode_entry_record, encode_key, encode_padding, journal_name
from bkctl.codec.journal import encode_header as encode_journal_header
from bkctl.codec.layout import LedgerManager
from bkctl.codec.ledger_index import LedgerData, encode_ledger_data, ledger_key, location_key
from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.codec.managed_ledger import LedgerInfo, ManagedLedgerInfo, encode_ledger_info
from bkctl.meta.paths import ledger_path
from bkctl.model.bookie import Cookie
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata, LedgerState
from bkctl.model.placement import write_set

DAY_MS = 86_400_000
AS_OF_MS = 1_795_000_000_000
CREATED_MS = AS_OF_MS - DAY_MS
ROOT = "/ledgers"
RACKS = ("/eu/a", "/us/a", "/eu/b", "/us/b", "/eu/a", "/us/a", "/eu/b", "/us/b")
BOOKIES = tuple(BookieId(f"b{n}:3181") for n in range(len(RACKS)))
RACK_OF = dict(zip(BOOKIES, RACKS, strict=True))
INTERLEAVED = frozenset(BOOKIES[6:])
SHAPES = ((3, 3, 2), (3, 2, 2), (4, 2, 2), (2, 2, 1), (4, 3, 2), (1, 1, 1))
DIGESTS = (DigestType.CRC32C, DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC, DigestType.DUMMY)
PREALLOCATED = 4096


@dataclass
class Ledger:
    """A ledger and what its writer sealed. topic is the name in its node's path."""

    id: int
    metadata: LedgerMetadata
    entries: list[bytes]
    payloads: list[bytes]
    topic: str

    @property
    def path(self) -> str:
        """Its node."""
        return ledger_path(ROOT, LedgerManager.HIERARCHICAL, self.id)

    @property
    def digest_size(self) -> int:
        """Bytes of the digest in each entry."""
        metadata = self.metadata
        assert metadata.digest_type is not None
        return digest_for(metadata.digest_type, metadata.password or b"").size

    def sealed(self, entry_id: int, payload: bytes | None = None, **other: int) -> bytes:
        """The entry as its writer sealed it, but for what is given: payload, last_confirmed, length."""
        metadata = self.metadata
        assert metadata.digest_type is not None
        length = sum(map(len, self.payloads[: entry_id + 1]))
        values = {"last_confirmed": lac_of(entry_id), "length": length, **other}
        digest = digest_for(metadata.digest_type, metadata.password or b"")
        body = self.payloads[entry_id] if payload is None else payload
        return encode_entry(self.id, entry_id, values["last_confirmed"], values["length"], body, digest)

    def holders(self, entry_id: int) -> list[BookieId]:
        """The bookies of an entry's write set."""
        ensemble = self.metadata.ensemble_of(entry_id).bookies
        shape = self.metadata.ensemble_size, self.metadata.write_quorum_size
        return [ensemble[i] for i in write_set(entry_id, *shape)]

    def held(self, bookie: BookieId) -> list[int]:
        """The entries that a bookie should have."""
        return [e for e in range(len(self.entries)) if bookie in self.holders(e)]

    @property
    def bookies(self) -> list[BookieId]:
        """All that hold anything, in order."""
        return sorted({b for e in range(len(self.entries)) for b in self.holders(e)})


def lac_of(entry_id: int) -> int:
    """A writer with three adds in flight."""
    return max(entry_id - 4, -1)


@dataclass
class Log:
    """An entry log being built: frames, and where each entry is. closed: with a ledgers map."""

    id: int
    data: bytearray = field(default_factory=lambda: bytearray(encode_header()))
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    map_offset: int = 0

    def add(self, ledger_id: int, entry_id: int, body: bytes) -> int:
        """Appends an entry; returns its offset, behind the size."""
        offset = len(self.data) + 4
        self.data += len(body).to_bytes(4, "big") + body
        self.places[ledger_id, entry_id] = offset
        self.sizes[ledger_id] = self.sizes.get(ledger_id, 0) + len(body) + 4
        return offset

    def close(self) -> None:
        """Appends the map and patches the header."""
        self.map_offset = len(self.data)
        for frame in encode_ledgers_map(self.sizes):
            self.data += frame
        self.data[8:20] = encode_map_fields(self.map_offset, len(self.sizes))


@dataclass
class Bookie:
    """One bookie: logs by id, index rows, journals by id; mark is the journal from which it would replay."""

    id: BookieId
    logs: dict[int, Log] = field(default_factory=dict)
    index: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    ledgers: dict[int, LedgerData] = field(default_factory=dict)
    journals: dict[int, bytearray] = field(default_factory=dict)
    mark: int = 0

    def store(self, ledger: Ledger, log: Log, entry_id: int, body: bytes, *, indexed: bool = True) -> int:
        """Puts an entry into a log and, if indexed, into the index; returns its offset."""
        offset = log.add(ledger.id, entry_id, body)
        self.ledgers.setdefault(ledger.id, LedgerData(master_key(ledger.metadata.password or b""), False, None))
        if indexed:
            self.index[ledger.id, entry_id] = log.id, offset
        return offset


class Cluster:
    """Bookies, nodes, and a source of chance."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bookies = {bookie: Bookie(bookie) for bookie in BOOKIES}
        self.ledgers: list[Ledger] = []
        self.topics: dict[str, list[LedgerInfo]] = {}
        self.nodes: dict[str, bytes] = {}
        self.missing_logs: set[tuple[BookieId, int]] = set()
        self.ids = count(7)
        self.log_ids = count(1)
        self.folder = Path()

    # -- making -----------------------------------------------------------------------------------------------------

    def ledger(
        self,
        shape: tuple[int, int, int] | None = None,
        *,
        digest: DigestType | None = None,
        ensemble: tuple[BookieId, ...] | None = None,
        change: bool = False,
        store: bool = True,
        state: LedgerState = LedgerState.CLOSED,
    ) -> Ledger:
        """A ledger with its copies, named by its own topic."""
        draw = self.random
        shape = shape or draw.choice(SHAPES[:-1])
        bookies = ensemble or self.ensemble(shape)
        sizes = [draw.randrange(20, 200) for _ in range(draw.randrange(8, 16))]
        payloads = [draw.randbytes(size) for size in sizes]
        ensembles = [Ensemble(EntryId(0), bookies)]
        if change:
            ensembles.append(Ensemble(EntryId(5), self.ensemble(shape)))
        ledger_id = next(self.ids)
        topic = f"t{ledger_id}"
        custom = {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": f"public/default/persistent/{topic}".encode(),
        }
        metadata = LedgerMetadata(
            *shape,
            tuple(ensembles),
            digest_type=digest or draw.choice(DIGESTS),
            password=draw.choice((b"", b"secret")),
            ctime_ms=CREATED_MS,
            custom_metadata=custom,
        )
        if state is LedgerState.CLOSED:
            metadata = metadata.closed_at(len(payloads) - 1, sum(sizes))
        else:
            metadata = replace(metadata, state=state)
        made = Ledger(ledger_id, metadata, [], payloads, topic)
        made.entries = [made.sealed(e) for e in range(len(payloads))]
        self.ledgers.append(made)
        self.topics[topic] = [LedgerInfo(ledger_id, len(payloads), sum(sizes), CREATED_MS)]
        if store:
            for bookie in made.bookies:
                log = self.log(bookie)
                for entry_id in made.held(bookie):
                    self.bookies[bookie].store(made, log, entry_id, made.entries[entry_id])
        return made

    def log(self, bookie: BookieId) -> Log:
        """A new log on a bookie."""
        log = Log(next(self.log_ids))
        self.bookies[bookie].logs[log.id] = log
        return log

    def log_of(self, bookie: BookieId, ledger: Ledger, entry_id: int) -> Log:
        """The log to which the index points."""
        return self.bookies[bookie].logs[self.bookies[bookie].index[ledger.id, entry_id][0]]

    def ensemble(self, shape: tuple[int, int, int]) -> tuple[BookieId, ...]:
        """Bookies whose write sets are on two racks and in two regions."""
        while True:
            chosen = tuple(self.random.sample(BOOKIES, shape[0]))
            sets = [[RACK_OF[chosen[i]] for i in write_set(s, *shape[:2])] for s in range(shape[0])]
            regions = {RACK_OF[b][:3] for b in chosen}
            if shape[1] == 1 or (all(len(set(s)) > 1 for s in sets) and len(regions) > 1):
                return chosen

    def journal(self, bookie: BookieId, entries: list[bytes], *, replayed: bool = False) -> tuple[int, list[int]]:
        """A journal with these entries; returns its id and the entries' offsets. Replayed ones come last."""
        mine = self.bookies[bookie]
        if replayed and not mine.mark:
            self.journal(bookie, [])
        journal_id = AS_OF_MS - 100_000 + len(mine.journals)
        data = bytearray(encode_journal_header())
        offsets = []
        for body in entries:
            ledger_id = int.from_bytes(body[:8], "big")
            data += encode_key(ledger_id, master_key(b""))
            data += encode_entry_record(body)
            offsets.append(len(data) - len(body))
            data += encode_padding(len(data))
        mine.journals[journal_id] = data + bytes(PREALLOCATED)
        if not replayed:
            mine.mark = journal_id + 1
        return journal_id, offsets

    # -- what is on disk --------------------------------------------------------------------------------------------

    def log_file(self, bookie: BookieId, log_id: int) -> str:
        """A log's path as the audit sees it."""
        return str(self.folder / str(bookie)[:2] / "ledgers/current" / log_name(log_id))

    def journal_file(self, bookie: BookieId, journal_id: int) -> str:
        """A journal's path."""
        return str(self.folder / str(bookie)[:2] / "journal/current" / journal_name(journal_id))

    def encode(self) -> None:
        """Closes logs and writes nodes; faults change bytes after this, or what they are made of before it."""
        for bookie in self.bookies.values():
            for log in bookie.logs.values():
                if not log.map_offset:
                    log.close()
            if not bookie.mark:
                self.journal(bookie.id, [])
        for ledger in self.ledgers:
            self.nodes[ledger.path] = encode_metadata(ledger.metadata)
        for topic, infos in self.topics.items():
            path = f"/managed-ledgers/public/default/persistent/{topic}"
            self.nodes[path] = encode_ledger_info(ManagedLedgerInfo(tuple(infos)))
        racks = {str(bookie): {"rack": rack, "hostname": ""} for bookie, rack in RACK_OF.items()}
        self.nodes["/bookies"] = json.dumps({"default": racks}).encode()
        for bookie_id in self.bookies:
            self.nodes[f"{ROOT}/available/{bookie_id}"] = b""

    def write(self, folder: Path) -> Path:
        """Everything below folder; returns the export of the nodes."""
        for bookie in self.bookies.values():
            cookie = encode_cookie(self._cookie(bookie.id))
            self.nodes.setdefault(f"{ROOT}/cookies/{bookie.id}", cookie)
            home = folder / str(bookie.id)[:2]
            for name in ("journal", "ledgers"):
                (home / name / "current").mkdir(parents=True)
                (home / name / "current/VERSION").write_bytes(cookie)
            self._write_bookie(bookie, home)
        export = folder / "export.jsonl"
        with export.open("w") as file:
            for path, data in sorted(self.nodes.items()):
                file.write(json.dumps(_row(path, data)) + "\n")
        return export

    def _cookie(self, bookie: BookieId) -> Cookie:
        home = f"/bk/{str(bookie)[:2]}"
        return Cookie(bookie, (f"{home}/journal",), (f"{home}/ledgers",), instance_id="truth")

    def _write_bookie(self, bookie: Bookie, home: Path) -> None:
        ledgers = home / "ledgers/current"
        for log in bookie.logs.values():
            if (bookie.id, log.id) not in self.missing_logs:
                (ledgers / log_name(log.id)).write_bytes(log.data)
        newest = max(bookie.logs, default=0) + 1
        (ledgers / log_name(newest)).write_bytes(b"")
        (ledgers / "lastId").write_bytes(encode_last_id(newest))
        (ledgers / "lastMark").write_bytes(encode_mark(LogMark(bookie.mark, 512)))
        marked = {bookie.mark: bytearray(encode_journal_header()) + bytes(PREALLOCATED)}
        for journal_id, data in {**marked, **bookie.journals}.items():
            (home / "journal/current" / journal_name(journal_id)).write_bytes(data)
        if bookie.id in INTERLEAVED:
            _write_idx(bookie, ledgers)
        else:
            _write_rocks(bookie, ledgers)


def _row(path: str, data: bytes) -> dict[str, object]:
    times = {"ctime": CREATED_MS, "mtime": CREATED_MS}
    return {"path": path, "data": base64.b64encode(data).decode(), "version": 0, "ephemeral": False, **times}


def _write_rocks(bookie: Bookie, folder: Path) -> None:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    for name, rows in (("locations", _locations(bookie)), ("ledgers", _ledgers(bookie))):
        database = Rdict(str(folder / name), options)
        for key, value in rows:
            database[key] = value
        database.close()


def _locations(bookie: Bookie) -> Iterator[tuple[bytes, bytes]]:
    for (ledger_id, entry_id), (log_id, offset) in bookie.index.items():
        yield location_key(ledger_id, entry_id), (log_id << 32 | offset).to_bytes(8, "big")


def _ledgers(bookie: Bookie) -> Iterator[tuple[bytes, bytes]]:
    for ledger_id, data in bookie.ledgers.items():
        yield ledger_key(ledger_id), encode_ledger_data(data)


def _write_idx(bookie: Bookie, folder: Path) -> None:
    slots: dict[int, dict[int, int]] = {ledger_id: {} for ledger_id in bookie.ledgers}
    for (ledger_id, entry_id), (log_id, offset) in bookie.index.items():
        slots[ledger_id][entry_id] = log_id << 32 | offset
    for ledger_id, entries in slots.items():
        data = bookie.ledgers[ledger_id]
        head = b"BKLE" + (1).to_bytes(4, "big") + len(data.master_key).to_bytes(4, "big") + data.master_key
        head += int(data.fenced).to_bytes(4, "big") + bytes(4)
        body = b"".join(entries.get(e, 0).to_bytes(8, "big") for e in range(max(entries, default=-1) + 1))
        path = folder / index_path(ledger_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(head.ljust(HEADER_SIZE, b"\0") + body)


def rebuilt(nodes: Mapping[str, bytes], path: str, **changes: object) -> LedgerMetadata:
    """A ledger's metadata with changes."""
    from bkctl.codec.ledger_metadata import decode_metadata

    return replace(decode_metadata(nodes[path], source=path), **changes)  # type: ignore[arg-type]

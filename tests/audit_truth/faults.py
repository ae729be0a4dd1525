"""Faults, each a function that makes a healthy cell in a cluster and returns what breaks it once all is encoded.

What breaks it changes bytes of files or nodes and returns the findings that must follow: one physical fault, one
finding, named with all that can be known.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from bkctl.codec.entry_log import HEADER_SIZE
from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.codec.managed_ledger import CursorState, LedgerInfo, ManagedCursorInfo, encode_cursor_info
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerState
from bkctl.model.topic import Position
from tests.audit_truth.cluster import AS_OF_MS, BOOKIES, CREATED_MS, RACK_OF, Cluster, Ledger, rebuilt


class Expected(NamedTuple):
    """The key of a finding. offsets: where reading was led astray may be told at any byte of the record."""

    code: str
    ledger_id: int | None = None
    entry_id: int | None = None
    bookie_id: str | None = None
    file: str | None = None
    offset: int | None = None
    offset_end: int | None = None


Break = Callable[[], "Expected | list[Expected]"]
"""Breaks what was made; returns the finding that must follow, or all of them."""
Fault = Callable[[Cluster], Break]


class Place(NamedTuple):
    """One copy in a log."""

    bookie: BookieId
    entry_id: int
    offset: int
    file: str
    data: bytearray
    size: int


def place(cluster: Cluster, ledger: Ledger, entry_id: int, bookie: BookieId) -> Place:
    """Where the copy of an entry is, and the bytes of its log."""
    log = cluster.log_of(bookie, ledger, entry_id)
    offset = log.places[ledger.id, entry_id]
    size = int.from_bytes(log.data[offset - 4 : offset], "big")
    return Place(bookie, entry_id, offset, cluster.log_file(bookie, log.id), log.data, size)


def any_place(cluster: Cluster, ledger: Ledger, *, inner: bool = False) -> Place:
    """A copy by chance; inner: neither the first nor the last of its log."""
    bookie = cluster.random.choice(ledger.bookies)
    held = ledger.held(bookie)
    return place(cluster, ledger, cluster.random.choice(held[1:-1] if inner else held), bookie)


def drop(cluster: Cluster, ledger: Ledger, bookie: BookieId, entry_ids: list[int]) -> None:
    """The bookie never had these entries: its log is made again without them."""
    mine = cluster.bookies[bookie]
    kept = [e for e in ledger.held(bookie) if e not in entry_ids]
    old = cluster.log_of(bookie, ledger, ledger.held(bookie)[0])
    del mine.logs[old.id]
    for entry_id in ledger.held(bookie):
        del mine.index[ledger.id, entry_id]
    if kept:
        log = cluster.log(bookie)
        for entry_id in kept:
            mine.store(ledger, log, entry_id, ledger.entries[entry_id])
    else:
        mine.ledgers.pop(ledger.id)


def reseal(at: Place, body: bytes) -> None:
    """Other bytes of the same size in the place of a copy."""
    assert len(body) == at.size
    at.data[at.offset : at.offset + at.size] = body


def copy_lost(cluster: Cluster) -> Break:
    """One copy is not there."""
    ledger = cluster.ledger()
    bookie = cluster.random.choice(ledger.bookies)
    entry_id = cluster.random.choice(ledger.held(bookie))
    drop(cluster, ledger, bookie, [entry_id])
    return lambda: Expected("BKC401", ledger.id, entry_id, bookie)


def copies_lost(cluster: Cluster) -> Break:
    """Three copies in a row of one bookie are not there."""
    ledger = cluster.ledger()
    bookie = cluster.random.choice(ledger.bookies)
    held = ledger.held(bookie)
    at = cluster.random.randrange(len(held) - 2)
    drop(cluster, ledger, bookie, held[at : at + 3])
    return lambda: Expected("BKC401", ledger.id, held[at], bookie)


def bookie_emptied(cluster: Cluster) -> Break:
    """A bookie has nothing of a ledger."""
    ledger = cluster.ledger()
    bookie = cluster.random.choice(ledger.bookies)
    held = ledger.held(bookie)
    drop(cluster, ledger, bookie, held)
    return lambda: Expected("BKC401", ledger.id, held[0], bookie)


def entries_lost(cluster: Cluster) -> Break:
    """No bookie has two entries that follow each other."""
    ledger = cluster.ledger()
    first = cluster.random.randrange(len(ledger.entries) - 1)
    for bookie in ledger.bookies:
        drop(cluster, ledger, bookie, [first, first + 1])
    return lambda: Expected("BKC402", ledger.id, first)


def end_lost(cluster: Cluster) -> Break:
    """No bookie has the last entry."""
    ledger = cluster.ledger(change=cluster.random.random() < 0.5)
    last = len(ledger.entries) - 1
    for bookie in ledger.bookies:
        drop(cluster, ledger, bookie, [last])
    return lambda: Expected("BKC402", ledger.id, last)


def ledger_lost(cluster: Cluster) -> Break:
    """No bookie has anything of a ledger."""
    ledger = cluster.ledger(store=False)
    return lambda: Expected("BKC414", ledger.id)


def payload_bit(cluster: Cluster) -> Break:
    """A bit in the payload of a copy turned."""
    ledger = cluster.ledger(digest=cluster.random.choice((DigestType.CRC32, DigestType.CRC32C, DigestType.HMAC)))

    def act() -> Expected:
        at = any_place(cluster, ledger)
        at.data[at.offset + at.size - 1 - cluster.random.randrange(10)] ^= 1 << cluster.random.randrange(8)
        return Expected("BKC107", ledger.id, at.entry_id, at.bookie, at.file, at.offset)

    return act


def header_bit(cluster: Cluster) -> Break:
    """A bit in the last confirmed, length or digest of a copy turned."""
    ledger = cluster.ledger(digest=DigestType.CRC32C)

    def act() -> Expected:
        at = any_place(cluster, ledger)
        at.data[at.offset + cluster.random.randrange(16, 36)] ^= 1 << cluster.random.randrange(8)
        return Expected("BKC107", ledger.id, at.entry_id, at.bookie, at.file, at.offset)

    return act


def entry_id_bit(cluster: Cluster) -> Break:
    """A record says that it is another entry: the digest covers the ids."""
    ledger = cluster.ledger(digest=DigestType.CRC32C)

    def act() -> Expected:
        at = any_place(cluster, ledger)
        at.data[at.offset + 13] ^= 1
        return Expected("BKC107", ledger.id, at.entry_id + (1 << 16), at.bookie, at.file, at.offset)

    return act


def ledger_id_bit(cluster: Cluster) -> Break:
    """A record says that it is of a ledger that nobody knows: the index points to nothing."""
    ledger = cluster.ledger(digest=DigestType.HMAC)

    def act() -> Expected:
        at = any_place(cluster, ledger)
        at.data[at.offset + 3] ^= 1
        return Expected("BKC351", ledger.id, at.entry_id, at.bookie, at.file, at.offset)

    return act


def other_payload(cluster: Cluster) -> Break:
    """A copy of three has another payload, sealed well."""
    ledger = cluster.ledger((3, 3, 2))

    def act() -> Expected:
        at = any_place(cluster, ledger)
        payload = bytes(byte ^ 0x55 for byte in ledger.payloads[at.entry_id])
        reseal(at, ledger.sealed(at.entry_id, payload))
        return Expected("BKC404", ledger.id, at.entry_id, at.bookie, at.file, at.offset)

    return act


def tied_payload(cluster: Cluster) -> Break:
    """A copy of two has another payload or length, sealed well: nobody can say which is right."""
    ledger = cluster.ledger((3, 2, 2))

    def act() -> Expected:
        at = any_place(cluster, ledger)
        reseal(at, ledger.sealed(at.entry_id, ledger.payloads[at.entry_id][::-1]))
        return Expected("BKC404", ledger.id, at.entry_id)

    return act


def surplus_elsewhere(cluster: Cluster) -> Break:
    """A bookie in no ensemble has two entries."""
    ledger = cluster.ledger()
    bookie = cluster.random.choice([b for b in BOOKIES if b not in ledger.bookies])
    log = cluster.log(bookie)
    entry_id = cluster.random.randrange(len(ledger.entries) - 1)
    offset = cluster.bookies[bookie].store(ledger, log, entry_id, ledger.entries[entry_id])
    cluster.bookies[bookie].store(ledger, log, entry_id + 1, ledger.entries[entry_id + 1])
    return lambda: Expected("BKC406", ledger.id, entry_id, bookie, cluster.log_file(bookie, log.id), offset)


def wrong_stripe(cluster: Cluster) -> Break:
    """A bookie of the ensemble has an entry of another stripe."""
    ledger = cluster.ledger((4, 2, 2))
    entry_id = cluster.random.randrange(len(ledger.entries))
    others = [b for b in ledger.bookies if b not in ledger.holders(entry_id)]
    bookie = cluster.random.choice(others)
    log = cluster.log_of(bookie, ledger, ledger.held(bookie)[0])
    offset = cluster.bookies[bookie].store(ledger, log, entry_id, ledger.entries[entry_id])
    return lambda: Expected("BKC406", ledger.id, entry_id, bookie, cluster.log_file(bookie, log.id), offset)


def orphan_in_metadata(cluster: Cluster) -> Break:
    """The topic has forgotten its ledger."""
    ledger = cluster.ledger()
    del cluster.topics[ledger.topic]
    return lambda: Expected("BKC411", ledger.id)


def orphan_on_disk(cluster: Cluster) -> Break:
    """Topic and metadata are gone, the bookies have it still."""
    ledger = cluster.ledger((3, 3, 2), digest=DigestType.CRC32C)
    del cluster.topics[ledger.topic]

    def act() -> Expected:
        del cluster.nodes[ledger.path]
        return Expected("BKC412", ledger.id)

    return act


def metadata_lost(cluster: Cluster) -> Break:
    """A topic names a ledger that never was, or was deleted everywhere."""
    ledger = cluster.ledger()
    ledger_id = next(cluster.ids)
    cluster.topics[ledger.topic].append(LedgerInfo(ledger_id, 5, 100, CREATED_MS))
    return lambda: Expected("BKC413", ledger_id)


def cursor_ledger_lost(cluster: Cluster) -> Break:
    """A cursor names a ledger that is not there."""
    ledger = cluster.ledger()
    ledger_id = next(cluster.ids)

    def act() -> Expected:
        state = CursorState(Position(ledger.id, -1))
        node = encode_cursor_info(ManagedCursorInfo(ledger_id, state))
        cluster.nodes[f"/managed-ledgers/public/default/persistent/{ledger.topic}/sub"] = node
        return Expected("BKC413", ledger_id)

    return act


def one_rack(cluster: Cluster) -> Break:
    """A write set is on one rack."""
    first, last = cluster.random.choice([(0, 4), (1, 5), (2, 6), (3, 7)])
    third = cluster.random.choice([b for b in BOOKIES if RACK_OF[b][:3] != RACK_OF[BOOKIES[first]][:3]])
    ledger = cluster.ledger((3, 2, 2), ensemble=(BOOKIES[first], BOOKIES[last], third))
    return lambda: Expected("BKC421", ledger.id, 0)


def one_rack_later(cluster: Cluster) -> Break:
    """A write set that is not entry 0's is on one rack."""
    first, last = cluster.random.choice([(0, 4), (1, 5), (2, 6), (3, 7)])
    other = cluster.random.choice([b for b in BOOKIES if RACK_OF[b][:3] != RACK_OF[BOOKIES[first]][:3]])
    pair = BOOKIES[first], BOOKIES[last]
    ledger = cluster.ledger((3, 2, 2), ensemble=cluster.random.choice([(other, *pair), (pair[0], other, pair[1])]))
    return lambda: Expected("BKC421", ledger.id, 0)


def two_payload_bits(cluster: Cluster) -> tuple[Break, Break]:
    """Bits turned in two copies in one log."""
    ledger = cluster.ledger((2, 2, 2), digest=DigestType.CRC32C)
    bookie = cluster.random.choice(ledger.bookies)

    def of(entry_id: int) -> Break:
        def act() -> Expected:
            at = place(cluster, ledger, entry_id, bookie)
            at.data[at.offset + at.size - 1] ^= 1
            return Expected("BKC107", ledger.id, entry_id, bookie, at.file, at.offset)

        return act

    return of(1), of(3)


def closed_early(cluster: Cluster) -> Break:
    """The end in metadata is lower than the last entry, which has all its copies."""
    ledger = cluster.ledger(change=cluster.random.random() < 0.5)
    _end_at(ledger, cluster.random.randrange(4, len(ledger.entries) - 1))
    return lambda: Expected("BKC433", ledger.id)


def confirmed_after_end(cluster: Cluster) -> Break:
    """One copy of one entry after the end is left, and its last confirmed is after the end, too."""
    ledger = cluster.ledger((3, 3, 2))
    last = len(ledger.entries) - 1
    end = cluster.random.randrange(-1, last - 4)
    keeper = cluster.random.choice(ledger.bookies)
    for bookie in ledger.bookies:
        drop(cluster, ledger, bookie, list(range(end + 1, last if bookie == keeper else last + 1)))
    _end_at(ledger, end)
    return lambda: Expected("BKC433", ledger.id)


def _end_at(ledger: Ledger, last: int) -> None:
    """Closes a ledger at this entry in metadata."""
    ledger.metadata = ledger.metadata.closed_at(last, sum(map(len, ledger.payloads[: last + 1])))


def custom_metadata_bytes(cluster: Cluster) -> Break:
    """Custom metadata that are not UTF-8, of a ledger whose topic has forgotten it."""
    ledger = cluster.ledger()
    custom = {**ledger.metadata.custom_metadata, "component": b"\xff\xfe\x00", "application": b"pulsar"}
    ledger.metadata = replace(ledger.metadata, custom_metadata=custom)
    del cluster.topics[ledger.topic]
    return lambda: Expected("BKC411", ledger.id)


def untagged(cluster: Cluster) -> Break:
    """A ledger that names no application, and that no topic names."""
    ledger = cluster.ledger()
    custom = {"a": b"b"} if cluster.random.random() < 0.5 else {"binary": b"\x80"}
    ledger.metadata = replace(ledger.metadata, custom_metadata=custom)
    del cluster.topics[ledger.topic]
    return lambda: Expected("BKC415", ledger.id)


def one_region(cluster: Cluster) -> Break:
    """An ensemble is in one region."""
    of_region = [b for b in BOOKIES if RACK_OF[b][:3] == cluster.random.choice(("/eu", "/us"))]
    while len({RACK_OF[b] for b in of_region[:2]}) < 2 or len({RACK_OF[b][:3] for b in of_region}) > 1:
        region = cluster.random.choice(("/eu", "/us"))
        of_region = [b for b in BOOKIES if RACK_OF[b][:3] == region]
        cluster.random.shuffle(of_region)
    ledger = cluster.ledger((2, 2, 1), ensemble=tuple(of_region[:2]))
    return lambda: Expected("BKC422", ledger.id, 0)


def named_twice(cluster: Cluster) -> Break:
    """An ensemble has one bookie at two places."""
    bookie, other = cluster.ensemble((2, 2, 1))
    ledger = cluster.ledger((3, 2, 2), ensemble=(bookie, other, bookie))
    return lambda: Expected("BKC423", ledger.id, 0, bookie)


def wrong_length(cluster: Cluster) -> Break:
    """All copies of an entry say the same wrong length."""
    ledger = cluster.ledger(digest=DigestType.CRC32C)
    entry_id = cluster.random.randrange(1, len(ledger.entries))

    def act() -> Expected:
        length = sum(map(len, ledger.payloads[: entry_id + 1])) + cluster.random.choice((-3, 7, 1000))
        for bookie in ledger.holders(entry_id):
            reseal(place(cluster, ledger, entry_id, bookie), ledger.sealed(entry_id, length=length))
        return Expected("BKC431", ledger.id, entry_id)

    return act


def confirmed_falls(cluster: Cluster) -> Break:
    """The last confirmed of all copies of an entry is lower than that of the entry before."""
    ledger = cluster.ledger(digest=DigestType.CRC32)
    entry_id = cluster.random.randrange(6, len(ledger.entries))

    def act() -> Expected:
        for bookie in ledger.holders(entry_id):
            reseal(place(cluster, ledger, entry_id, bookie), ledger.sealed(entry_id, last_confirmed=-1))
        return Expected("BKC431", ledger.id, entry_id)

    return act


def metadata_length(cluster: Cluster) -> Break:
    """The metadata of a closed ledger has another length than its last entry."""
    ledger = cluster.ledger()

    def act() -> Expected:
        changed = rebuilt(cluster.nodes, ledger.path, length=ledger.metadata.length + 11)
        cluster.nodes[ledger.path] = encode_metadata(changed)
        return Expected("BKC432", ledger.id)

    return act


def index_astray(cluster: Cluster) -> Break:
    """An index row points to where its entry is not."""
    ledger = cluster.ledger()

    def act() -> Expected:
        at = any_place(cluster, ledger)
        index = cluster.bookies[at.bookie].index
        log_id, offset = index[ledger.id, at.entry_id]
        index[ledger.id, at.entry_id] = log_id, offset + 3
        return Expected("BKC351", ledger.id, at.entry_id, at.bookie, at.file, offset + 3)

    return act


def index_row_lost(cluster: Cluster) -> Break:
    """An index has no row for an entry that is in a log."""
    ledger = cluster.ledger()

    def act() -> Expected:
        at = any_place(cluster, ledger)
        del cluster.bookies[at.bookie].index[ledger.id, at.entry_id]
        return Expected("BKC353", ledger.id, at.entry_id, at.bookie, at.file, at.offset)

    return act


def log_gone(cluster: Cluster) -> Break:
    """A log was deleted."""
    ledger = cluster.ledger()
    bookie = cluster.random.choice(ledger.bookies)

    def act() -> Expected:
        log = cluster.log_of(bookie, ledger, ledger.held(bookie)[0])
        cluster.missing_logs.add((bookie, log.id))
        return Expected("BKC352", None, None, bookie, cluster.log_file(bookie, log.id))

    return act


def log_cut(cluster: Cluster) -> Break:
    """A closed log was truncated inside a record: the ledger lacks all copies from there on."""
    ledger = cluster.ledger()

    def act() -> list[Expected]:
        at = any_place(cluster, ledger)
        del at.data[at.offset + cluster.random.randrange(at.size) :]
        torn = Expected("BKC102", None, None, at.bookie, at.file, at.offset - 4, at.offset + at.size)
        return [torn, Expected("BKC401", ledger.id, at.entry_id, at.bookie)]

    return act


def log_renamed(cluster: Cluster) -> Break:
    """A log was copied under another id, and the original deleted."""
    ledger = cluster.ledger()
    bookie = cluster.random.choice(ledger.bookies)

    def act() -> Expected:
        log = cluster.log_of(bookie, ledger, ledger.held(bookie)[0])
        copy = cluster.log(bookie)
        copy.data[:], copy.map_offset = log.data, log.map_offset
        cluster.missing_logs.add((bookie, log.id))
        return Expected("BKC352", None, None, bookie, cluster.log_file(bookie, log.id))

    return act


def payloads_swapped(cluster: Cluster) -> Break:
    """The payloads of two entries of two ledgers are each in the place of the other."""
    digests = (DigestType.CRC32, DigestType.CRC32C, DigestType.HMAC)
    one, other = (cluster.ledger(digest=cluster.random.choice(digests)) for _ in range(2))

    def act() -> list[Expected]:
        first, second = any_place(cluster, one), any_place(cluster, other)
        size = min(len(one.payloads[first.entry_id]), len(other.payloads[second.entry_id]))
        a, b = (slice(at.offset + at.size - size, at.offset + at.size) for at in (first, second))
        first.data[a], second.data[b] = second.data[b], first.data[a]
        return [
            Expected("BKC107", ledger.id, at.entry_id, at.bookie, at.file, at.offset)
            for ledger, at in ((one, first), (other, second))
        ]

    return act


def boundary_moved(cluster: Cluster) -> Break:
    """The second fragment begins two entries earlier or later in metadata than where the writer changed bookies."""
    ledger = cluster.ledger((3, 3, 2), change=True)
    first, second = ledger.metadata.ensembles
    earlier = cluster.random.random() < 0.5
    moved = Ensemble(EntryId(3 if earlier else 7), second.bookies)
    ledger.metadata = replace(ledger.metadata, ensembles=(first, moved))
    expected, actual = (second, first) if earlier else (first, second)
    lacking = [bookie for bookie in expected.bookies if bookie not in actual.bookies]
    return lambda: [Expected("BKC401", ledger.id, 3 if earlier else 5, bookie) for bookie in lacking]


def bad_size(cluster: Cluster) -> Break:
    """The size in front of a record is negative or huge."""
    ledger = cluster.ledger(digest=DigestType.CRC32C)

    def act() -> Expected:
        at = any_place(cluster, ledger, inner=True)
        size = cluster.random.choice((-5, 1 << 30))
        at.data[at.offset - 4 : at.offset] = struct.pack(">i", size)
        return Expected("BKC103", ledger.id, at.entry_id, at.bookie, at.file, at.offset - 4)

    return act


def size_astray(cluster: Cluster) -> Break:
    """The size in front of a record is a little too short or too long: it ends inside another one."""
    ledger = cluster.ledger(digest=DigestType.CRC32C)

    def act() -> Expected:
        at = any_place(cluster, ledger, inner=True)
        size = at.size + cluster.random.choice((-3, 2, 5, 9, 11, 17, 33))
        at.data[at.offset - 4 : at.offset] = struct.pack(">i", size)
        return Expected("BKC103", ledger.id, at.entry_id, at.bookie, at.file, at.offset - 4)

    return act


def negative_ids(cluster: Cluster) -> Break:
    """A record has ids that nothing has."""
    ledger = cluster.ledger()

    def act() -> Expected:
        at = any_place(cluster, ledger)
        at.data[at.offset] = 0x90
        return Expected("BKC108", None, None, at.bookie, at.file, at.offset)

    return act


def log_header(cluster: Cluster) -> Break:
    """The first letters of a log are wrong."""
    ledger = cluster.ledger()

    def act() -> Expected:
        at = any_place(cluster, ledger)
        at.data[:4] = b"BKXX"
        return Expected("BKC101", None, None, at.bookie, at.file, 0)

    return act


def map_value(cluster: Cluster) -> Break:
    """The ledgers map gives a ledger other bytes than it has."""
    ledger = cluster.ledger()

    def act() -> Expected:
        bookie = cluster.random.choice(ledger.bookies)
        log = cluster.log_of(bookie, ledger, ledger.held(bookie)[0])
        log.data[log.map_offset + 32 + 7] ^= 0x10
        return Expected("BKC106", ledger.id, None, bookie, cluster.log_file(bookie, log.id), log.map_offset)

    return act


def map_count(cluster: Cluster) -> Break:
    """The ledgers map is not what its header says."""
    ledger = cluster.ledger()

    def act() -> Expected:
        at = any_place(cluster, ledger)
        at.data[19] = 2
        return Expected("BKC105", None, None, at.bookie, at.file, 0, HEADER_SIZE << 4)

    return act


def absurd_confirmed(cluster: Cluster) -> Break:
    """A copy says, sealed well, that entries behind it were confirmed."""
    ledger = cluster.ledger()

    def act() -> Expected:
        at = any_place(cluster, ledger)
        reseal(at, ledger.sealed(at.entry_id, last_confirmed=at.entry_id + 5))
        return Expected("BKC109", ledger.id, at.entry_id, at.bookie, at.file, at.offset)

    return act


def two_of_one(cluster: Cluster) -> Break:
    """A bookie has a second record of an entry, with another payload."""
    ledger = cluster.ledger()
    bookie = cluster.random.choice(ledger.bookies)
    entry_id = cluster.random.choice(ledger.held(bookie))
    log = cluster.log(bookie)
    body = ledger.sealed(entry_id, ledger.payloads[entry_id][::-1])
    offset = cluster.bookies[bookie].store(ledger, log, entry_id, body, indexed=False)
    return lambda: Expected("BKC151", ledger.id, entry_id, bookie, cluster.log_file(bookie, log.id), offset)


def left_open(cluster: Cluster) -> Break:
    """A ledger is open though its topic has gone on."""
    ledger = cluster.ledger(state=LedgerState.OPEN)
    cluster.topics[ledger.topic].append(LedgerInfo(cluster.ledger().id))
    return lambda: Expected("BKC441", ledger.id)


def left_in_recovery(cluster: Cluster) -> Break:
    """A recovery never came to its end."""
    ledger = cluster.ledger(state=LedgerState.IN_RECOVERY)
    return lambda: Expected("BKC442", ledger.id)


def ledger_node(cluster: Cluster) -> Break:
    """A ledger's node holds something else."""
    ledger = cluster.ledger()

    def act() -> Expected:
        data = cluster.nodes[ledger.path]
        cluster.nodes[ledger.path] = cluster.random.choice(
            (b"", data[:-5], b"\0" * 20, data[:28] + b"\xff" + data[29:])
        )
        return Expected("BKC451", ledger.id)

    return act


def future_version(cluster: Cluster) -> Break:
    """A ledger's node has a format version that is not defined yet."""
    ledger = cluster.ledger()

    def act() -> Expected:
        head, version, rest = cluster.nodes[ledger.path].partition(b"\t3\n")
        assert version
        cluster.nodes[ledger.path] = head + b"\t4\n" + rest
        return Expected("BKC451", ledger.id)

    return act


def topic_node(cluster: Cluster) -> Break:
    """A topic's node holds something else; its ledger is not nobody's."""
    ledger = cluster.ledger()

    def act() -> Expected:
        path = f"/managed-ledgers/public/default/persistent/{ledger.topic}"
        cluster.nodes[path] = cluster.nodes[path][:-2] + b"\xff"
        return Expected("BKC452", None, None, None, path)

    return act


def journal_bit(cluster: Cluster) -> Break:
    """A bit in a journal's record turned; the log has the entry too."""
    ledger = cluster.ledger(digest=DigestType.CRC32C)
    bookie = cluster.random.choice(ledger.bookies)
    held = ledger.held(bookie)
    journal_id, offsets = cluster.journal(bookie, [ledger.entries[e] for e in held])
    at = cluster.random.randrange(len(held))

    def act() -> Expected:
        cluster.bookies[bookie].journals[journal_id][offsets[at] + 50] ^= 4
        return Expected("BKC204", ledger.id, held[at], bookie, cluster.journal_file(bookie, journal_id), offsets[at])

    return act


def journal_size(cluster: Cluster) -> Break:
    """The size of a journal's record is impossible."""
    ledger = cluster.ledger()
    bookie = cluster.random.choice(ledger.bookies)
    held = ledger.held(bookie)
    journal_id, offsets = cluster.journal(bookie, [ledger.entries[e] for e in held])
    at = cluster.random.randrange(len(held) - 1)

    def act() -> Expected:
        data = cluster.bookies[bookie].journals[journal_id]
        data[offsets[at] - 4] = 0x80
        file = cluster.journal_file(bookie, journal_id)
        return Expected("BKC203", None, None, bookie, file, offsets[at] - 4, offsets[at] + 4)

    return act


def journal_header(cluster: Cluster) -> Break:
    """The header of a journal has a version that does not exist."""
    ledger = cluster.ledger()
    bookie = cluster.random.choice(ledger.bookies)
    journal_id, _ = cluster.journal(bookie, [ledger.entries[ledger.held(bookie)[0]]])

    def act() -> Expected:
        cluster.bookies[bookie].journals[journal_id][7] = 99
        return Expected("BKC201", None, None, bookie, cluster.journal_file(bookie, journal_id), 0, 8)

    return act


def bookie_gone(cluster: Cluster) -> Break:
    """An ensemble names a bookie that is not registered, and that nobody has the disks of."""
    ledger = cluster.ledger((3, 3, 2))
    gone, replaced = BookieId(f"gone{ledger.id}:3181"), cluster.random.choice(ledger.bookies)
    drop(cluster, ledger, replaced, ledger.held(replaced))
    bookies = tuple(gone if b == replaced else b for b in ledger.metadata.ensembles[0].bookies)
    ledger.metadata = replace(ledger.metadata, ensembles=(Ensemble(EntryId(0), bookies),))
    return lambda: Expected("BKC403", None, None, gone)


FAULTS: tuple[Fault, ...] = (
    *(copy_lost, copies_lost, bookie_emptied, entries_lost, end_lost, ledger_lost, payload_bit, header_bit),
    *(entry_id_bit, ledger_id_bit, other_payload, tied_payload, surplus_elsewhere, wrong_stripe, orphan_in_metadata),
    *(orphan_on_disk, metadata_lost, cursor_ledger_lost, one_rack, one_region, named_twice, wrong_length),
    *(confirmed_falls, metadata_length, index_astray, index_row_lost, log_gone, log_cut, bad_size, size_astray),
    negative_ids,
    *(log_header, map_value, map_count, absurd_confirmed, two_of_one, left_open, left_in_recovery, ledger_node),
    *(topic_node, journal_bit, journal_size, journal_header, bookie_gone),
    *(one_rack_later, custom_metadata_bytes, untagged, closed_early, confirmed_after_end),
    *(log_renamed, payloads_swapped, boundary_moved, future_version),
)


def noise(cluster: Cluster) -> None:
    """What healthy clusters have: repeated records, leftovers, unconfirmed tails, entries that only a journal has."""
    for shape in ((3, 3, 2), (3, 2, 2), (4, 2, 2), (1, 1, 1), (2, 2, 1)):
        cluster.ledger(shape)
        cluster.ledger(shape, change=True)
    for digest in DigestType:
        cluster.ledger(digest=digest)
    _repeated(cluster.ledger(), cluster)
    _left_behind(cluster.ledger(change=True), cluster)
    _unconfirmed(cluster.ledger((3, 3, 2)), cluster)
    _after_a_gap(cluster.ledger((3, 3, 2)), cluster)
    _resealed(cluster.ledger((3, 3, 2), digest=DigestType.CRC32C), cluster)
    _current(cluster.ledger((3, 3, 2), state=LedgerState.OPEN), cluster)
    _collected(cluster.ledger(), cluster)
    empty = cluster.ledger(store=False)
    empty.metadata = empty.metadata.closed_at(-1, 0)
    young = cluster.ledger()
    young.metadata = replace(young.metadata, ctime_ms=AS_OF_MS - 1000)
    del cluster.topics[young.topic]
    foreign = cluster.ledger()
    foreign.metadata = replace(foreign.metadata, custom_metadata={"application": b"other"})
    del cluster.topics[foreign.topic]
    _replayed(cluster.ledger((3, 2, 2)), cluster)


def _repeated(ledger: Ledger, cluster: Cluster) -> None:
    """In the journal as well, and in a second log after a compaction that the index follows."""
    bookie = ledger.bookies[0]
    cluster.journal(bookie, [ledger.entries[e] for e in ledger.held(bookie)])
    log = cluster.log(bookie)
    for entry_id in ledger.held(bookie):
        cluster.bookies[bookie].store(ledger, log, entry_id, ledger.entries[entry_id])


def _left_behind(ledger: Ledger, cluster: Cluster) -> None:
    """Bookies of the first ensemble keep an entry of the second."""
    first = ledger.metadata.ensembles[0].bookies
    for bookie in first:
        if bookie not in ledger.holders(5):
            cluster.bookies[bookie].store(ledger, cluster.log(bookie), 5, ledger.entries[5])


def _unconfirmed(ledger: Ledger, cluster: Cluster) -> None:
    """A bookie has an entry behind the end, which was sent and never confirmed."""
    bookie = ledger.bookies[0]
    entry_id = len(ledger.entries)
    ledger.payloads.append(b"too late")
    body = ledger.sealed(entry_id)
    ledger.payloads.pop()
    cluster.bookies[bookie].store(ledger, cluster.log(bookie), entry_id, body)


def _after_a_gap(ledger: Ledger, cluster: Cluster) -> None:
    """Ack-quorum bookies have an entry after the end whose predecessor no bookie has: it was never confirmed."""
    entry_id = len(ledger.entries) + 1
    ledger.payloads += [b"lost", b"too early"]
    body = ledger.sealed(entry_id)
    del ledger.payloads[-2:]
    for bookie in ledger.holders(entry_id)[:2]:
        cluster.bookies[bookie].store(ledger, cluster.log(bookie), entry_id, body)


def _resealed(ledger: Ledger, cluster: Cluster) -> None:
    """A copy that replication of Java made: the last confirmed is its id - 1."""
    bookie = ledger.bookies[0]
    mine = cluster.bookies[bookie]
    log = cluster.log(bookie)
    for entry_id in ledger.held(bookie):
        mine.store(ledger, log, entry_id, ledger.sealed(entry_id, last_confirmed=entry_id - 1))


def _current(ledger: Ledger, cluster: Cluster) -> None:
    """The open ledger of a topic: the last entries are not on all bookies yet."""
    cluster.topics[ledger.topic] = [LedgerInfo(ledger.id)]
    last = len(ledger.entries) - 1
    drop(cluster, ledger, ledger.bookies[0], [last - 1, last])


def _collected(ledger: Ledger, cluster: Cluster) -> None:
    """Deleted everywhere but in a log, which waits for compaction."""
    for bookie in ledger.bookies:
        for entry_id in ledger.held(bookie):
            del cluster.bookies[bookie].index[ledger.id, entry_id]
        del cluster.bookies[bookie].ledgers[ledger.id]
    del cluster.topics[ledger.topic]
    cluster.ledgers.remove(ledger)


def _replayed(ledger: Ledger, cluster: Cluster) -> None:
    """The last entries of a bookie that crashed are in its journal alone, which is behind the mark: comes last."""
    bookie = ledger.bookies[0]
    held = ledger.held(bookie)
    drop(cluster, ledger, bookie, held[-2:])
    cluster.journal(bookie, [ledger.entries[e] for e in held[-2:]], replayed=True)

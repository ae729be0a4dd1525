"""Data of auditors and replication workers: markers, locks, votes, the delay, the times of checks.

    below `underreplication`             payload
    LAYOUT                               text: type: "BASIC", version: 1
    ledgers/hhhh/hhhh/hhhh/hhhh/urL<id>  text: replica*, ctime in ms; the path is the id as 64 bits in hexadecimal
    locks/urL<id>                        text: bookieId; Java writes the machine's host name there
    lostBookieRecoveryDelay              decimal seconds
    checkallledgersctime,                bytes: 1 ctime in ms
      placementpolicycheckctime,
      replicascheckctime
    auditorelection, its V_##########    text: bookieId of the auditor, of the candidate

The id in a name has ten digits or more. Zero replicas are legal: the placement is to be repaired, nothing is missing.
Source: ZkLedgerUnderreplicationManager.java, ZkLedgerAuditorManager.java, DataFormats.proto.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from bkctl.codec import text_proto
from bkctl.codec.protobuf import Message, varint_field
from bkctl.codec.text_proto import Written
from bkctl.errors import Corrupt
from bkctl.model.ids import LEDGER_ID_MAX, BookieId, LedgerId

LAYOUT_TYPE: Final = "BASIC"
LAYOUT_VERSION: Final = 1
LEVELS: Final = 4
"""Directories between `ledgers` and a marker, each of four hexadecimal digits."""

_MARKER: Final = re.compile(r"urL([0-9]{1,19})")
_VOTE: Final = re.compile(r"V_([0-9]{1,10})")
_DELAY: Final = re.compile(rb"[0-9]{1,10}")
_GROUP: Final = re.compile(r"[0-9a-f]{4}")
_USUAL_MARKER: Final = re.compile(rb'((?:replica: "[!#-&(-\[\]-~]*"\n)*)(?:ctime: ([1-9][0-9]{0,17}|0)\n)?')
"""As auditors write it: nothing escaped, each field on its line; everything else is taken apart with care."""
DELAY_S_MAX: Final = 2**31 - 1  # Java parses an int


@dataclass(frozen=True, slots=True)
class Marker:
    """A ledger that needs a look. The bookies are a hint for people, not the list of what to copy."""

    replicas: tuple[BookieId, ...]
    ctime_ms: int | None = None


def marker_name(ledger_id: int) -> str:
    """The last part of a marker's path, and the name of the ledger's lock."""
    return f"urL{ledger_id:010d}"


def marker_parts(ledger_id: int) -> list[str]:
    """The parts of a marker's path below `ledgers`."""
    text = f"{ledger_id:016x}"
    return [*(text[start : start + 4] for start in range(0, 16, 4)), marker_name(ledger_id)]


def marker_ledger(directory: str) -> LedgerId:
    """The ledger whose marker is in a directory; its path ends in LEVELS groups of hexadecimal digits."""
    return LedgerId(int("".join(directory.split("/")[-LEVELS:]), 16))


def parse_marker_name(name: str) -> LedgerId | None:
    """The ledger that a marker or lock is for; None for any other name."""
    match = _MARKER.fullmatch(name)
    return LedgerId(int(match[1])) if match and int(match[1]) <= LEDGER_ID_MAX else None


def is_marker_directory(name: str) -> bool:
    """True for a directory between `ledgers` and the markers."""
    return _GROUP.fullmatch(name) is not None


def encode_marker(marker: Marker) -> bytes:
    """The text of a marker."""
    fields: list[tuple[str, Written]] = [("replica", str(replica)) for replica in marker.replicas]
    if marker.ctime_ms is not None:
        fields.append(("ctime", marker.ctime_ms))
    return text_proto.encode(fields)


def decode_marker(data: bytes, *, source: str) -> Marker:
    """Reads a marker.

    Raises:
        Corrupt: not an UnderreplicatedLedgerFormat.
    """
    if (usual := _USUAL_MARKER.fullmatch(data)) is not None:
        replicas, ctime = usual.groups()
        names = replicas.decode("ascii").split('"')[1::2]
        return Marker(tuple(map(BookieId, names)), None if ctime is None else int(ctime))
    message = text_proto.decode(data, source=source).only("replica", "ctime")
    return Marker(tuple(map(BookieId, message.texts("replica"))), message.integer("ctime"))


def encode_holder(bookie_id: str) -> bytes:
    """The text of a lock, of a vote, and of the election node: who holds it."""
    return text_proto.encode([("bookieId", bookie_id)])


def decode_holder(data: bytes, *, source: str) -> str | None:
    """Reads a lock, a vote or the election node; None where no owner is named, as before the first election.

    Raises:
        Corrupt: not a LockDataFormat or AuditorVoteFormat.
    """
    return text_proto.decode(data, source=source).only("bookieId").text("bookieId")


def vote_number(name: str) -> int | None:
    """The number after V_, by which votes are ordered; None for any other name."""
    match = _VOTE.fullmatch(name)
    return int(match[1]) if match else None


def encode_layout() -> bytes:
    """The only layout there is."""
    return text_proto.encode([("type", LAYOUT_TYPE), ("version", LAYOUT_VERSION)])


def check_layout(data: bytes, *, source: str) -> None:
    """Checks that the layout is the supported one.

    Raises:
        Corrupt: another one, or none at all.
    """
    message = text_proto.decode(data, source=source).only("type", "version")
    found = (message.text("type"), message.integer("version"))
    expected = (LAYOUT_TYPE, LAYOUT_VERSION)
    if found != expected:
        raise Corrupt("layout of the underreplication tree", source=source, offset=0, expected=expected, found=found)


def encode_delay(delay_s: int) -> bytes:
    """The seconds a lost bookie is waited for."""
    return b"%d" % delay_s


def decode_delay(data: bytes, *, source: str) -> int:
    """Reads the delay.

    Raises:
        Corrupt: not a number of seconds.
    """
    if not _DELAY.fullmatch(data) or int(data) > DELAY_S_MAX:
        raise Corrupt("recovery delay", source=source, offset=0, expected="seconds", found=bytes(data))
    return int(data)


def encode_check_time(ctime_ms: int) -> bytes:
    """When a check of all ledgers, of placement or of replicas last came to its end; the same record for all three."""
    return varint_field(1, ctime_ms)


def decode_check_time(data: bytes, *, source: str) -> int | None:
    """Reads the time of a check, None where the record does not say.

    Raises:
        Corrupt: not a CheckAllLedgersFormat or one of its two relatives.
    """
    return Message(data, source=source).integer(1)

"""Ledger metadata, the value of a ledger's znode, in its three formats.

    header   offset  size  type   meaning
             0       27    bytes  b"BookieMetadataFormatVersion"
             27      1     bytes  TAB
             28      1+    ascii  format version, at most ten digits
                     1     bytes  LF
    body 1   text: Qw LF E LF length LF, for each ensemble: first entry, TAB bookie …, LF; then, unless OPEN,
             last entry TAB "CLOSED" without LF; a last entry of -102 means IN_RECOVERY
    body 2   LedgerMetadataFormat as protobuf text, to the end
    body 3   varint length, LedgerMetadataFormat as protobuf; what follows is ignored

    LedgerMetadataFormat
    1 quorumSize   2 ensembleSize   3 length         4 lastEntryId   5 state      6 segment {1 ensembleMember*,
    7 digestType   8 password       9 ackQuorumSize  10 ctime        11 customMetadata {1 key, 2 value}
    12 cToken (format 3 only)                                        2 firstEntryId}

While a ledger is not CLOSED, length and last entry are written as 0 and -1 and not read. An update keeps the format
the ledger was read in. Source: LedgerMetadataSerDe.java, DataFormats.proto, BookKeeper 4.17.3 and 4.18.0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bkctl.codec.metadata_scan import Scanned, scan, unvarint
from bkctl.codec.protobuf import (
    Message,
    bytes_field,
    decode_varint,
    encode_varint,
    text_field,
    varint_field,
)
from bkctl.errors import Corrupt, TornTail, UsageError
from bkctl.model.ids import NO_ENTRY, BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata, LedgerState

if TYPE_CHECKING:
    from bkctl.codec.text_proto import TextMessage, Written

MAGIC: Final = b"BookieMetadataFormatVersion\t"
FORMAT_MIN: Final = 1
FORMAT_MAX: Final = 3
VERSION_DIGITS_MAX: Final = 10
IN_RECOVERY_MARK: Final = -102  # the "last entry" of a format 1 record of a ledger in recovery
_CLOSED_WORD: Final = "CLOSED"
_HEADER: Final = re.compile(rb"BookieMetadataFormatVersion\t([0-9]{1,10})\n")
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")

_QUORUM, _ENSEMBLE, _LENGTH, _LAST, _STATE, _SEGMENT, _DIGEST, _PASSWORD, _ACK, _CTIME, _CUSTOM, _TOKEN = range(1, 13)
_TEXT_FIELDS: Final = (
    *("quorumSize", "ensembleSize", "length", "lastEntryId", "state", "segment", "digestType", "password"),
    *("ackQuorumSize", "ctime", "customMetadata", "cToken"),
)


def encode_metadata(metadata: LedgerMetadata) -> bytes:
    """The record in its own format_version.

    Raises:
        UsageError: no such format; or format 1, which has no digest, password, ack quorum, custom metadata, ctime.
    """
    header = b"%s%d\n" % (MAGIC, metadata.format_version)
    if metadata.format_version == 3:
        body = _encode_binary(metadata)
        return header + encode_varint(len(body)) + body
    if metadata.format_version == 2:
        from bkctl.codec import text_proto  # format 2 is rare, and not worth its import otherwise

        return header + text_proto.encode(_text_fields(metadata))
    if metadata.format_version == 1:
        return header + _encode_lines(metadata)
    raise UsageError(f"ledger metadata format {metadata.format_version} does not exist")


def decode_metadata(data: bytes, *, source: str) -> LedgerMetadata:
    """Reads a record; source names the znode in errors.

    Raises:
        TornTail: the record is truncated.
        Corrupt: not ledger metadata, or of a later format than 3.
    """
    found = scan(data)
    return _of_scan(found) if found is not None else decode_thoroughly(data, source=source)


def decode_thoroughly(data: bytes, *, source: str) -> LedgerMetadata:
    """decode_metadata without its short cut: field by field, in any order, and with a reason for what is wrong."""
    match = _HEADER.match(data)
    if match is None:
        if MAGIC.startswith(data[: len(MAGIC)]) and b"\n" not in data and len(data) < len(MAGIC) + VERSION_DIGITS_MAX:
            raise TornTail("ledger metadata header", source=source, offset=0, expected=MAGIC, found=bytes(data))
        raise Corrupt("not ledger metadata", source=source, offset=0, expected=MAGIC, found=bytes(data))
    version, start = int(match[1]), match.end()
    if not FORMAT_MIN <= version <= FORMAT_MAX:
        raise Corrupt("ledger metadata format", source=source, offset=len(MAGIC), expected="1 to 3", found=version)
    try:
        if version == 3:
            return _decode_binary(data, start, source)
        if version == 2:
            from bkctl.codec import text_proto

            return _decode_text(text_proto.decode(data, source=source, offset=start), source, start)
        return _decode_lines(data, start, source)
    except UsageError as e:  # each field was fine by itself, the whole is not
        raise Corrupt("ledger metadata", source=source, offset=start, expected="a valid record", found=str(e)) from None


def _end(metadata: LedgerMetadata) -> tuple[int, int]:
    """Length and last entry as written."""
    return (metadata.length, metadata.last_entry_id) if metadata.closed else (0, NO_ENTRY)


# -- format 3 ---------------------------------------------------------------------------------------------------------


def _encode_binary(metadata: LedgerMetadata) -> bytes:
    length, last_entry_id = _end(metadata)
    parts = [
        varint_field(_QUORUM, metadata.write_quorum_size),
        varint_field(_ENSEMBLE, metadata.ensemble_size),
        varint_field(_LENGTH, length),
        varint_field(_LAST, last_entry_id),
        varint_field(_STATE, metadata.state),
    ]
    for ensemble in metadata.ensembles:
        members = b"".join(text_field(1, bookie) for bookie in ensemble.bookies)
        parts.append(bytes_field(_SEGMENT, members + varint_field(2, ensemble.first_entry_id)))
    if metadata.digest_type is not None and metadata.password is not None:
        parts += (varint_field(_DIGEST, metadata.digest_type), bytes_field(_PASSWORD, metadata.password))
    parts.append(varint_field(_ACK, metadata.ack_quorum_size))
    if metadata.ctime_ms is not None:
        parts.append(varint_field(_CTIME, metadata.ctime_ms))
    for key, value in metadata.custom_metadata.items():
        parts.append(bytes_field(_CUSTOM, text_field(1, key) + bytes_field(2, value)))
    parts.append(varint_field(_TOKEN, metadata.creation_token))
    return b"".join(parts)


def _decode_binary(data: bytes, start: int, source: str) -> LedgerMetadata:
    size, body = decode_varint(data, start, source=source)
    if size > len(data) - body:
        raise TornTail("ledger metadata", source=source, offset=start, expected=f"{size} bytes", found=len(data) - body)
    message = Message(data[body : body + size], source=source, base=body)
    ensembles = []
    for raw, offset in message.every(_SEGMENT):
        segment = Message(raw, source=source, base=offset)
        first = segment.required(2, segment.integer(2))
        ensembles.append(Ensemble(EntryId(first), tuple(map(BookieId, segment.texts(1)))))
    custom = {}
    for raw, offset in message.every(_CUSTOM):
        pair = Message(raw, source=source, base=offset)
        custom[pair.text(1) or ""] = pair.raw(2) or b""
    state, digest = message.integer(_STATE), message.integer(_DIGEST)
    return _assemble(
        write_quorum=message.required(_QUORUM, message.integer(_QUORUM)),
        ensemble_size=message.required(_ENSEMBLE, message.integer(_ENSEMBLE)),
        ack_quorum=message.integer(_ACK),
        length=message.required(_LENGTH, message.integer(_LENGTH)),
        last_entry_id=message.integer(_LAST),
        state=LedgerState.OPEN if state is None else _state(state, source, body),
        ensembles=tuple(ensembles),
        digest=None if digest is None else _digest(digest, source, body),
        password=message.raw(_PASSWORD),
        ctime_ms=message.integer(_CTIME),
        custom=custom,
        token=message.integer(_TOKEN) or 0,
        version=3,
    )


def _of_scan(found: Scanned) -> LedgerMetadata:
    closed, sealed = found.closed, found.password is not None
    return LedgerMetadata(
        found.ensemble_size,
        found.write_quorum_size,
        found.ack_quorum_size,
        found.ensembles,
        LedgerState(found.state),
        found.length if closed else 0,
        EntryId(found.last_entry_id) if closed else NO_ENTRY,
        DigestType(found.digest) if sealed else None,
        found.password,
        found.ctime_ms,
        found.custom,
        unvarint(found.token),
    )


def _state(value: int, source: str, offset: int) -> LedgerState:
    try:
        return LedgerState(value)
    except ValueError:
        raise Corrupt("ledger state", source=source, offset=offset, expected="1 to 3", found=value) from None


def _digest(value: int, source: str, offset: int) -> DigestType:
    try:
        return DigestType(value)
    except ValueError:
        raise Corrupt("digest type", source=source, offset=offset, expected="1 to 4", found=value) from None


def _assemble(
    *,
    write_quorum: int,
    ensemble_size: int,
    ack_quorum: int | None,
    length: int,
    last_entry_id: int | None,
    state: LedgerState,
    ensembles: tuple[Ensemble, ...],
    digest: DigestType | None,
    password: bytes | None,
    ctime_ms: int | None,
    custom: dict[str, bytes],
    token: int,
    version: int,
) -> LedgerMetadata:
    """The rules that formats 2 and 3 share. A password makes the digest count; without one both are unknown."""
    if password is not None and digest is None:
        raise UsageError("a password without a digest type")
    closed = state is LedgerState.CLOSED
    if closed and length < 0:
        raise UsageError(f"length {length} of a closed ledger")
    return LedgerMetadata(
        ensemble_size=ensemble_size,
        write_quorum_size=write_quorum,
        ack_quorum_size=write_quorum if ack_quorum is None else ack_quorum,
        ensembles=ensembles,
        state=state,
        length=length if closed else 0,
        last_entry_id=EntryId(last_entry_id or 0) if closed else NO_ENTRY,
        digest_type=digest if password is not None else None,
        password=password,
        ctime_ms=ctime_ms,
        custom_metadata=custom,
        creation_token=token,
        format_version=version,
    )


# -- format 2 ---------------------------------------------------------------------------------------------------------


def _text_fields(metadata: LedgerMetadata) -> list[tuple[str, Written]]:
    length, last_entry_id = _end(metadata)
    from bkctl.codec.text_proto import Word

    fields: list[tuple[str, Written]] = [
        ("quorumSize", metadata.write_quorum_size),
        ("ensembleSize", metadata.ensemble_size),
        ("length", length),
        ("lastEntryId", last_entry_id),
        ("state", Word(metadata.state.name)),
    ]
    for ensemble in metadata.ensembles:
        members: list[tuple[str, Written]] = [("ensembleMember", str(bookie)) for bookie in ensemble.bookies]
        fields.append(("segment", [*members, ("firstEntryId", ensemble.first_entry_id)]))
    if metadata.digest_type is not None and metadata.password is not None:
        fields += (("digestType", Word(metadata.digest_type.name)), ("password", metadata.password))
    fields.append(("ackQuorumSize", metadata.ack_quorum_size))
    if metadata.ctime_ms is not None:
        fields.append(("ctime", metadata.ctime_ms))
    fields += (("customMetadata", [("key", key), ("value", value)]) for key, value in metadata.custom_metadata.items())
    return fields


def _decode_text(message: TextMessage, source: str, start: int) -> LedgerMetadata:
    message.only(*_TEXT_FIELDS)
    ensembles = []
    for segment in message.messages("segment"):
        first = segment.only("ensembleMember", "firstEntryId").integer("firstEntryId")
        if first is None:
            raise segment.missing("firstEntryId")
        ensembles.append(Ensemble(EntryId(first), tuple(map(BookieId, segment.texts("ensembleMember")))))
    custom = {}
    for pair in message.messages("customMetadata"):
        pair.only("key", "value")
        custom[pair.text("key") or ""] = pair.raw("value") or b""
    numbers = {name: message.integer(name) for name in ("quorumSize", "ensembleSize", "length")}
    for name, value in numbers.items():
        if value is None:
            raise message.missing(name)
    state, digest = message.word("state"), message.word("digestType")
    return _assemble(
        write_quorum=numbers["quorumSize"] or 0,
        ensemble_size=numbers["ensembleSize"] or 0,
        ack_quorum=message.integer("ackQuorumSize"),
        length=numbers["length"] or 0,
        last_entry_id=message.integer("lastEntryId"),
        state=LedgerState.OPEN if state is None else _state_word(*state, source),
        ensembles=tuple(ensembles),
        digest=None if digest is None else _digest_word(*digest, source),
        password=message.raw("password"),
        ctime_ms=message.integer("ctime"),
        custom=custom,
        token=0,
        version=2,
    )


def _state_word(word: str | int, offset: int, source: str) -> LedgerState:
    if isinstance(word, str) and word in LedgerState.__members__:
        return LedgerState[word]
    if isinstance(word, int):
        return _state(word, source, offset)
    raise Corrupt("ledger state", source=source, offset=offset, expected=", ".join(LedgerState.__members__), found=word)


def _digest_word(word: str | int, offset: int, source: str) -> DigestType:
    if isinstance(word, str) and word in DigestType.__members__:
        return DigestType[word]
    if isinstance(word, int):
        return _digest(word, source, offset)
    raise Corrupt("digest type", source=source, offset=offset, expected=", ".join(DigestType.__members__), found=word)


# -- format 1 ---------------------------------------------------------------------------------------------------------


def _encode_lines(metadata: LedgerMetadata) -> bytes:
    if metadata.digest_type is not None or metadata.custom_metadata or metadata.ctime_ms is not None:
        raise UsageError("metadata format 1 cannot contain digest, password, custom metadata and ctime")
    if metadata.ack_quorum_size != metadata.write_quorum_size:
        raise UsageError("metadata format 1 has no ack quorum: it is the write quorum")
    lines = [f"{metadata.write_quorum_size}\n{metadata.ensemble_size}\n{_end(metadata)[0]}\n"]
    lines += ("\t".join((str(e.first_entry_id), *e.bookies)) + "\n" for e in metadata.ensembles)
    if metadata.closed:
        lines.append(f"{metadata.last_entry_id}\t{_CLOSED_WORD}")
    elif metadata.state is LedgerState.IN_RECOVERY:
        lines.append(f"{IN_RECOVERY_MARK}\t{_CLOSED_WORD}")
    return "".join(lines).encode("utf-8")


class _Lines:
    """The lines of a format 1 record, taken one after another."""

    def __init__(self, data: bytes, start: int, source: str) -> None:
        self._data, self._position, self._source = data, start, source

    def take(self) -> tuple[str, int] | None:
        """The next line without its LF, and where it starts; None at the end."""
        start = self._position
        if start >= len(self._data):
            return None
        end = self._data.find(b"\n", start)
        end = len(self._data) if end < 0 else end
        self._position = end + 1
        try:
            return self._data[start:end].decode("utf-8"), start
        except UnicodeDecodeError:
            raise self.wrong(start, "UTF-8", self._data[start:end]) from None

    def number(self, name: str) -> int:
        """The next line, which is a number."""
        line = self.take()
        if line is None:
            raise TornTail(
                "ledger metadata", source=self._source, offset=len(self._data), expected=name, found="the end"
            )
        return self.parse(*line, name)

    def parse(self, text: str, offset: int, name: str) -> int:
        """A number in a line."""
        if not _NUMBER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
            raise self.wrong(offset, name, text)
        return int(text)

    def wrong(self, offset: int, expected: str, found: object) -> Corrupt:
        """The error for a line."""
        return Corrupt("ledger metadata", source=self._source, offset=offset, expected=expected, found=found)


def _decode_lines(data: bytes, start: int, source: str) -> LedgerMetadata:
    lines = _Lines(data, start, source)
    write_quorum = lines.number("write quorum")
    ensemble_size = lines.number("ensemble size")
    length = lines.number("length")
    ensembles: list[Ensemble] = []
    state, last_entry_id = LedgerState.OPEN, NO_ENTRY
    while (line := lines.take()) is not None:
        text, offset = line
        head, *members = text.split("\t")
        entry_id = lines.parse(head, offset, "an entry id")
        if members == [_CLOSED_WORD]:
            recovering = entry_id == IN_RECOVERY_MARK
            state = LedgerState.IN_RECOVERY if recovering else LedgerState.CLOSED
            last_entry_id = NO_ENTRY if recovering else EntryId(entry_id)
            break
        if not members or "" in members:
            raise lines.wrong(offset, "an entry id and bookies", text)
        ensembles.append(Ensemble(EntryId(entry_id), tuple(map(BookieId, members))))
    if (rest := lines.take()) is not None:
        raise lines.wrong(rest[1], "the end", rest[0])
    return LedgerMetadata(
        ensemble_size=ensemble_size,
        write_quorum_size=write_quorum,
        ack_quorum_size=write_quorum,
        ensembles=tuple(ensembles),
        state=state,
        length=length if state is LedgerState.CLOSED else 0,
        last_entry_id=last_entry_id,
        digest_type=None,
        password=None,
        format_version=1,
    )

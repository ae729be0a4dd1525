"""Ledger metadata: the spec's worked examples, protobuf's own reading of it, round trips, damage."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.ledger_metadata import MAGIC, decode_metadata, encode_metadata
from bkctl.codec.proto.DataFormats_pb2 import LedgerMetadataFormat
from bkctl.errors import Corrupt, TornTail, UsageError
from bkctl.model.ids import NO_ENTRY, BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata, LedgerState
from tests.unit.codec.damage import fault_offset

BK1, BK2, BK3, BK4 = (BookieId(f"bk{i}:3181") for i in range(1, 5))

OPEN_3 = LedgerMetadata(2, 2, 1, (Ensemble(EntryId(0), (BK1, BK2)),), creation_token=1)
OPEN_3_BYTES = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a3308"
    "021002180020ffffffffffffffffff01"
    "280132160a08626b313a333138310a08626b323a333138311000380342004801"
    "6001"
)
ENSEMBLES = (Ensemble(EntryId(0), (BK1, BK2)), Ensemble(EntryId(100), (BK1, BK3)))
CLOSED_3 = LedgerMetadata(
    ensemble_size=2,
    write_quorum_size=2,
    ack_quorum_size=1,
    ensembles=ENSEMBLES,
    state=LedgerState.CLOSED,
    length=2048,
    last_entry_id=EntryId(149),
    digest_type=DigestType.CRC32,
    password=b"pw",
    ctime_ms=1700000000000,
    custom_metadata={"app": b"x"},
)
CLOSED_3_BYTES = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a5708"
    "02100218801020950128033216"
    "0a08626b313a333138310a08626b323a333138311000"
    "32160a08626b313a333138310a08626b333a333138311064"
    "3801420270774801"
    "5080d095ffbc315a080a036170701201786000"
)
CLOSED_2 = replace(CLOSED_3, ctime_ms=None, custom_metadata={"app": b'\x00"\xff'}, format_version=2)
CLOSED_2_BYTES = b"""\
BookieMetadataFormatVersion\t2
quorumSize: 2
ensembleSize: 2
length: 2048
lastEntryId: 149
state: CLOSED
segment {
  ensembleMember: "bk1:3181"
  ensembleMember: "bk2:3181"
  firstEntryId: 0
}
segment {
  ensembleMember: "bk1:3181"
  ensembleMember: "bk3:3181"
  firstEntryId: 100
}
digestType: CRC32
password: "pw"
ackQuorumSize: 1
customMetadata {
  key: "app"
  value: "\\000\\"\\377"
}
"""
CLOSED_1 = LedgerMetadata(
    ensemble_size=3,
    write_quorum_size=2,
    ack_quorum_size=2,
    ensembles=(Ensemble(EntryId(0), (BK1, BK2, BK3)), Ensemble(EntryId(100), (BK1, BK2, BK4))),
    state=LedgerState.CLOSED,
    length=2048,
    last_entry_id=EntryId(149),
    digest_type=None,
    password=None,
    format_version=1,
)
CLOSED_1_BYTES = (
    b"BookieMetadataFormatVersion\t1\n2\n3\n2048\n0\tbk1:3181\tbk2:3181\tbk3:3181\n"
    b"100\tbk1:3181\tbk2:3181\tbk4:3181\n149\tCLOSED"
)
WORKED = [
    pytest.param(OPEN_3, OPEN_3_BYTES, id="open, format 3"),
    pytest.param(CLOSED_3, CLOSED_3_BYTES, id="closed, format 3"),
    pytest.param(CLOSED_2, CLOSED_2_BYTES, id="closed, format 2"),
    pytest.param(CLOSED_1, CLOSED_1_BYTES, id="closed, format 1"),
]


@pytest.mark.parametrize(("metadata", "data"), WORKED)
def test_worked_examples(metadata: LedgerMetadata, data: bytes) -> None:
    assert encode_metadata(metadata) == data
    assert decode_metadata(data, source="L0000") == metadata


def test_the_sizes_the_description_gives() -> None:
    assert [len(d) for d in (OPEN_3_BYTES, CLOSED_3_BYTES, CLOSED_2_BYTES, CLOSED_1_BYTES)] == [82, 118, 386, 109]


def test_format_1_while_open_and_in_recovery() -> None:
    open_1 = replace(CLOSED_1, state=LedgerState.OPEN, length=0, last_entry_id=NO_ENTRY)
    text = (
        b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\tbk1:3181\tbk2:3181\tbk3:3181\n100\tbk1:3181\tbk2:3181\tbk4:3181\n"
    )
    assert encode_metadata(open_1) == text
    assert decode_metadata(text, source="x") == open_1
    recovering = text + b"-102\tCLOSED"
    assert encode_metadata(open_1.in_recovery()) == recovering
    assert decode_metadata(recovering, source="x") == open_1.in_recovery()


def test_length_and_last_entry_count_only_while_closed() -> None:
    pretending = encode_metadata(CLOSED_3).replace(b"\x28\x03", b"\x28\x01")  # state CLOSED -> OPEN
    read = decode_metadata(pretending, source="x")
    assert (read.state, read.length, read.last_entry_id) == (LedgerState.OPEN, 0, NO_ENTRY)
    written = encode_metadata(replace(CLOSED_3, state=LedgerState.IN_RECOVERY))
    assert b"\x18\x00\x20" + b"\xff" * 9 + b"\x01" in written


def test_what_may_be_absent() -> None:
    message = LedgerMetadataFormat(quorumSize=2, ensembleSize=2, length=5, state=LedgerMetadataFormat.CLOSED)
    message.segment.add(ensembleMember=["a", "b"], firstEntryId=0)
    read = decode_metadata(_delimited(message), source="x")
    assert (read.ack_quorum_size, read.last_entry_id, read.password, read.digest_type) == (2, 0, None, None)
    message.digestType = LedgerMetadataFormat.HMAC  # alone it says nothing
    assert decode_metadata(_delimited(message), source="x").digest_type is None
    message.password = b""
    assert decode_metadata(_delimited(message), source="x").digest_type is DigestType.HMAC
    message.ClearField("digestType")
    with pytest.raises(Corrupt, match="password without a digest"):
        decode_metadata(_delimited(message), source="x")


def _delimited(message: LedgerMetadataFormat) -> bytes:
    body = message.SerializePartialToString()
    assert len(body) < 128
    return MAGIC + b"3\n" + bytes((len(body),)) + body


def test_bytes_behind_a_format_3_record_are_ignored() -> None:
    assert decode_metadata(CLOSED_3_BYTES + b"junk", source="x") == CLOSED_3


def test_fields_of_a_later_protobuf_are_skipped_in_format_3_and_refused_in_text() -> None:
    body = OPEN_3_BYTES[31:] + b"\xa0\x06\x05" + b"\xaa\x06\x01x" + b"\xb1\x06" + bytes(8) + b"\xb5\x06" + bytes(4)
    assert decode_metadata(MAGIC + b"3\n" + bytes((len(body),)) + body, source="x") == OPEN_3
    with pytest.raises(Corrupt, match="unknown field"):
        decode_metadata(CLOSED_2_BYTES + b"later: 1\n", source="x")


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", TornTail, "header"),
        (b"BookieMeta", TornTail, "header"),
        (MAGIC, TornTail, "header"),
        (b"something else", Corrupt, "not ledger metadata"),
        (MAGIC + b"12345678901\n", Corrupt, "not ledger metadata"),
        (MAGIC + b"4\n", Corrupt, "format"),
        (MAGIC + b"0\n", Corrupt, "format"),
        (OPEN_3_BYTES[:-1], TornTail, "51 bytes"),
        (OPEN_3_BYTES.replace(b"\x28\x01", b"\x28\x09"), Corrupt, "ledger state"),
        (OPEN_3_BYTES.replace(b"\x38\x03", b"\x38\x09"), Corrupt, "digest type"),
        (OPEN_3_BYTES.replace(b"\x10\x02", b"\x10\x03", 1), Corrupt, "2 bookies, not 3"),
        (CLOSED_2_BYTES.replace(b"CLOSED", b"SHUT"), Corrupt, "ledger state"),
        (CLOSED_2_BYTES.replace(b"quorumSize: 2\n", b"", 1), Corrupt, "missing field"),
        (CLOSED_2_BYTES.replace(b"firstEntryId: 100", b"firstEntryId: 0"), Corrupt, "not ascending"),
        (CLOSED_2_BYTES[:-3], Corrupt, "the end"),
        (CLOSED_1_BYTES.replace(b"149", b"x"), Corrupt, "an entry id"),
        (CLOSED_1_BYTES + b"\n7\tbk1\tbk2\tbk3\n", Corrupt, "the end"),
        (MAGIC + b"1\n2\n3", TornTail, "length"),
    ],
)
def test_wrong_bytes_name_their_place(data: bytes, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        decode_metadata(data, source="/ledgers/00/0000/L0000")


def test_format_1_refuses_what_it_cannot_say() -> None:
    for change in (
        {"digest_type": DigestType.CRC32, "password": b""},
        {"custom_metadata": {"a": b""}},
        {"ctime_ms": 1},
        {"ack_quorum_size": 1},
    ):
        with pytest.raises(UsageError):
            encode_metadata(replace(CLOSED_1, **change))
    with pytest.raises(UsageError):
        encode_metadata(replace(CLOSED_3, format_version=4))


BOOKIES = st.from_regex(r"[a-z0-9.\-]{1,12}:[0-9]{1,5}", fullmatch=True).map(BookieId)


@st.composite
def metadata(draw: st.DrawFn, versions: tuple[int, ...] = (1, 2, 3)) -> LedgerMetadata:
    version = draw(st.sampled_from(versions))
    size = draw(st.integers(1, 5))
    write = draw(st.integers(1, size))
    starts = sorted(draw(st.sets(st.integers(0, 2**62), min_size=1, max_size=4)))
    state = draw(st.sampled_from(LedgerState))
    closed = state is LedgerState.CLOSED
    rich = version > 1
    return LedgerMetadata(
        ensemble_size=size,
        write_quorum_size=write,
        ack_quorum_size=draw(st.integers(1, write)) if rich else write,
        ensembles=tuple(
            Ensemble(EntryId(s), tuple(draw(st.lists(BOOKIES, min_size=size, max_size=size)))) for s in starts
        ),
        state=state,
        length=draw(st.integers(0, 2**63 - 1)) if closed else 0,
        last_entry_id=EntryId(draw(st.integers(-1, 2**63 - 1))) if closed else NO_ENTRY,
        digest_type=draw(st.sampled_from(DigestType)) if rich else None,
        password=draw(st.binary(max_size=20)) if rich else None,
        ctime_ms=draw(st.none() | st.integers(0, 2**62)) if rich else None,
        custom_metadata=draw(st.dictionaries(st.text(max_size=8), st.binary(max_size=20), max_size=3)) if rich else {},
        creation_token=draw(st.integers(0, 2**63 - 1)) if version == 3 else 0,
        format_version=version,
    )


@given(metadata())
def test_round_trip(value: LedgerMetadata) -> None:
    assert decode_metadata(encode_metadata(value), source="x") == value


@given(metadata(versions=(2, 3)))
def test_protobuf_reads_it_the_same(value: LedgerMetadata) -> None:
    data = encode_metadata(value)
    header, _, body = data.partition(b"\n")
    message = LedgerMetadataFormat()
    if value.format_version == 2:
        text_format.Parse(body, message)
        again = header + b"\n" + text_format.MessageToString(message).encode()
    else:
        start = 1 if body[0] < 128 else 2
        message.ParseFromString(body[start:])
        again = header + b"\n" + body[:start] + message.SerializeToString(deterministic=False)
    assert decode_metadata(again, source="x") == value
    if value.format_version == 3:
        assert again == data


@given(st.binary(max_size=300))
def test_any_bytes_raise_only_bad_bytes(data: bytes) -> None:
    for head in (
        b"",
        MAGIC,
        MAGIC + b"1\n",
        MAGIC + b"2\n",
        MAGIC + b"3\n",
        MAGIC + b"3\n" + bytes((len(data) % 128,)),
    ):
        fault_offset(decode_metadata, head + data, source="x")


@given(st.data())
def test_damaged_records_raise_only_bad_bytes(data: st.DataObject) -> None:
    whole = bytearray(data.draw(st.sampled_from([OPEN_3_BYTES, CLOSED_3_BYTES, CLOSED_2_BYTES, CLOSED_1_BYTES])))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    fault_offset(decode_metadata, bytes(whole[: data.draw(st.integers(0, len(whole)))]), source="x")

"""The short cut through ledger metadata tells the same as the long way, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bkctl.codec import metadata_scan
from bkctl.codec.ledger_metadata import decode_metadata, decode_thoroughly, encode_metadata
from bkctl.codec.metadata_scan import scan
from bkctl.errors import BadBytes
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata, LedgerState
from tests.unit.codec.test_ledger_metadata import CLOSED_2_BYTES, CLOSED_3, CLOSED_3_BYTES, OPEN_3, OPEN_3_BYTES

BOOKIES = [BookieId(f"{'host' * (number + 1)}-{number}:3181") for number in range(12)]
INT64 = st.integers(0, 2**63 - 1)


@st.composite
def metadata(draw: st.DrawFn) -> LedgerMetadata:
    size = draw(st.integers(1, 9))
    write_quorum = draw(st.integers(1, size))
    firsts = sorted(draw(st.sets(st.integers(0, 2**40), min_size=1, max_size=3)))
    members = st.lists(st.sampled_from(BOOKIES), min_size=size, max_size=size).map(tuple)
    state = draw(st.sampled_from(LedgerState))
    closed, sealed = state is LedgerState.CLOSED, draw(st.booleans())
    return LedgerMetadata(
        ensemble_size=size,
        write_quorum_size=write_quorum,
        ack_quorum_size=draw(st.integers(1, write_quorum)),
        ensembles=tuple(Ensemble(EntryId(first), draw(members)) for first in firsts),
        state=state,
        length=draw(INT64) if closed else 0,
        last_entry_id=EntryId(draw(st.integers(-1, 2**63 - 1)) if closed else -1),
        digest_type=draw(st.sampled_from(DigestType)) if sealed else None,
        password=draw(st.binary(max_size=20)) if sealed else None,
        ctime_ms=draw(st.none() | INT64),
        custom_metadata=draw(st.dictionaries(st.text(max_size=20), st.binary(max_size=200), max_size=3)),
        creation_token=draw(INT64),
    )


def both(data: bytes) -> LedgerMetadata | None:
    """What the long way says; the short one must say the same, None where it raises."""
    try:
        expected = decode_thoroughly(data, source="long way")
    except BadBytes:
        assert scan(data) is None
        return None
    assert decode_metadata(data, source="short cut") == expected
    return expected


@given(metadata())
@example(CLOSED_3)
@example(OPEN_3)
def test_what_is_written_is_read_by_the_short_cut(written: LedgerMetadata) -> None:
    data = encode_metadata(written)
    found = scan(data)
    assert found is not None
    assert found.ensembles == written.ensembles
    assert found.closed == written.closed
    assert found.ctime_ms == written.ctime_ms
    assert both(data) == written


@given(st.data())
def test_damage_is_judged_by_the_long_way(data: st.DataObject) -> None:
    raw = bytearray(encode_metadata(data.draw(metadata())))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(28, len(raw) - 1))
        match data.draw(st.sampled_from(("change", "cut", "insert", "delete"))):
            case "change":
                raw[at] = data.draw(st.sampled_from((0, 1, 2, 3, 0x0A, 0x32, 0x60, 0x7F, 0x80, 0xFF)))
            case "cut":
                del raw[max(at, 40) :]
            case "insert":
                raw[at:at] = data.draw(st.binary(min_size=1, max_size=3))
            case "delete":
                del raw[at : at + 2]
    both(bytes(raw))


def test_golden_records() -> None:
    for raw in (OPEN_3_BYTES, CLOSED_3_BYTES):
        assert scan(raw) is not None
        assert both(raw) is not None
        for end in range(len(raw)):
            both(raw[:end])
        both(raw + b"\0")
    assert scan(CLOSED_2_BYTES) is None
    assert both(CLOSED_2_BYTES) is not None


def test_ensembles_that_are_alike_are_one_object_and_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (scan(encode_metadata(OPEN_3)) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.ensembles[0] is second.ensembles[0]
    monkeypatch.setattr(metadata_scan, "ENSEMBLES_KEPT_MAX", 2)
    for number in range(1_000, 1_005):
        scan(encode_metadata(LedgerMetadata(1, 1, 1, (Ensemble(EntryId(number), (BOOKIES[0],)),))))
        assert len(metadata_scan._ensembles) <= 2

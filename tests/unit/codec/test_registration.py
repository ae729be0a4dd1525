"""BookieServiceInfo: the worked example, Java's order, ids as addresses, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.proto.DataFormats_pb2 import BookieServiceInfoFormat
from bkctl.codec.registration import address_in_id, bookie_address, decode_service_info, encode_service_info
from bkctl.errors import Corrupt
from bkctl.model.bookie import BOOKIE_PROTOCOL, HTTP_PROTOCOL, BookieServiceInfo, Endpoint
from tests.unit.codec.damage import fault_offset

WORKED = BookieServiceInfo(
    (
        Endpoint("httpserver", 8080, "0.0.0.0", HTTP_PROTOCOL),
        Endpoint("bookie", 3181, "bk1", BOOKIE_PROTOCOL),
    )
)
WORKED_BYTES = bytes.fromhex(
    "321e0a0a687474707365727665 7210903f1a07302e302e302e30220468747470"
    "321c0a06626f6f6b696510ed181a03626b31220a626f6f6b69652d727063".replace(" ", "")
)


def test_worked_example() -> None:
    assert len(WORKED_BYTES) == 62
    assert encode_service_info(WORKED) == WORKED_BYTES
    assert decode_service_info(WORKED_BYTES, source="x") == WORKED


def test_the_bookie_is_found_by_protocol_not_by_place() -> None:
    assert bookie_address("whatever", WORKED, source="x") == ("bk1", 3181)


def test_without_bytes_the_id_is_the_address() -> None:
    nothing = decode_service_info(b"", source="x")
    assert nothing == BookieServiceInfo()
    assert encode_service_info(nothing) == b""
    assert bookie_address("10.0.0.1:3181", nothing, source="x") == ("10.0.0.1", 3181)
    for bookie_id in ("bk1", ":3181", "bk1:", "bk1:x", "bk1:65536", "bk1:999999", "bk1:²"):
        with pytest.raises(Corrupt, match="bookie address"):
            address_in_id(bookie_id, source="x")


@pytest.mark.parametrize(
    "data",
    [
        b"\x32\x02\x0a\x00",  # an endpoint without a port
        b"\x32\x05\x0a\x01a\x10\x01",  # without host and protocol
        WORKED_BYTES[:-1],
        WORKED_BYTES.replace(b"\x10\xed\x18", b"\x10\xff\xff\x7f"[:3]),
        b"\x30\x01",
    ],
)
def test_wrong_bytes(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_service_info(data, source="x")


TEXT = st.text(max_size=8)
TEXTS = st.lists(TEXT, max_size=2).map(tuple)
ENDPOINTS = st.builds(Endpoint, TEXT, st.integers(0, 65535), TEXT, TEXT, TEXTS, TEXTS)
INFOS = st.builds(
    BookieServiceInfo, st.lists(ENDPOINTS, max_size=3).map(tuple), st.dictionaries(TEXT, TEXT, max_size=3)
)


@given(INFOS)
def test_round_trip_and_protobuf_agrees(info: BookieServiceInfo) -> None:
    data = encode_service_info(info)
    assert decode_service_info(data, source="x") == info
    message = BookieServiceInfoFormat.FromString(data)
    assert [(e.id, e.port, e.host, e.protocol) for e in message.endpoints] == [
        (e.id, e.port, e.host, e.protocol) for e in info.endpoints
    ]
    assert dict(message.properties) == info.properties
    assert decode_service_info(message.SerializeToString(), source="x") == info


@given(st.binary(max_size=60), st.integers(0, len(WORKED_BYTES)))
def test_any_bytes_raise_only_bad_bytes(data: bytes, cut: int) -> None:
    fault_offset(decode_service_info, data, source="x")
    fault_offset(decode_service_info, WORKED_BYTES[:cut] + data, source="x")

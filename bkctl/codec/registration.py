"""BookieServiceInfo: what a bookie registers under its id, where its addresses are.

    BookieServiceInfoFormat      6 endpoints*   7 properties* {1 key, 2 value}      (1 to 5 do not exist)
    Endpoint                     1 id   2 port   3 host   4 protocol   5 auth*   6 extensions*

Java writes the endpoint `httpserver` before `bookie`, so a client searches by protocol and never takes the first. No
bytes at all mean an old bookie: its host and port are those in its id.
Source: BookieServiceInfo.java, ZKRegistrationManager.java, DefaultBookieAddressResolver.java, DataFormats.proto.
"""

from __future__ import annotations

from typing import Final

from bkctl.codec.protobuf import Message, bytes_field, text_field, varint_field
from bkctl.errors import Corrupt
from bkctl.model.bookie import BOOKIE_PROTOCOL, BookieServiceInfo, Endpoint

PORT_MAX: Final = 65535
_ENDPOINT, _PROPERTY = 6, 7


def encode_service_info(info: BookieServiceInfo) -> bytes:
    """The bytes of a registration; endpoints and properties keep their order."""
    parts = []
    for e in info.endpoints:
        body = [text_field(1, e.id), varint_field(2, e.port), text_field(3, e.host), text_field(4, e.protocol)]
        body += (text_field(5, auth) for auth in e.auth)
        body += (text_field(6, extension) for extension in e.extensions)
        parts.append(bytes_field(_ENDPOINT, b"".join(body)))
    for key, value in info.properties.items():
        parts.append(bytes_field(_PROPERTY, text_field(1, key) + text_field(2, value)))
    return b"".join(parts)


def decode_service_info(data: bytes, *, source: str) -> BookieServiceInfo:
    """Reads a registration; without bytes it has no endpoints.

    Raises:
        Corrupt: not a BookieServiceInfoFormat.
    """
    message = Message(data, source=source)
    endpoints = []
    for raw, offset in message.every(_ENDPOINT):
        part = Message(raw, source=source, base=offset)
        port = part.required(2, part.integer(2))
        if not 0 <= port <= PORT_MAX:
            raise Corrupt("port", source=source, offset=offset, expected=f"0 to {PORT_MAX}", found=port)
        endpoints.append(
            Endpoint(
                id=part.required(1, part.text(1)),
                port=port,
                host=part.required(3, part.text(3)),
                protocol=part.required(4, part.text(4)),
                auth=tuple(part.texts(5)),
                extensions=tuple(part.texts(6)),
            )
        )
    properties = {}
    for raw, offset in message.every(_PROPERTY):
        pair = Message(raw, source=source, base=offset)
        properties[pair.text(1) or ""] = pair.text(2) or ""
    return BookieServiceInfo(tuple(endpoints), properties)


def address_in_id(bookie_id: str, *, source: str) -> tuple[str, int]:
    """The host and port that an id of the form host:port carries.

    Raises:
        Corrupt: the id has no port.
    """
    host, _, port = bookie_id.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= PORT_MAX):
        raise Corrupt("bookie address", source=source, offset=0, expected="host:port as the id", found=bookie_id)
    return host, int(port)


def bookie_address(bookie_id: str, info: BookieServiceInfo, *, source: str) -> tuple[str, int]:
    """Where clients connect: the first endpoint that speaks bookie-rpc, else the id itself.

    Raises:
        Corrupt: neither has an address.
    """
    endpoint = info.endpoint(BOOKIE_PROTOCOL)
    return (endpoint.host, endpoint.port) if endpoint is not None else address_in_id(bookie_id, source=source)

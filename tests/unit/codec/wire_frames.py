"""Captured frames of both wire protocols, and the parts of worked bytes."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from tests.unit.golden_wire import Frame, frames

i64 = st.integers(-(2**63), 2**63 - 1)
keys = st.binary(min_size=20, max_size=20)
KEY = bytes.fromhex("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")
ENTRY = bytes.fromhex("0000000000000007000000000000002a0000000000000029000000000000303917809dcc68656c6c6f")
SECOND = bytes.fromhex("0000000000000007000000000000002b000000000000002a000000000000303e9a0e4a1d776f726c64")


@cache
def captured(protocol: int, *, from_client: bool) -> list[Frame]:
    """The captured requests, or replies, of one protocol."""
    return [frame for frame in frames() if frame.protocol == protocol and frame.from_client is from_client]


def frame_name(frame: Frame) -> str:
    return f"{frame.file}:{frame.number}"


def from_text(text: str) -> bytes:
    text = text.replace("<K>", KEY.hex()).replace("<ENT>", ENTRY.hex()).replace("<E43>", SECOND.hex())
    return bytes.fromhex(text.replace(" ", ""))


def damaged(frame: Frame, data: st.DataObject) -> bytes:
    """The body of a frame with some bytes changed, and truncated."""
    body = bytearray(frame.data[4:])
    for _ in range(data.draw(st.integers(1, 3))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    return bytes(body[: data.draw(st.integers(0, len(body)))])

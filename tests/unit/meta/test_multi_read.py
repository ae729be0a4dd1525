"""Many reads in one request: the bytes of the request and of replies."""

from __future__ import annotations

import struct

import pytest
from kazoo.exceptions import NoAuthError

from bkctl.meta.multi_read import MultiRead
from bkctl.meta.store import Node, Stat, Version

END = struct.pack(">iBi", -1, 1, -1)


def node_reply(data: bytes | None, *, version: int, owner: int = 0, children: int = 0) -> bytes:
    stat = struct.pack(">qqqqiiiqiiq", 1, 2, 1000, 2000, version, 7, 0, owner, len(data or b""), children, 3)
    size = -1 if data is None else len(data)
    return struct.pack(">iBi", 4, 0, -1) + struct.pack(">i", size) + (data or b"") + stat


def error_reply(code: int) -> bytes:
    return struct.pack(">iBi", -1, 0, code) + struct.pack(">i", code)


def test_a_request_has_a_header_and_a_path_for_each_read() -> None:
    request = MultiRead(("/a", "/é"))
    assert request.type == 22
    header = bytes.fromhex("00000004 00 ffffffff".replace(" ", ""))
    assert request.serialize() == header + b"\0\0\0\x02/a\0" + header + b"\0\0\0\x03/\xc3\xa9\0" + END


def test_a_reply_is_nodes_and_none_for_missing_ones() -> None:
    reply = node_reply(b"data", version=5, owner=9, children=2) + error_reply(-101) + node_reply(b"", version=0) + END
    assert MultiRead.deserialize(b"head" + reply, 4) == [
        Node(b"data", Stat(Version(5), 1000, 2000, 9, 7, 2)),
        None,
        Node(b"", Stat(Version(0), 1000, 2000, 0, 7, 0)),
    ]
    assert MultiRead.deserialize(END, 0) == []


def test_null_data_is_read_as_no_bytes() -> None:
    (node,) = MultiRead.deserialize(node_reply(None, version=1) + END, 0)
    assert node is not None
    assert node.data == b""


def test_another_error_of_the_server_is_raised() -> None:
    with pytest.raises(NoAuthError):
        MultiRead.deserialize(node_reply(b"", version=0) + error_reply(-102) + END, 0)

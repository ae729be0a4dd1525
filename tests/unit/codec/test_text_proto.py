"""Protobuf text: against protobuf's own printer and parser, and damage."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.proto.DataFormats_pb2 import CookieFormat, LedgerMetadataFormat
from bkctl.codec.text_proto import Word, decode, encode
from bkctl.errors import Corrupt
from tests.unit.codec.damage import fault_offset


def test_every_byte_is_escaped_as_java_does() -> None:
    expected = "".join(
        {7: r"\a", 8: r"\b", 9: r"\t", 10: r"\n", 11: r"\v", 12: r"\f", 13: r"\r"}.get(b)
        or {34: r"\"", 39: r"\'", 92: r"\\"}.get(b)
        or (chr(b) if 32 <= b < 127 else f"\\{b:03o}")
        for b in range(256)
    )
    assert encode([("x", bytes(range(256)))]) == f'x: "{expected}"\n'.encode()


def test_fields_and_messages() -> None:
    text = encode([("n", -5), ("w", Word("CLOSED")), ("m", [("s", "ä"), ("k", [("b", b"\x00")])])])
    assert text == b'n: -5\nw: CLOSED\nm {\n  s: "\\303\\244"\n  k {\n    b: "\\000"\n  }\n}\n'
    message = decode(text, source="x")
    assert message.only("n", "w", "m").integer("n") == -5
    assert message.word("w") == ("CLOSED", text.index(b"w:"))
    inner = message.messages("m")[0]
    assert (inner.text("s"), inner.messages("k")[0].raw("b")) == ("ä", b"\x00")
    assert (inner.text("none"), inner.texts("none"), inner.messages("none")) == (None, [], [])


@pytest.mark.parametrize(
    "text",
    [
        b"a: 1 b: 2",
        b"a:1;b:2,",
        b"# note\na : 1 # more\n b: 0x2",
        b"\r\n a: 1\tb: 2\n",
    ],
)
def test_reads_more_than_is_written(text: bytes) -> None:
    message = decode(text, source="x")
    assert (message.integer("a"), message.integer("b")) == (1, 2)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (rb'"a" "b"', b"ab"),
        (rb"'it is \"so\"'", b'it is "so"'),
        (rb'"\x41\101\7\?"', b"AA\x07?"),
        ('"ä"'.encode(), "ä".encode()),
    ],
)
def test_strings(text: bytes, value: bytes) -> None:
    assert decode(b"s: " + text, source="x").raw("s") == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a", "colon"),
        (b"a 1", "colon"),
        (b"a:", "value"),
        (b"a: -", "token"),
        (b"a: 99999999999999999999", "64 bits"),
        (b"a: 123456789012345678901", "token"),
        (b'a: "x', "token"),
        (b'a: "x\ny"', "token"),
        (rb'a: "\q"', "escape"),
        (rb'a: "\777"', "escape"),
        (b"a {", "the end"),
        (b"a { b: 1 >", "name"),
        (b"}", "a name"),
        (b"a { b { c { d { } } } }", "deep"),
        (b"1: 2", "name"),
        (b"\xff", "token"),
    ],
)
def test_wrong_text(text: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        decode(text, source="x")


def test_accessors_check_the_kind() -> None:
    message = decode(b'n: 1 s: "x" w: W m { } n2: 1 n2: 2 bad: "\\377"', source="x")
    for ask in (
        lambda: message.integer("s"),
        lambda: message.text("n"),
        lambda: message.raw("w"),
        lambda: message.word("s"),
        lambda: message.messages("n"),
        lambda: message.integer("n2"),
        lambda: message.text("bad"),
        lambda: message.texts("m"),
        lambda: message.only("n"),
    ):
        with pytest.raises(Corrupt):
            ask()


@given(st.text(), st.text(max_size=5), st.text(max_size=5))
def test_protobuf_reads_what_we_write(host: str, journal: str, ledgers: str) -> None:
    text = encode([("bookieHost", host), ("journalDir", journal), ("ledgerDirs", ledgers)])
    parsed = text_format.Parse(text, CookieFormat())
    assert (parsed.bookieHost, parsed.journalDir, parsed.ledgerDirs) == (host, journal, ledgers)


@given(st.binary(max_size=40), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_we_read_what_protobuf_writes(password: bytes, ctime: int, one_line: bool) -> None:
    written = LedgerMetadataFormat(
        quorumSize=1, ensembleSize=2, length=3, state=LedgerMetadataFormat.CLOSED, password=password, ctime=ctime
    )
    written.segment.add(ensembleMember=["a:1"], firstEntryId=7)
    message = decode(text_format.MessageToString(written, as_one_line=one_line).encode(), source="x")
    assert (message.raw("password"), message.integer("ctime")) == (password, ctime)
    assert message.messages("segment")[0].texts("ensembleMember") == ["a:1"]


@given(st.text(alphabet="ab:{}<>\"\\'\n 01-#;,x", max_size=40), st.binary(max_size=20))
def test_any_text_raises_only_bad_bytes(text: str, tail: bytes) -> None:
    fault_offset(decode, text.encode() + tail, source="x")

"""JSON and text in Java's form; the expected texts are what Java 17 and its bookie made."""

from __future__ import annotations

from bkdaemon.bookie.http.jackson import dumps, hash_map, text_of

from tests.unit.daemon.bookie.http.clients import A, B


def test_values_are_printed_as_jackson_prints_them() -> None:
    assert dumps({}) == "{ }"
    assert dumps([]) == "[ ]"
    assert dumps([1, 2]) == "[ 1, 2 ]"
    assert dumps([{"a": 1}, {"b": [True, None]}]) == '[ {\n  "a" : 1\n}, {\n  "b" : [ true, null ]\n} ]'
    assert dumps({"0": {"ids": [{"id": "x"}]}}) == '{\n  "0" : {\n    "ids" : [ {\n      "id" : "x"\n    } ]\n  }\n}'
    assert dumps('a"\\\b\t\n\x0f\x7fä') == '"a\\"\\\\\\b\\t\\n\\u000F\x7fä"'
    assert list(hash_map({A: 0, B: 0})) == [B, A]
    names = ["journal files", "entrylog files", "index files"]
    assert list(hash_map(dict.fromkeys(names, 0))) == ["index files", "journal files", "entrylog files"]


def test_bytes_are_decoded_as_java_decodes_them() -> None:
    """What Java 17 made of them; the first are a ledger's time of creation, as an hour of a day has it."""
    marks = {b"P\xb1\xed\xa8\x80\xb54": (1, 3), b"\xed\xa0": (0, 1), b"\xed\xbfA": (0, 1), b"\xf0\x90\x80": (0, 1)}
    for data, (before, count) in marks.items():
        assert text_of(data) == data[:before].decode() + "\ufffd" * count + data[-1:].decode(errors="ignore")
    assert text_of(b"\xed\xa0\xed\xbf\xbf\xbf") == "\ufffd" * 3
    assert text_of(b"\xed\x9f\xbf\xee\x80\x80\xe0\x80\x80\xf4\x90\x80\x80") == "\ud7ff\ue000" + "\ufffd" * 7

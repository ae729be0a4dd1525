from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.cli.command import Command, Effect
from bkctl.cli.names import expand
from bkctl.cli.render import CHUNK_ROWS, Format, Listing, Renderer, cell, moment, plain, rfc3339, to_yaml
from bkctl.model.text import escape

COMMAND = Command(Effect.READS, ("x",), columns=("ledger_id", "state"), wide=("custom_metadata",), name="ledger_id")


class State(IntEnum):
    OPEN = 1


class Word(StrEnum):
    READ_WRITE = "rw"


@dataclass(frozen=True)
class Row:
    ledger_id: int
    state: State
    custom_metadata: dict[str, bytes]
    ctime_ms: int = 0


class Pair(NamedTuple):
    one: int
    two: bytes


ROWS = [Row(7, State.OPEN, {"a": b"x\xff"}), Row(2**63 - 1, State.OPEN, {})]


def text(style: str, listing: object, *, terminal: bool = False, item: bool = False) -> str:
    out = io.StringIO()
    renderer = Renderer(out, Format(style), COMMAND, terminal=terminal, color=False)
    if item:
        renderer.item(listing)
    else:
        renderer.items(listing if isinstance(listing, Listing) else Listing(listing))  # type: ignore[arg-type]
    return out.getvalue()


def test_json_list_has_the_frame() -> None:
    answer = json.loads(text("json", Listing(ROWS, as_of="now", warnings=["w"])))
    assert answer == {
        "items": [
            {"ledger_id": 7, "state": "OPEN", "custom_metadata": {"a": "eP8="}, "ctime_ms": 0},
            {"ledger_id": 2**63 - 1, "state": "OPEN", "custom_metadata": {}, "ctime_ms": 0},
        ],
        "as_of": "now",
        "partial": False,
        "warnings": ["w"],
    }
    assert json.loads(text("json", [])) == {"items": [], "as_of": None, "partial": False, "warnings": []}


def test_json_item_is_the_object_itself() -> None:
    assert json.loads(text("json", ROWS[0], item=True))["ledger_id"] == 7


def test_jsonl_is_one_item_a_line() -> None:
    assert [json.loads(line)["ledger_id"] for line in text("jsonl", ROWS).splitlines()] == [7, 2**63 - 1]
    assert text("jsonl", ROWS[0], item=True).count("\n") == 1


def test_a_list_that_breaks_off_says_so() -> None:
    def rows() -> object:
        yield ROWS[0]
        raise OSError("gone")

    out = io.StringIO()
    renderer = Renderer(out, Format.JSON, COMMAND, terminal=False, color=False)
    with pytest.raises(OSError, match="gone"):
        renderer.items(Listing(rows()))  # type: ignore[arg-type]
    answer = json.loads(out.getvalue())
    assert answer["partial"] is True
    assert len(answer["items"]) == 1


@pytest.mark.parametrize("form", list(Format))
def test_a_list_that_fails_before_its_first_item_writes_nothing(form: Format) -> None:
    def rows() -> Iterator[object]:
        raise OSError("gone")
        yield

    out = io.StringIO()
    renderer = Renderer(out, form, COMMAND, terminal=False, color=False)
    with pytest.raises(OSError, match="gone"):
        renderer.items(Listing(rows()))
    assert out.getvalue() == ""


def test_names() -> None:
    assert text("name", ROWS) == f"7\n{2**63 - 1}\n"
    assert text("name", ROWS[0], item=True) == "7\n"
    assert text("name", ["plain"]) == "plain\n"


def test_tsv_and_csv_have_all_columns_and_escape() -> None:
    rows = [{"ledger_id": 1, "state": "a\tb\n\\", "custom_metadata": None}]
    assert text("tsv", rows) == "ledger_id\tstate\tcustom_metadata\n1\ta\\tb\\n\\\\\t\n"
    assert list(csv.reader(io.StringIO(text("csv", rows)))) == [
        ["ledger_id", "state", "custom_metadata"],
        ["1", "a\\tb\\n\\\\", ""],
    ]
    assert text("tsv", []) == "ledger_id\tstate\tcustom_metadata\n"


def test_table_and_wide_when_piped() -> None:
    assert [line.split() for line in text("table", ROWS).splitlines()] == [
        ["ledger_id", "state"],
        ["7", "OPEN"],
        [str(2**63 - 1), "OPEN"],
    ]
    assert "a=base64:eP8=" in text("wide", ROWS)
    assert text("table", []).split() == ["ledger_id", "state"]


def test_table_on_a_terminal_has_the_same_cells() -> None:
    drawn = text("wide", ROWS, terminal=True)
    assert "ledger_id" in drawn
    assert "a=base64:eP8=" in drawn
    assert "\x1b" not in drawn


def test_long_tables_have_one_heading() -> None:
    drawn = text("table", ({"ledger_id": n, "state": "OPEN"} for n in range(2 * CHUNK_ROWS + 5)))
    assert drawn.count("ledger_id") == 1
    assert len(drawn.splitlines()) == 2 * CHUNK_ROWS + 6


def test_columns_stay_where_they_were() -> None:
    out = io.StringIO()
    sink = Renderer(out, Format.TABLE, COMMAND, terminal=False, color=False).stream(Listing(()))
    sink.add([{"ledger_id": "a long name of a ledger", "state": "x"}])
    sink.flush()
    sink.add([{"ledger_id": "b", "state": "y"}])
    sink.end()
    first, second = out.getvalue().splitlines()[1:]
    assert first.index("x") == second.index("y")


def test_item_as_table_hides_the_machines_time() -> None:
    shown = text("table", {"ledger_id": 3, **moment("ctime", 0)}, item=True)
    assert [line.split() for line in shown.splitlines()] == [["ledger_id", "3"], ["ctime", "1970-01-01T00:00:00.000Z"]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (State.OPEN, "OPEN"),
        (Word.READ_WRITE, "rw"),
        (b"\x00", "AA=="),
        (Path("/x"), "/x"),
        (Pair(1, b"a"), {"one": 1, "two": "YQ=="}),
        ({3, 1}, [1, 3]),
        ((1, None, True), [1, None, True]),
        ({State.OPEN: 1}, {"OPEN": 1}),
    ],
)
def test_plain(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_plain_refuses_what_has_no_form() -> None:
    with pytest.raises(TypeError, match="object"):
        plain(object())


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "-"), (True, "yes"), (b"ok", "ok"), ("a\nb", "a\\nb"), ({"k": b"v"}, "k=v"), (["b1", "b2"], "b1, b2")],
)
def test_cells(value: object, expected: str) -> None:
    assert cell(value) == expected


def test_times() -> None:
    assert rfc3339(1700000000123) == "2023-11-14T22:13:20.123Z"
    assert rfc3339(2**62) == f"{2**62} ms"
    assert moment("ctime", None) == {"ctime": None, "ctime_ms": None}


def test_yaml() -> None:
    value = {"a": [{"b": 1, "c": []}, "no"], "d": {}, "e": {"f": None}, "g h": "x: y", "m": [[1, 2], [3]]}
    assert to_yaml(value) == (
        'a:\n  - b: 1\n    c: []\n  - "no"\nd: {}\ne:\n  f: null\n"g h": "x: y"\nm:\n  - - 1\n    - 2\n  - - 3\n'  # type: ignore[arg-type]
    )
    assert text("yaml", [{"a": 1}]) == "items:\n- a: 1\nas_of: null\npartial: false\nwarnings: []\n"


HOSTILE = [
    "b\nx",
    "\x1b[31mred",
    "\x9b33m",
    "\x7f",
    "a\rb\tc",
    "back\\slash",
    " lead ",
    "\u202e\u2028",
    "\U000e0001",
    "\udc9b",
]
RAW = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]")
NAMED = Command(Effect.READS, ("x",), columns=("topic", "more"), name="topic")


def named(style: str, name: str, *, terminal: bool = False, item: bool = False) -> str:
    out = io.StringIO()
    renderer = Renderer(out, Format(style), NAMED, terminal=terminal, color=True)
    row = {"topic": name, "more": {name: [name]}, name: name}
    if item:
        renderer.item(row)
    else:
        renderer.items(Listing([row], warnings=[name]))
    return out.getvalue()


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("style", list(Format))
def test_no_format_prints_a_control_character_of_the_data(style: str, name: str) -> None:
    for terminal in (False, True):
        for item in (False, True):
            shown = named(style, name, terminal=terminal, item=item)
            assert not RAW.search(shown)
            assert shown.encode(errors="surrogateescape").decode(errors="replace").count("\ufffd") == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_has_the_same_escape_in_all_texts_and_is_itself_in_json(name: str) -> None:
    escaped = escape(name)
    assert named("name", name) == escaped + "\n"
    assert named("tsv", name).splitlines()[1].split("\t")[0] == escaped
    assert list(csv.reader(io.StringIO(named("csv", name))))[1][0] == escaped
    for terminal in (False, True):
        assert escaped in named("table", name, terminal=terminal)
    assert json.loads(named("json", name))["items"][0]["topic"] == name
    assert json.loads(named("jsonl", name))["topic"] == name


@pytest.mark.parametrize("name", HOSTILE)
def test_a_listed_name_is_read_back(name: str) -> None:
    assert list(expand(["-"], io.BytesIO(named("name", name).encode()))) == [name]


def test_json_in_a_cell_is_escaped_once_more_where_cells_are_unescaped() -> None:
    rows = [{"ledger_id": 1, "state": ["a\n"], "custom_metadata": None}]
    assert text("tsv", rows).splitlines()[1] == '1\t["a\\\\n"]\t'


def test_yaml_escapes_characters_beyond_the_basic_plane_as_yaml_does() -> None:
    assert to_yaml("\U000e0001\x9b") == '"\\U000e0001\\u009b"\n'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), JSON))
def test_json_round_trip(value: dict[str, object]) -> None:
    assert json.loads(text("json", value, item=True)) == value
    assert json.loads(text("jsonl", value, item=True)) == value


@given(st.lists(st.fixed_dictionaries({"ledger_id": st.integers(), "state": st.text()}), max_size=4))
def test_tsv_rows_stay_rows(rows: list[dict[str, object]]) -> None:
    lines = text("tsv", rows).split("\n")
    assert len(lines) == len(rows) + 2
    assert all(line.count("\t") == 2 for line in lines[:-1])


@given(JSON)
def test_yaml_never_breaks_a_scalar_over_lines(value: object) -> None:
    for line in to_yaml(plain(value)).splitlines():
        assert line.strip()

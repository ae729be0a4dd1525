"""How the copies of running bookies are divided among tasks: each bookie, each ledger, once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as parquet
from bkinspect.audit.schemas import LEDGERS, arrow_schema
from bkinspect.audit.sources.live import (
    EVERYWHERE_BOOKIES_MAX,
    LEDGERS_A_PARTITION,
    LivePartition,
    LiveReader,
)
from bkinspect.audit.sources.live_rows import COPIES, Wanted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bkctl.model.placement import write_set

OURS = ("127.0.0.1", 7)


def ledger(ledger_id: int, bookies: list[str], length: int | None) -> dict[str, Any]:
    closed = length is not None
    return {
        **dict.fromkeys(LEDGERS.names),
        "ledger_id": ledger_id,
        "state": "CLOSED" if closed else "OPEN",
        "write_quorum_size": 2,
        "length": length,
        "last_entry_id": 9 if closed else None,
        "ensembles": [{"first_entry_id": 0, "bookies": bookies}],
    }


class Reader(LiveReader):
    """A reader that need not ask who is there."""

    present: dict[str, tuple[str, int] | None]

    async def _present(self) -> dict[str, tuple[str, int] | None]:
        return self.present


def reader_of(
    folder: Path, ledgers: list[dict[str, Any]], present: dict[str, tuple[str, int] | None], **options: str
) -> Reader:
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.parquet"):
        old.unlink()
    half = len(ledgers) // 2
    for number, rows in enumerate((ledgers[:half], ledgers[half:])):
        table = pa.Table.from_pylist(rows, schema=arrow_schema(LEDGERS))
        parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=7)
    reader = Reader(COPIES, {"metadata": "zk://nobody/ledgers", "ledgers_from": str(folder), **options})
    reader.present = present
    return reader


def asked(reader: Reader) -> Counter[tuple[str, int]]:
    """(bookie, ledger) that tasks ask about, and how often."""
    found: Counter[tuple[str, int]] = Counter()
    for part in reader.partitions():
        if part.file:
            chosen = [one for one in reader._wanted(part) if part.everywhere or part.bookie in one.bookies]
            found.update((part.bookie, one.ledger_id) for one in chosen)
    return found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.none() | st.integers(0, 300 << 20), max_size=40),
    bookies=st.integers(3, EVERYWHERE_BOOKIES_MAX),
)
def test_every_bookie_is_asked_about_every_ledger_once(tmp_path: Path, lengths: list[int | None], bookies: int) -> None:
    names = [f"b{i}" for i in range(bookies)]
    ledgers = [ledger(i, [names[(i + j) % bookies] for j in range(3)], n) for i, n in enumerate(lengths)]
    reader = reader_of(tmp_path / "ledgers", ledgers, dict.fromkeys(names))
    assert asked(reader) == {(name, i): 1 for name in names for i in range(len(lengths))}


@given(
    first=st.integers(0, 20),
    count=st.integers(1, 20),
    newest=st.integers(-1, 60),
    shape=st.integers(1, 5).flatmap(lambda e: st.tuples(st.just(e), st.integers(1, e))),
)
def test_what_is_expected_of_a_bookie_is_its_write_sets(
    first: int, count: int, newest: int, shape: tuple[int, int]
) -> None:
    ensemble_size, write_quorum_size = shape
    one, other = (tuple(f"{kind}{i}" for i in range(ensemble_size)) for kind in "ab")
    fragments = ((first, first + count - 1, one), (first + count, None, (*other[1:], one[0])))
    wanted = Wanted(5, None, (), 0, fragments, write_quorum_size)
    own = [e for e in range(first, first + count) if 0 in write_set(e, ensemble_size, write_quorum_size)]
    last = ensemble_size - 1
    later = range(first + count, newest + 1)
    own += [e for e in later if last in write_set(e, ensemble_size, write_quorum_size)]
    assert list(wanted.expected("a0", newest)) == own
    assert not list(wanted.expected("b0", newest)), "it was replaced"


def test_many_bookies_of_java_are_asked_about_their_own(tmp_path: Path) -> None:
    present: dict[str, tuple[str, int] | None] = {f"b{i:02}": None for i in range(EVERYWHERE_BOOKIES_MAX)}
    present["ours"] = OURS
    ledgers = [ledger(i, [f"b{(i + j) % 16:02}" for j in range(3)], 1000) for i in range(32)]
    ledgers[5]["ensembles"].append({"first_entry_id": 4, "bookies": ["gone", "b00", "b01"]})
    found = asked(reader_of(tmp_path / "ledgers", ledgers, present))
    own = {(bookie, row["ledger_id"]): 1 for row in ledgers for e in row["ensembles"] for bookie in e["bookies"]}
    assert found == own | {("ours", i): 1 for i in range(32)}, "and ours about all"


def test_slices_are_bounded_and_strangers_are_asked_for_once(tmp_path: Path) -> None:
    ledgers = [ledger(i, ["a", "b", "c"], 10) for i in range(3 * LEDGERS_A_PARTITION)]
    present: dict[str, tuple[str, int] | None] = {"a": OURS, "b": OURS, "c": None}
    parts = reader_of(tmp_path / "ledgers", ledgers, present).partitions()
    assert max(part.count for part in parts) <= LEDGERS_A_PARTITION
    assert [part.bookie for part in parts if not part.file] == ["a", "b"]
    assert sum(part.size for part in parts) == pytest.approx(2 * 10 * len(ledgers), abs=len(parts))
    since = reader_of(tmp_path / "ledgers", ledgers, present, since_ms="5").partitions()
    assert all(part.file for part in since), "what is older is not unknown"
    one = reader_of(tmp_path / "ledgers", ledgers, present, bookie_id="b").partitions()
    assert {part.bookie for part in one} == {"b"}
    assert isinstance(one[0], LivePartition)

"""Comparing blocks before entries changes no finding, whatever is damaged; whole blocks need no entries."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as parquet
from bkinspect.audit.checks import _blocks, _summary, growth
from bkinspect.audit.checks._blocks import Blocks, blocks
from bkinspect.audit.checks._copies import faults
from bkinspect.audit.checks._summary import parts, seen, sums
from bkinspect.audit.schemas import TABLES, arrow_schema
from bkinspect.audit.tables import Tables

Row = dict[str, Any]
BOOKIES: Final = tuple(f"b{i}:3181" for i in range(1, 6))
NO_INDEX: Final = BOOKIES[-1]
SHAPES: Final = ((3, 3, 2), (3, 2, 2), (4, 2, 2), (2, 2, 1), (4, 3, 2), (1, 1, 1), (5, 3, 2))
RANGE_BITS: Final = 3
"""Eight entries a range, so that few entries make many ranges."""
PAYLOAD: Final = 10
LEDGERS: Final = 200
SEED: Final = 1
KINDS: Final = frozenset({"dangling", "late", "lost", "missing", "divergent", "surplus", "twofold", "unindexed"})


class Cluster:
    """Rows of the tables that checks of copies read, with the damage that `damage` adds."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tables: dict[str, list[Row]] = {name: [] for name in ("ledgers", "fragments", "entries", "index")}
        self.tables["bookies"] = [{"bookie_id": name, "scanned": True} for name in BOOKIES]
        self.tables["bookie_ledgers"] = []

    def ledger(self, ledger_id: int, lag: int = 0) -> None:
        """A whole ledger of one to three fragments. lag: how far its last confirmed is behind."""
        chance = self.random
        ensemble, quorum, acks = chance.choice(SHAPES)
        size, state = chance.randrange(1, 40), chance.choice(("CLOSED", "CLOSED", "CLOSED", "OPEN", "IN_RECOVERY"))
        starts = sorted({0, *(chance.randrange(size) for _ in range(chance.choice((0, 0, 0, 1, 2))))})
        last = size - 1 if state == "CLOSED" else None
        about = {"ensemble_size": ensemble, "write_quorum_size": quorum, "ack_quorum_size": acks, "state": state}
        length = size * PAYLOAD if state == "CLOSED" else None
        self.tables["ledgers"].append({"ledger_id": ledger_id, "last_entry_id": last, "length": length, **about})
        for i, start in enumerate(starts):
            end = starts[i + 1] - 1 if i + 1 < len(starts) else last
            bookies = chance.sample(BOOKIES, ensemble)
            own = {"ledger_id": ledger_id, "fragment_index": i, "first_entry_id": start, "last_entry_id": end}
            self.tables["fragments"].append({**own, "bookies": bookies, **about})
            for entry_id in range(start, (size - 1 if end is None else end) + 1):
                for turn in range(quorum):
                    self.copy(ledger_id, entry_id, bookies[(entry_id + turn) % ensemble], lag)

    def copy(self, ledger_id: int, entry_id: int, bookie: str, lag: int = 0, **other: Any) -> Row:
        """A copy in a log of the bookie, and in its index."""
        log = other.pop("log", ledger_id % 3 + entry_id // 5)
        row = {
            "ledger_id": ledger_id, "entry_id": entry_id, "bookie_id": bookie, "source": "entry_log", "kind": "entry",
            "last_confirmed": max(entry_id - 1 - lag, -1), "length": (entry_id + 1) * PAYLOAD,
            "payload_size": PAYLOAD, "size": PAYLOAD + 36, "digest_ok": True,
            "content_digest": ledger_id * 997 + entry_id,
            "file": f"/{bookie}/{log}.log", "offset": 1028 + 1000 * ledger_id + 50 * entry_id, **other,
        }  # fmt: skip
        self.tables["entries"].append(row)
        if bookie != NO_INDEX and row["source"] == "entry_log":
            place = {name: row[name] for name in ("ledger_id", "entry_id", "bookie_id", "file", "offset")}
            self.tables["index"].append({**place, "log_id": log, "index": f"/{bookie}/locations"})
        return row

    def damage(self, ledger_id: int) -> None:
        """One of many faults in a ledger."""
        of_ledger = [row for row in self.tables["entries"] if row["ledger_id"] == ledger_id]
        if of_ledger:
            self.random.choice(DAMAGES)(self, ledger_id, self.random.choice(of_ledger))

    def of_entry(self, row: Row) -> list[Row]:
        """The copies of an entry."""
        ids = row["ledger_id"], row["entry_id"]
        return [one for one in self.tables["entries"] if (one["ledger_id"], one["entry_id"]) == ids]

    def drop(self, table: str, fits: Callable[[Row], bool]) -> None:
        """Removes rows."""
        self.tables[table] = [row for row in self.tables[table] if not fits(row)]

    def written(self, spark: Any, folder: Path, **settings: Any) -> Tables:
        """The tables as Parquet."""
        self.tables["log_files"] = [
            {"bookie_id": bookie, "file": file, "source": "entry_log", "newest": False}
            for bookie, file in {(row["bookie_id"], row["file"]) for row in self.tables["index"]}
        ]
        makers = {}
        for name, rows in self.tables.items():
            schema = arrow_schema(TABLES[name])
            path = folder / f"{name}.parquet"
            parquet.write_table(
                pa.Table.from_pylist([{n: row.get(n) for n in schema.names} for row in rows], schema), path
            )
            makers[name] = lambda path=path, name=name: spark.read.schema(TABLES[name].ddl).parquet(str(path))
        makers["records"] = makers["entries"]
        return Tables(spark, 0, makers, folder=str(folder / f"shared-{len(settings)}"), **settings)


def _same_place(row: Row) -> Callable[[Row], bool]:
    return lambda one: (
        one["bookie_id"] == row["bookie_id"]
        and one["file"] == row["file"]
        and (one["offset"] == row["offset"])
        and one["entry_id"] == row["entry_id"]
    )


def _no_record(made: Cluster, _: int, row: Row) -> None:
    made.drop("entries", _same_place(row))


def _no_pointer(made: Cluster, _: int, row: Row) -> None:
    made.drop("index", _same_place(row))


def _no_copy(made: Cluster, ledger_id: int, row: Row) -> None:
    _no_record(made, ledger_id, row)
    _no_pointer(made, ledger_id, row)


def _lost(made: Cluster, ledger_id: int, row: Row) -> None:
    for one in made.of_entry(row):
        _no_copy(made, ledger_id, one)


def _range_lost(made: Cluster, ledger_id: int, row: Row) -> None:
    at = row["entry_id"] >> RANGE_BITS
    for name in ("entries", "index"):
        made.drop(name, lambda one: one["ledger_id"] == ledger_id and one["entry_id"] >> RANGE_BITS == at)


def _bookie_lost(made: Cluster, ledger_id: int, row: Row) -> None:
    for name in ("entries", "index"):
        made.drop(name, lambda one: one["ledger_id"] == ledger_id and one["bookie_id"] == row["bookie_id"])


def _twice(made: Cluster, ledger_id: int, row: Row) -> None:
    other = {"log": 90, "content_digest": row["content_digest"] + made.random.choice((0, 1, 1))}
    made.copy(ledger_id, row["entry_id"], row["bookie_id"], **other)
    if made.random.random() < 0.5:
        made.tables["index"].pop()


def _another_instead(made: Cluster, ledger_id: int, row: Row) -> None:
    """All bookies have a later entry twice, and not this one: counts, and sums of copies, are equal."""
    copies = made.of_entry(row)
    _lost(made, ledger_id, row)
    sizes = {one["ledger_id"]: one["ensemble_size"] for one in made.tables["ledgers"]}
    for one in copies:
        made.copy(ledger_id, row["entry_id"] + sizes.get(ledger_id, 1), one["bookie_id"], log=91)


def _changed(name: str, all_copies: bool) -> Callable[[Cluster, int, Row], None]:
    def act(made: Cluster, _: int, row: Row) -> None:
        by = made.random.choice((-7, 1, 3))
        for one in made.of_entry(row) if all_copies else [row]:
            one[name] += by

    return act


def _digest(answer: bool | None) -> Callable[[Cluster, int, Row], None]:
    def act(_made: Cluster, _: int, row: Row) -> None:
        row["digest_ok"] = answer

    return act


def _unknown_payload(made: Cluster, _: int, row: Row) -> None:
    for one in made.of_entry(row):
        one["digest_ok"] = one["payload_size"] = None


def _moved(made: Cluster, ledger_id: int, row: Row) -> None:
    _no_copy(made, ledger_id, row)
    made.copy(ledger_id, row["entry_id"], made.random.choice(BOOKIES))


def _elsewhere(made: Cluster, ledger_id: int, row: Row) -> None:
    made.copy(ledger_id, row["entry_id"], made.random.choice(BOOKIES), log=92)


def _points_elsewhere(made: Cluster, _: int, row: Row) -> None:
    for one in filter(_same_place(row), made.tables["index"]):
        one["offset"] += 1


def _in_journal(replayed: bool, cut: int) -> Callable[[Cluster, int, Row], None]:
    def act(made: Cluster, ledger_id: int, row: Row) -> None:
        values = {"source": "journal", "replayed": replayed, "log": "journal", "length": row["length"] + cut}
        made.copy(ledger_id, row["entry_id"], row["bookie_id"], **values)

    return act


def _after_end(made: Cluster, ledger_id: int, row: Row) -> None:
    end = 1 + max(one["entry_id"] for one in made.tables["entries"] if one["ledger_id"] == ledger_id)
    for bookie in made.random.sample(BOOKIES, made.random.randrange(1, 4)):
        made.copy(ledger_id, end + made.random.choice((0, 1, 9)), bookie, made.random.choice((0, 3)))


def _metadata_gone(made: Cluster, ledger_id: int, _: Row) -> None:
    for name in ("ledgers", "fragments"):
        made.drop(name, lambda one: one["ledger_id"] == ledger_id)


def _later_start(made: Cluster, ledger_id: int, _: Row) -> None:
    for one in made.tables["fragments"]:
        if one["ledger_id"] == ledger_id and one["fragment_index"] == 0:
            one["first_entry_id"] = min(2, one["last_entry_id"] or 2)


def _other_length(made: Cluster, ledger_id: int, _: Row) -> None:
    for one in made.tables["ledgers"]:
        if one["ledger_id"] == ledger_id and one["length"] is not None:
            one["length"] += 5


DAMAGES: Final = (
    *(_twice, _twice, _twice),
    *(
        _no_record,
        _no_pointer,
        _no_copy,
        _lost,
        _range_lost,
        _bookie_lost,
        _twice,
        _another_instead,
        _moved,
        _elsewhere,
    ),
    *(
        _changed(name, both)
        for both in (False, True)
        for name in ("content_digest", "length", "size", "last_confirmed")
    ),
    *(_digest(False), _digest(None), _unknown_payload, _points_elsewhere, _after_end, _metadata_gone, _later_start),
    *(
        _in_journal(True, 0),
        _in_journal(False, 0),
        _in_journal(False, 4),
        _other_length,
        _changed("payload_size", True),
    ),
)


@pytest.fixture(autouse=True)
def short_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of eight entries."""
    for module in (_blocks, _summary):
        monkeypatch.setattr(module, "RANGE_BITS", RANGE_BITS)


def results(tables: Tables) -> dict[str, list[str]]:
    """All that checks take from the plans of copies, as text."""
    ends = parts(tables).select("ledger_id", "fragment_index", "ends")
    made = {"faults": faults(tables), "growth": growth.findings(tables), "sums": sums(tables), "ends": ends}
    found = {name: sorted(str(sorted(row.asDict().items())) for row in rows.collect()) for name, rows in made.items()}
    tables.spark.catalog.clearCache()
    return found


@pytest.mark.slow
def test_the_comparison_of_blocks_finds_what_that_of_entries_finds_in_random_damage(spark: Any, tmp_path: Path) -> None:
    made = Cluster(SEED)
    for ledger_id in range(LEDGERS):
        made.ledger(ledger_id, made.random.choice((0, 0, 0, 1, 4)))
        for _ in range(made.random.choice((0, 0, 1, 1, 2))):
            made.damage(ledger_id)
    by_blocks = made.written(spark, tmp_path, blocks=True)
    compared = blocks(by_blocks)
    assert compared is not None
    assert compared.differing > LEDGERS
    assert compared.whole.count() > LEDGERS
    assert compared.whole.where("plain").count() > 5
    found = results(by_blocks)
    expected = results(made.written(spark, tmp_path))
    assert found == expected
    assert {line.partition("'kind', '")[2].partition("'")[0] for line in expected["faults"]} >= KINDS


def test_no_entry_of_a_healthy_cluster_is_compared(spark: Any, tmp_path: Path) -> None:
    made = Cluster(3)
    made.ledger(7)
    while any(row["state"] != "CLOSED" or row["fragment_index"] for row in made.tables["fragments"]):
        made = Cluster(made.random.randrange(1 << 30))
        made.ledger(7)
    tables = made.written(spark, tmp_path, blocks=True)
    compared = blocks(tables)
    assert isinstance(compared, Blocks)
    assert (compared.differing, compared.unproven) == (0, 0)
    assert seen(tables).isEmpty()
    assert sum(row["entries"] for row in sums(tables).collect()) == len(made.tables["entries"])


def test_more_differing_ranges_than_can_be_sent_to_tasks_are_compared_by_entries(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Cluster(4)
    for ledger_id in range(3):
        made.ledger(ledger_id)
        _no_copy(made, ledger_id, made.tables["entries"][-1])
    monkeypatch.setattr(_blocks, "DIFFERING_MAX", 2)
    tables = made.written(spark, tmp_path, blocks=True)
    assert blocks(tables) is None
    assert seen(tables).count() == len({(row["ledger_id"], row["entry_id"]) for row in made.tables["entries"]})


@pytest.mark.parametrize(
    ("sizes", "modulus"),
    [([], 1), ([(3, 3)], 1), ([(3, 2), (3, 3)], 3), ([(3, 2), (5, 3), (4, 2)], 60), ([(7, 3), (9, 2), (4, 2)], 28)],
)
def test_the_modulus_is_a_multiple_of_the_usual_ensembles(sizes: list[tuple[int, int]], modulus: int) -> None:
    assert _blocks._modulus(sizes) == modulus

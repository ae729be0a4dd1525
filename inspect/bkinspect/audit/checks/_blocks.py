"""Blocks of entries, compared before entries: ranges of a ledger whose copies are whole need no row of their own.

    pieces     what a bookie's file, or its index, has of a block: counts, bounds and sums of hashes; kept
    ranges     one row a ledger and range of 2^16 entries: whole or not; kept

A block is the entries of one range with the same remainder by `_modulus`, so that all of them have one write set. Only
pieces are shuffled: of each, the number of rows and the sums of 64-bit hashes (xxhash64, which mixes every bit) of

    (entry, content digest, last confirmed, length, payload size, size)    equal on all bookies of the write set
    (entry, offset)                                                        equal in the index and the file it names
    (entry)                                                                equal to that of the range's entries
    (entry, length) - (entry - 1, length - payload size)                   equal to that of the ledger's two ends

A hash is summed as two sums of 32 bits each, which never overflow. Damage that leaves both sums as they are has a
probability of 2^-64 for each comparison; the content digest, a CRC32C, is weaker.

A range is whole where all of this holds; a range of which one block does not is compared entry by entry, as all
ranges are where this plan is not used (`Tables.blocks`) or more than DIFFERING_MAX differ:

- its entries are in one fragment, and all that the fragment promises there are found, up to the valid end;
- each block is on the bookies of its write set, on no other one, and their sums are equal;
- each bookie has each entry once: in a log, with the index pointing to it, or served without an index; none is in a
  journal, replayed or not;
- each digest fits or cannot be checked, and no log has a last confirmed or length that cannot be.

A ledger is plain where all of its ranges are whole, their lengths add up to the length in metadata, and no last
confirmed is far enough behind to be able to fall: `growth` has nothing to look for in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from bkinspect.audit.checks._fragments import parts_with

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from bkinspect.audit.tables import Tables

RANGE_BITS: Final = 16
"""A range is 2^16 entries of a ledger: one large ledger is divided among tasks."""
DIFFERING_MAX: Final = 100_000
"""Ranges that are compared entry by entry beside whole ones: they are sent to all tasks."""
MODULUS_MAX: Final = 60
"""Blocks of a range; ledgers with ensembles that do not divide them are compared entry by entry."""
RANGE: Final = ("ledger_id", "range")
WHAT: Final = (
    "case when source = 'journal' then if(coalesce(replayed, false), 'journal', 'stale') "
    "when source = 'entry_log' and indexed then 'log' else 'live' end"
)
"""SQL for what a record is; see `_summary.summary`."""
ABSURD: Final = (
    "source = 'entry_log' and coalesce(digest_ok, true) and "
    "not coalesce(last_confirmed between -1 and entry_id - 1 and length >= 0, false)"
)
LAG_MAX: Final = 2
"""Entries that a last confirmed may be behind entry - 1 and cannot have fallen: see `growth`."""
_IS_INDEX: Final = "source = 'index'"
_BLOCK: Final = (*RANGE, "residue")
_HASHES: Final = {
    "content": "xxhash64(entry_id, content_digest, last_confirmed, length, payload_size, size)",
    "place": "xxhash64(entry_id, offset)",
    "entry": "xxhash64(entry_id)",
}
_LENGTHS: Final = ("xxhash64(entry_id, length)", "xxhash64(entry_id - 1, try_subtract(length, payload_size))")
_HALVES: Final = ("shiftrightunsigned({hash}, 32)", "({hash} & 4294967295L)")
_SUMS: Final = tuple(f"{name}_{half}" for name in ("content", "entry", "growth") for half in (0, 1))


@dataclass(frozen=True, slots=True)
class Blocks:
    """What the comparison of blocks came to.

    pieces, ranges: as above. indexed: the bookies whose index was read. differing: the number of ranges that are
    compared entry by entry; unproven: that of whole ones in ledgers that are not plain.
    """

    pieces: DataFrame
    indexed: DataFrame
    ranges: DataFrame
    differing: int
    unproven: int

    @property
    def whole(self) -> DataFrame:
        """The whole ranges: ledger_id, range, fragment_index, first and last entry, plain."""
        return self.ranges.where("whole")

    def only_differing(self, rows: DataFrame) -> DataFrame:
        """The rows, with ledger_id and range, of ranges that are compared entry by entry."""
        if not self.differing:
            return rows.where("false")
        return rows.join(F.broadcast(self.ranges.where("not whole").select(*RANGE)), list(RANGE), "left_semi")


def range_of(rows: DataFrame) -> DataFrame:
    """Rows with the range of their entry."""
    return rows.withColumn("range", F.expr(f"shiftright(entry_id, {RANGE_BITS})"))


def blocks(tables: Tables) -> Blocks | None:
    """The comparison of blocks, made once for a run; None where entries are compared alone."""
    return tables.once("blocks", lambda: _blocks(tables)) if tables.blocks else None


def _blocks(tables: Tables) -> Blocks | None:
    modulus = _modulus(
        (row["ensemble_size"], row["write_quorum_size"])
        for row in tables.fragments.groupBy("ensemble_size", "write_quorum_size")
        .count()
        .orderBy(F.desc("count"))
        .collect()
    )
    pieces = tables.keep("pieces", lambda: _pieces(tables, modulus), as_files=True)
    pointed = pieces.where(_IS_INDEX).select("bookie_id")
    indexed = tables.keep("indexed", lambda: tables.bookie_ledgers.select("bookie_id").union(pointed).distinct())
    pieces = _judged(pieces, indexed)
    parts = parts_with(tables, lambda: _confirmed(pieces))
    ranges = tables.keep("ranges", lambda: _ranges(tables, pieces, parts, modulus), as_files=True)
    counts = ranges.selectExpr("count_if(not whole) as differing", "count_if(whole and not plain) as unproven").first()
    assert counts is not None, "an aggregate has a row"
    if counts["differing"] > DIFFERING_MAX:
        return None
    return Blocks(pieces, indexed, ranges, counts["differing"], counts["unproven"])


def _modulus(sizes: Iterable[tuple[int, int]]) -> int:
    """A multiple of these ensemble sizes, the first before others, up to MODULUS_MAX.

    Args:
        sizes: ensembles with their write quorums; of equal ones, all entries have the same write set.
    """
    modulus = 1
    for ensemble, quorum in sizes:
        if ensemble and ensemble != quorum and lcm(modulus, ensemble) <= MODULUS_MAX:
            modulus = lcm(modulus, ensemble)
    return modulus


# -- pieces -----------------------------------------------------------------------------------------------------------


def _pieces(tables: Tables, modulus: int) -> DataFrame:
    """One row for what a file, or an index that points to it, has of a block."""
    residue = F.expr(f"pmod(entry_id, {modulus})")
    keys = (*_BLOCK, "bookie_id", "file")
    records = (
        range_of(tables.entries)
        .withColumn("residue", residue)
        .withColumns({name: F.expr(text) for name, text in _HASHES.items()})
        .withColumns({f"length_{i}": F.expr(text) for i, text in enumerate(_LENGTHS)})
        .groupBy(*keys, "source", "replayed")
        .agg(
            *_bounds(),
            *_halves("content", "place", "entry"),
            *(_difference(i) for i in (0, 1)),
            F.max("last_confirmed").alias("confirmed"),
            F.expr("sum(size + 4)").alias("bytes"),
            F.expr(f"count_if({_STRANGE})").alias("strange"),
            F.expr("count_if(payload_size is null)").alias("sizeless"),
            F.expr(f"max({_LAG})").alias("lag"),
        )
    )
    pointers = (
        range_of(tables.index)
        .withColumn("residue", residue)
        .withColumn("place", F.expr(_HASHES["place"]))
        .groupBy(*keys)
        .agg(*_bounds(), *_halves("place"))
        .withColumn("source", F.lit("index"))
    )
    return records.unionByName(pointers, allowMissingColumns=True)


def _judged(pieces: DataFrame, indexed: DataFrame) -> DataFrame:
    """The pieces with `what`, null of an index."""
    what = f"case when {_IS_INDEX} then null else {WHAT} end"
    rows = pieces.join(F.broadcast(indexed.withColumn("indexed", F.lit(True))), "bookie_id", "left")
    return rows.withColumn("what", F.expr(what)).drop("indexed")


_LAG: Final = f"if(last_confirmed >= -1, entry_id - 1 - last_confirmed, {LAG_MAX} + 1)"
_STRANGE: Final = (
    f"not coalesce(digest_ok, true) or {ABSURD} or content_digest is null or last_confirmed is null or length is null "
    "or size is null"
)
"""Entries that are never plainly whole, or of which a hash would leave out a null."""


def _bounds() -> tuple[Column, ...]:
    return F.count("*").alias("rows"), F.min("entry_id").alias("first"), F.max("entry_id").alias("last")


def _halves(*names: str) -> list[Column]:
    return [
        F.expr(f"sum({half.format(hash=name)})").alias(f"{name}_{i}")
        for name in names
        for i, half in enumerate(_HALVES)
    ]


def _difference(half: int) -> Column:
    plus, minus = (_HALVES[half].format(hash=f"length_{i}") for i in (0, 1))
    return F.expr(f"sum({plus} - {minus})").alias(f"growth_{half}")


def _confirmed(pieces: DataFrame) -> DataFrame:
    """The largest last confirmed of a ledger's entries."""
    return pieces.where("what != 'stale'").groupBy("ledger_id").agg(F.max("confirmed").alias("confirmed"))


# -- ranges -----------------------------------------------------------------------------------------------------------


def _ranges(tables: Tables, pieces: DataFrame, parts: DataFrame, modulus: int) -> DataFrame:
    candidates = tables.keep("candidates", lambda: _candidates(pieces, parts, modulus), as_files=True)
    full = (
        candidates.where("whole")
        .select(*RANGE, F.expr("explode(sequence(from_entry, to_entry))").alias("entry_id"))
        .withColumn("entry", F.expr(_HASHES["entry"]))
        .groupBy(*RANGE)
        .agg(*(F.expr(f"sum({half.format(hash='entry')})").alias(f"full_{i}") for i, half in enumerate(_HALVES)))
    )
    known = tables.ledgers.where("damage is null and state = 'CLOSED'").selectExpr(
        "ledger_id", "last_entry_id", "length as ledger_length"
    )
    exact = "whole and coalesce(entry_0 = full_0 and entry_1 = full_1, false)"
    rows = (
        candidates.join(full, list(RANGE), "left").withColumn("whole", F.expr(exact)).join(known, "ledger_id", "left")
    )
    return rows.selectExpr(
        *RANGE,
        "fragment_index",
        "from_entry as first",
        "to_entry as last",
        "whole",
        f"coalesce({_PLAIN}, false) as plain",
    )


def _of_ledger(expression: str) -> str:
    return f"{expression} over (partition by ledger_id)"


_ENDS: Final = ("xxhash64(last_entry_id, ledger_length)", "xxhash64(-1L, 0L)")
_PLAIN: Final = " and ".join(
    (
        _of_ledger("bool_and(whole)"),
        f"{_of_ledger('min(first)')} = 0",
        f"{_of_ledger('max(last)')} = last_entry_id",
        f"{_of_ledger('sum(entries)')} - 1 = last_entry_id",
        f"{_of_ledger('sum(sizeless)')} = 0",
        f"{_of_ledger('max(lag)')} <= {LAG_MAX}",
        *(
            f"{_of_ledger(f'sum(growth_{i})')} = {half.format(hash=_ENDS[0])} - {half.format(hash=_ENDS[1])}"
            for i, half in enumerate(_HALVES)
        ),
    )
)


def _candidates(pieces: DataFrame, parts: DataFrame, modulus: int) -> DataFrame:
    """Ranges beside their fragment; whole: they are, if no entry is there twice."""
    fits = f"ensemble_size = write_quorum_size or {modulus} % ensemble_size = 0"
    whole = (
        "equal and first >= from_entry and last <= to_entry and entries = to_entry - from_entry + 1 and "
        f"coalesce(last <= closed_at, true) and size(bookies) = ensemble_size and ({fits}) and forall(blocks, b -> "
        "b.bookies = write_quorum_size and b.holders = marks[cast(b.residue % ensemble_size as int)])"
    )
    found = _placed(_found(pieces), parts).withColumn("whole", F.expr(f"coalesce({whole}, false)"))
    sums = ("entries", "sizeless", "lag", *(name for name in _SUMS if not name.startswith("content")))
    return found.select(*RANGE, "fragment_index", "first", "last", "from_entry", "to_entry", "whole", *sums)


def _found(pieces: DataFrame) -> DataFrame:
    """One row a range: its bounds, whether its blocks are equal on their bookies, and each block with its bookies."""
    own = "what in ('log', 'live')"
    names = (*_SUMS, "strange", "sizeless")
    places = ("place_0", "place_1", "rows")
    by_file = (
        pieces.repartition(*RANGE)
        .groupBy(*_BLOCK, "bookie_id", "file")
        .agg(
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.expr(f"sum(case when {own} then rows else 0 end)").alias("entries"),
            F.expr(f"bool_and({_IS_INDEX} or {own})").alias("sound"),
            *(
                F.expr(f"coalesce(sum(case when what = 'log' then {name} end), 0)").alias(f"log_{name}")
                for name in places
            ),
            *(
                F.expr(f"coalesce(sum(case when {_IS_INDEX} then {name} end), 0)").alias(f"index_{name}")
                for name in places
            ),
            *(F.sum(name).alias(name) for name in names),
            F.max("lag").alias("lag"),
        )
    )
    paired = " and ".join(f"log_{name} = index_{name}" for name in places)
    by_bookie = by_file.groupBy(*_BLOCK, "bookie_id").agg(
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.expr(f"bool_and(sound and {paired})").alias("sound"),
        *(F.sum(name).alias(name) for name in ("entries", *names)),
        F.max("lag").alias("lag"),
    )
    alike = ("entries", *_SUMS)
    by_block = by_bookie.groupBy(*_BLOCK).agg(
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.expr(
            "coalesce(bool_and(sound and strange = 0) and "
            + " and ".join(f"min({name}) <=> max({name}) and count({name}) in (0, count(*))" for name in alike)
            + ", false)"
        ).alias("equal"),
        F.count("*").alias("bookies"),
        F.expr("bit_xor(xxhash64(bookie_id))").alias("holders"),
        *(F.min(name).alias(name) for name in alike),
        F.sum("sizeless").alias("sizeless"),
        F.max("lag").alias("lag"),
    )
    return by_block.groupBy(*RANGE).agg(
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.expr("bool_and(equal)").alias("equal"),
        F.expr("collect_list(struct(residue, bookies, holders))").alias("blocks"),
        *(F.sum(name).alias(name) for name in (*alike, "sizeless")),
        F.max("lag").alias("lag"),
    )


def _placed(found: DataFrame, parts: DataFrame) -> DataFrame:
    """The ranges beside the fragment of their first entry, with from_entry and to_entry: its entries in the range."""
    starts = parts.select(
        "ledger_id", F.col("first_entry_id").alias("first"), "fragment_index", F.lit(0).alias("after")
    )
    rows = found.withColumn("after", F.lit(1)).unionByName(starts, allowMissingColumns=True)
    before = Window.partitionBy("ledger_id").orderBy("first", "after", "fragment_index")
    rows = rows.withColumn("fragment_index", F.last("fragment_index", ignorenulls=True).over(before)).where("after = 1")
    of_parts = ("ensemble_size", "write_quorum_size", "bookies", "marks", "closed_at", "first_entry_id", "ends")
    known = parts.select("ledger_id", "fragment_index", *of_parts)
    start = f"shiftleft(range, {RANGE_BITS})"
    return (
        rows.drop("after")
        .join(known, ["ledger_id", "fragment_index"], "left")
        .withColumn("from_entry", F.expr(f"greatest(first_entry_id, {start})"))
        .withColumn("to_entry", F.expr(f"least(ends, {start} + {(1 << RANGE_BITS) - 1})"))
    )

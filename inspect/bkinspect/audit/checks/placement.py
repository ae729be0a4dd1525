"""Racks and regions: the copies of each entry on two racks at least, each ensemble in two regions.

Plan: the ensembles of fragments, each once (a shuffle of ensembles after a partial aggregate), beside a single row that
maps bookies to places (a broadcast, as large as the list of bookies); every write set of an ensemble is looked at in
its row. What is at fault is joined with fragments by ensemble: a broadcast while it is small. Needs metadata only.

Asked of fragments alone whose bookies all have a known place, and where the cluster's have more than one rack or
region. A fragment in one region is not told again for its racks.
Source: RackawareEnsemblePlacementPolicyImpl.isEnsembleAdheringToPlacementPolicy (minNumRacksPerWriteQuorum 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._rows import findings_of, union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "placement"
CODES: Final = ("BKC421", "BKC422", "BKC423")
NEEDS: Final = ("fragments", "bookies")
TEXT: Final = "copies are on two racks, ensembles in two regions; shuffles the ensembles that differ"
_RACKS_MIN: Final = 2

_ENSEMBLE: Final = ("bookies", "ensemble_size", "write_quorum_size")
_KINDS: Final = (
    ("one_rack", "BKC421", "'a write set is on one rack'"),
    ("one_region", "BKC422", "concat('all bookies are in ', region)"),
    ("twice", "BKC423", "'it names a bookie twice'"),
)
_WRITE_SETS: Final = (
    "transform(sequence(0, ensemble_size - 1), s -> transform(sequence(0, write_quorum_size - 1), "
    "i -> bookies[(s + i) % ensemble_size]))"
)


def findings(tables: Tables) -> DataFrame:
    """One a fragment: BKC422 before BKC421, BKC423 before both."""
    fragments = tables.fragments.where("last_entry_id is null or last_entry_id >= first_entry_id")
    placed = tables.keep("badly_placed", lambda: _badly_placed(fragments, tables))
    rows = fragments.join(placed, list(_ENSEMBLE))
    return union(*(_told(rows.where(f"kind = '{kind}'"), code, message) for kind, code, message in _KINDS))


def _badly_placed(fragments: DataFrame, tables: Tables) -> DataFrame:
    """The ensembles that are at fault, each once, with `kind` and the places of their bookies.

    Fragments share ensembles, so these are compared, and not a million fragments; most often none is left.
    """
    places = tables.bookies.where("rack is not null").agg(
        F.map_from_entries(F.collect_list(F.struct("bookie_id", "place"))).alias("place_of"),
        F.map_from_entries(F.collect_list(F.struct("bookie_id", F.expr("coalesce(region, '')")))).alias("region_of"),
        F.expr("count(distinct place) as racks"),
        F.expr("count(distinct region) as regions"),
    )
    return (
        fragments.select(*_ENSEMBLE)
        .distinct()
        .crossJoin(F.broadcast(places))
        .withColumn("known", F.expr("forall(bookies, b -> map_contains_key(place_of, b))"))
        .withColumn("places", F.expr("transform(bookies, b -> place_of[b])"))
        .withColumn("region", F.expr("region_of[bookies[0]]"))
        .withColumn(
            "kind",
            F.expr(
                "case when size(array_distinct(bookies)) < size(bookies) then 'twice' "
                "when known and regions > 1 and ensemble_size > 1 and "
                "size(array_distinct(transform(bookies, b -> region_of[b]))) = 1 then 'one_region' "
                f"when known and racks > 1 and write_quorum_size >= {_RACKS_MIN} and "
                f"exists({_WRITE_SETS}, w -> size(array_distinct(transform(w, b -> place_of[b]))) < {_RACKS_MIN}) "
                "then 'one_rack' end"
            ),
        )
        .where("kind is not null")
        .select(*_ENSEMBLE, "kind", "places", "region")
    )


def _told(rows: DataFrame, code: str, message: str) -> DataFrame:
    twice = "filter(bookies, b -> size(filter(bookies, c -> c = b)) > 1)[0]"
    return findings_of(
        rows,
        code,
        subject="concat('ledger ', ledger_id, ', ensemble at entry ', first_entry_id)",
        message=message,
        evidence={"bookies": "bookies", "places": "places"},
        ledger_id="ledger_id",
        entry_id="first_entry_id",
        bookie_id=f"case when kind = 'twice' then {twice} end",
    )

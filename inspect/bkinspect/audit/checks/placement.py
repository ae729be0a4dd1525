"""Racks and regions: the copies of each entry on two racks at least, each ensemble in two regions.

Plan: fragments joined with a single row that maps bookies to places (a broadcast, as large as the list of bookies),
then every write set of an ensemble is looked at in its row. No shuffle. Needs metadata only.

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
TEXT: Final = "copies are on two racks, ensembles in two regions; no shuffle"
_RACKS_MIN: Final = 2

_WRITE_SETS: Final = (
    "transform(sequence(0, ensemble_size - 1), s -> transform(sequence(0, write_quorum_size - 1), "
    "i -> bookies[(s + i) % ensemble_size]))"
)


def findings(tables: Tables) -> DataFrame:
    """One a fragment: BKC422 before BKC421; BKC423 apart from both."""
    places = tables.bookies.where("rack is not null").agg(
        F.map_from_entries(F.collect_list(F.struct("bookie_id", "place"))).alias("place_of"),
        F.map_from_entries(F.collect_list(F.struct("bookie_id", F.expr("coalesce(region, '')")))).alias("region_of"),
        F.expr("count(distinct place) as racks"),
        F.expr("count(distinct region) as regions"),
    )
    rows = (
        tables.fragments.where("last_entry_id is null or last_entry_id >= first_entry_id")
        .crossJoin(F.broadcast(places))
        .withColumn("known", F.expr("forall(bookies, b -> map_contains_key(place_of, b))"))
        .withColumn("twice", F.expr("size(array_distinct(bookies)) < size(bookies)"))
        .withColumn(
            "one_region",
            F.expr(
                "known and regions > 1 and ensemble_size > 1 and "
                "size(array_distinct(transform(bookies, b -> region_of[b]))) = 1"
            ),
        )
        .withColumn(
            "few_racks",
            F.expr(
                f"known and not one_region and racks > 1 and write_quorum_size >= {_RACKS_MIN} and "
                f"exists({_WRITE_SETS}, w -> size(array_distinct(transform(w, b -> place_of[b]))) < {_RACKS_MIN})"
            ),
        )
        .where("few_racks or one_region or twice")
    )
    place = {"ledger_id": "ledger_id", "entry_id": "first_entry_id"}
    subject = "concat('ledger ', ledger_id, ', ensemble at entry ', first_entry_id)"
    evidence = {"bookies": "bookies", "places": "transform(bookies, b -> place_of[b])"}
    return union(
        findings_of(
            rows.where("few_racks and not twice"),
            "BKC421",
            subject=subject,
            message="'a write set is on one rack'",
            evidence=evidence,
            **place,
        ),
        findings_of(
            rows.where("one_region and not twice"),
            "BKC422",
            subject=subject,
            message="concat('all bookies are in ', region_of[bookies[0]])",
            evidence=evidence,
            **place,
        ),
        findings_of(
            rows.where("twice"),
            "BKC423",
            subject=subject,
            message="'it names a bookie twice'",
            evidence=evidence,
            bookie_id="filter(bookies, b -> size(filter(bookies, c -> c = b)) > 1)[0]",
            **place,
        ),
    )

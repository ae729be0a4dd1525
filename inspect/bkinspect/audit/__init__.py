"""Audits a cluster on Spark: its metadata, its ledgers and every stored copy of every entry.

This is the only package that uses pyspark. The daemons do not import it; `schemas` and `results` need no Spark.

    from bkinspect.audit import register
    register(spark)
    spark.read.format("bookkeeper.entries").load("/data/bookie1")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Registers the data sources `bookkeeper.*` in a session and enables the push-down of filters to them."""
    from bkinspect.audit.session import register as register_sources

    register_sources(spark)

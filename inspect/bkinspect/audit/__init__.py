"""The audit: every ledger, every copy, every byte of a cluster, on Spark.

The only place for pyspark. Nothing here is imported by the daemons, and `schemas` and `results` need no Spark.
"""

"""Audits: check every copy of every ledger with Spark; show, compare and repair results."""

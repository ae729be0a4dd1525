"""Audits: every ledger, every copy, every byte, read by Spark; results, differences, repair."""

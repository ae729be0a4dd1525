"""Ledgers that lack copies and wait for a replication worker."""

"""Managed ledgers: an endless log of BookKeeper ledgers with cursors, as Pulsar stores a topic."""

"""Managed ledgers: the log of a topic as a list of BookKeeper ledgers, the cursors on it, what is read and kept."""

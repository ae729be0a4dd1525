"""Indexes of a bookie, RocksDB and .idx, read from its files."""

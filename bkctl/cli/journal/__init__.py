"""Journals of a bookie and their marks, read from its files."""

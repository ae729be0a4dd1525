"""Entry logs of a bookie, read from its files."""

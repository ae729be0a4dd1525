"""Deterministic simulation: the real client, recovery and bookie code in a world made from a seed."""

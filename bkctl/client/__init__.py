"""Bookies and ledgers over a network."""

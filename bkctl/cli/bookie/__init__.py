"""Bookies: start one, list them, ask them how they are."""

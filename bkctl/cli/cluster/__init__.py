"""Whole clusters: make one, look at it, empty it, remove it."""

"""Bookies: start, list, check, drain and repair them."""

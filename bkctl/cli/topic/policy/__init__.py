"""Policies of single topics: read from bookies, set by the brokers."""

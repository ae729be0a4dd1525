"""Brokers: start one, list and check them."""

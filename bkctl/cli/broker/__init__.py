"""Brokers: run one; those that are registered."""

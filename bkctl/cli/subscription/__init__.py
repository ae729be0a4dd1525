"""Subscriptions of topics: how far they have come, straight from metadata and bookies."""

"""Subscriptions of topics: their positions and backlogs, read from metadata and bookies."""

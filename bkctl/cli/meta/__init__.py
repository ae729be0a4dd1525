"""The metadata store: its nodes and their data."""

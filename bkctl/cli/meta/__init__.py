"""The metadata store itself: its nodes, and what they say."""

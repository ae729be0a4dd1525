"""Topics, their producers and their subscriptions."""

"""Dispatchers: which entries go to which consumer of a subscription, and when."""

"""Policies of a namespace, one by one, straight in the metadata by compare-and-set."""

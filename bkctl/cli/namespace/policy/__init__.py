"""Policies of a namespace, changed in the metadata by compare-and-set."""

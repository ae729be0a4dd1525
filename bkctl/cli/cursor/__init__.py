"""Cursors: the state of a subscription as it is stored."""

"""Cursors: the stored state of subscriptions."""

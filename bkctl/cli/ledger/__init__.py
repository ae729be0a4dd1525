"""Ledgers: create, write, read, follow, look at, fence, recover, delete."""

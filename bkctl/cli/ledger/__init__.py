"""Ledgers: create, write, read, check, fence, recover and delete them."""

"""Owners of ledgers: which application objects refer to a ledger, and what its custom metadata says.

    pulsar           topics, cursors, compacted topics, schemas
    distributedlog   log streams and their ledger allocators
    application      any other application that the custom metadata names

A plug-in is an `OwnerPlugin`: two functions without input or output of their own. `search` reads the metadata store.
"""

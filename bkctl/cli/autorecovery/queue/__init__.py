"""The queue of under-replicated ledgers."""

"""Careful hands: fence, recover, check, re-replicate, decommission."""

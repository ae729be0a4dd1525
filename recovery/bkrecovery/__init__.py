"""Recovery of ledgers: fence, recover, check, re-replicate, decommission."""

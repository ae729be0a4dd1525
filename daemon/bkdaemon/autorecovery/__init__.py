"""Auto recovery as a process, or inside a bookie: an elected auditor and a replication worker."""

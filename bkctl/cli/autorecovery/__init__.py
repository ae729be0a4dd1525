"""Auto recovery: the auditor, the replication workers and their queue."""

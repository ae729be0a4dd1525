"""The auditor and the replication workers, and what they have to do."""

"""Inspection: reads bookies' files and a cluster's metadata, and reports findings with stable codes."""

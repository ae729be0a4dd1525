"""Topics: which there are, their ledgers and entries, straight from metadata and bookies; no broker is asked."""

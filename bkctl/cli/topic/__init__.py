"""Topics: their ledgers and entries, straight from metadata and bookies; changes are made by the owner broker."""

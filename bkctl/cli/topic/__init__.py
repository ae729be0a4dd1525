"""Topics: read from metadata and bookies; changed by the broker that owns them."""

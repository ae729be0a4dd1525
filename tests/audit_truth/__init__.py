"""The truth for audits: clusters of our own codecs, bytes and nodes changed from a seed, and what must be found."""

"""The HTTP routes of a bookie, with the answers of Java's."""

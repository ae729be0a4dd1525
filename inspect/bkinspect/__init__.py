"""Cold eyes: files and metadata become facts, facts become findings."""

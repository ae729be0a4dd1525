"""Topic compaction: the last message of every key, in a ledger of its own beside the topic's."""

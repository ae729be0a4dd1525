"""Values: what the things of a BookKeeper cluster are. Frozen, checked, without behaviour that needs a world."""

"""Values: the objects of a BookKeeper cluster. Frozen, validated, without I/O."""

"""What runs for long: bookie, broker, autorecovery, local cluster."""

"""The servers: bookie, broker, auto recovery, and a local cluster of them."""

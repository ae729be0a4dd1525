"""The metadata store: contract, memory, ZooKeeper."""

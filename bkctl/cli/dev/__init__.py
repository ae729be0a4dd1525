"""A local cluster for development: ZooKeeper, bookies and brokers on this machine."""

"""A local cluster for development: the real ZooKeeper and bookies on this machine."""

"""A cluster on this machine: real ZooKeeper, real bookies, real disks."""

"""Real processes, killed at random: ZooKeeper, bookies and auto recovery of Java's and ours, writers that go on."""

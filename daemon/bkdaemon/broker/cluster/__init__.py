"""A broker among others: who owns which bundles, what load each tells, what policies hold for a topic."""

"""A broker among others: ownership of bundles, load reports, policies of topics."""

"""Where tables come from: Spark data sources, a module each; `register` makes them known to a session."""

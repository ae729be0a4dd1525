"""Pulsar's REST interface: the requests of pulsar-admin to a broker, one module for each family of paths."""

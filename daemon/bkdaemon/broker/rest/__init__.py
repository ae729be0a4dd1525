"""Pulsar's REST interface: what pulsar-admin asks of a broker, one module a family of paths."""

"""Namespaces of a Pulsar cluster and their policies."""

"""Tenants of a Pulsar cluster."""

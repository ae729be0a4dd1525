"""Clusters: create, show, format and remove a cluster."""

"""Manage running and interrupted jobs."""

"""Bytes to model and back, one format a module; pure functions."""

"""Conversations without sockets: bytes and time in, events and bytes out."""

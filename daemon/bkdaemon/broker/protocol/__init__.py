"""Conversations of a broker with its clients: connections, requests, producing, consuming."""

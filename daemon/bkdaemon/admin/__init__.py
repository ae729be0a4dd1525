"""The gRPC admin service of our daemons."""

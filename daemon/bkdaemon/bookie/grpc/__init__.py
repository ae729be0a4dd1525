"""The admin port of a bookie: gRPC."""

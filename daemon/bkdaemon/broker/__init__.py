"""The broker: topics on managed ledgers, served by Pulsar's protocol."""

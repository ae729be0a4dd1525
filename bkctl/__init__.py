"""bkctl: one tool for operators of Apache BookKeeper and Apache Pulsar, and the engine it stands on."""

__version__ = "0.1.0"

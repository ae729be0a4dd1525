"""Fixtures of the tests of `bkctl topic policy`."""

from __future__ import annotations

from tests.unit.cli.topic.live import live, served

__all__ = ["live", "served"]

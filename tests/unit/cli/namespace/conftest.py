"""Fixtures of the tests of `bkctl namespace`."""

from __future__ import annotations

from tests.unit.cli.topic.live import served

__all__ = ["served"]

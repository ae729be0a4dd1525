"""Fixtures of the tests of `bkctl subscription`."""

from __future__ import annotations

from tests.unit.cli.topic.live import java, live, served

__all__ = ["java", "live", "served"]

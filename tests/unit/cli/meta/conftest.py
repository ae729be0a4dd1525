"""Fixtures of the tests of `bkctl meta`."""

from __future__ import annotations

from tests.unit.cli.meta.nodes import tree

__all__ = ["tree"]

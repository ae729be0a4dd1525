"""Fixtures of the tests of `bkctl ledger`; `tree` has ledgers without bookies, `live` has bookies."""

from __future__ import annotations

from tests.unit.cli.ledger.metadata import tree
from tests.unit.cli.topic.live import live

__all__ = ["live", "tree"]

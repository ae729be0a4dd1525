"""`broker leader`: the elected leader."""

from __future__ import annotations

from tests import pulsar_golden as golden
from tests.command_line import bkctl


def test_the_leader_is_shown_with_its_address() -> None:
    shown = bkctl("broker", "leader", "-o", "json", tree=golden.memory_tree()).json()
    assert shown == {"broker": "127.0.0.1:28180", "service_url": "http://127.0.0.1:28180"}

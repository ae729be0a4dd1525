"""`broker list`: the registered brokers."""

from __future__ import annotations

from tests import pulsar_golden as golden
from tests.command_line import bkctl


def test_a_broker_of_java_is_listed_with_its_load_report() -> None:
    (row,) = bkctl("broker", "list", "-o", "json", tree=golden.memory_tree()).json()["items"]
    assert (row["broker"], row["leader"], row["topics"], row["version"]) == ("127.0.0.1:28180", True, 51, "4.0.7")
    assert row["service_url"] == "pulsar://127.0.0.1:26750"

"""The kinds of nodes, by their paths."""

from __future__ import annotations

import pytest

from bkctl.codec.layout import Layout, LedgerManager, encode_layout
from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.codec.recovery_notes import (
    AuditorNote,
    CheckName,
    CheckRequest,
    Record,
    SwitchChange,
    SwitchLog,
)
from bkctl.errors import BadBytes
from bkctl.meta.describe import describe
from bkctl.meta.paths import ledger_path
from bkctl.model.bookie import BookieServiceInfo
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from tests.unit.codec.recovery_records import LOST, RESULT, WORKER

UUID = "0f9a1d2c-1b2a-4c3d-8e4f-5a6b7c8d9e0f"


@pytest.mark.parametrize(
    ("place", "kind", "record"),
    [
        ("bkctl/results/replicas", "check_result", RESULT),
        ("bkctl/workers/b1:3181_1f", "worker_note", WORKER),
        ("bkctl/lost/5", "lost_note", LOST),
        ("bkctl/requests/q_0000000001", "check_request", CheckRequest(CheckName.ALL, "me", 1)),
        ("bkctl/auditor", "auditor_note", AuditorNote("a", 1)),
        ("bkctl/switch", "switch_log", SwitchLog()),
        ("disable", "switched_off", SwitchChange(False, 1, "me", "why")),
    ],
)
def test_a_note_is_described_by_its_path(place: str, kind: str, record: Record) -> None:
    assert describe("/ledgers", f"/ledgers/underreplication/{place}", record.encode()) == (kind, record)


def test_an_empty_disable_of_java_is_described() -> None:
    assert describe("/ledgers", "/ledgers/underreplication/disable", b"") == ("switched_off", None)


def test_a_ledger_is_described_in_every_layout() -> None:
    metadata = LedgerMetadata(1, 1, 1, (Ensemble(EntryId(0), (BookieId("a:1"),)),))
    for manager in LedgerManager:
        path = ledger_path("/ledgers", manager, 7)
        assert describe("/ledgers", path, encode_metadata(metadata)) == ("ledger", metadata)
        with pytest.raises(BadBytes):
            describe("/ledgers", path, b"nonsense")


@pytest.mark.parametrize(
    ("place", "data", "kind", "value"),
    [
        ("LAYOUT", encode_layout(Layout(LedgerManager.HIERARCHICAL)), "layout", Layout(LedgerManager.HIERARCHICAL)),
        ("INSTANCEID", UUID.encode(), "instance_id", UUID),
        ("available/a:1", b"", "registration", BookieServiceInfo()),
        ("available/readonly/a:1", b"", "registration", BookieServiceInfo()),
        ("underreplication/lostBookieRecoveryDelay", b"60", "delay_s", 60),
        ("available/readonly", b"", "empty", None),
        ("available/readonly", b"x", "unknown", None),
        ("underreplication/ledgers/0000", b"x", "unknown", None),
    ],
)
def test_a_node_of_bookkeeper_is_described_by_its_path(place: str, data: bytes, kind: str, value: object) -> None:
    assert describe("/ledgers", f"/ledgers/{place}", data) == (kind, value)


def test_a_node_outside_of_the_root_is_unknown() -> None:
    assert describe("/ledgers", "/elsewhere/LAYOUT", b"x") == ("unknown", None)
    assert describe("/ledgers", "/ledgers", b"") == ("empty", None)

"""The decision between owned and not owned, for golden ledgers of Java's broker and for ledgers of other kinds."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping

import pytest

from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.codec.managed_ledger import LedgerInfo, ManagedLedgerInfo, encode_ledger_info
from bkctl.errors import Unavailable
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.owners.search import (
    EXISTS,
    NAMED,
    NO_METADATA,
    ClusterOwners,
    Found,
    claim_of,
    owners_of,
    owners_of_all,
    plugins,
)
from bkctl.meta.store import MetadataStore
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from tests import pulsar_golden as golden
from tests.zookeeper_fixture import Stores

PLUGINS = plugins(("",))
KINDS = {"data": "topic", "cursor": "cursor", "schema": "schema", "compacted-ledger": "compaction"}


def find(tree: MemoryTree, customs: Mapping[int, Mapping[str, bytes]]) -> Found:
    claims = {i: claim for i, custom in customs.items() if (claim := claim_of(PLUGINS, custom)) is not None}
    return asyncio.run(owners_of(MemoryStore(tree), PLUGINS, customs.keys(), claims))


def note(tree: MemoryTree, **custom: str) -> str | None:
    found = find(
        tree, {10**9: {key.replace("__", "/").replace("_", "-"): value.encode() for key, value in custom.items()}}
    )
    return found.owners[10**9][0].note if found.owners else None


def golden_customs() -> dict[int, dict[str, bytes]]:
    rows = json.loads((golden.FOLDER / "pulsar/ledgers.json").read_text())
    return {int(i): {key: str(value).encode() for key, value in row["custom"].items()} for i, row in rows.items()}


def test_golden_ledgers_have_the_owner_of_their_kind() -> None:
    rows = json.loads((golden.FOLDER / "pulsar/ledgers.json").read_text())
    customs = golden_customs()
    tree = golden.memory_tree()
    existing = {i for i in customs if f"/ledgers/00/{i // 10**4:04}/L{i % 10**4:04}" in tree.nodes}
    found = find(tree, {i: customs[i] for i in existing})
    assert found.unreadable.count == 0
    assert len(existing) > 60
    for ledger_id, owners in found.owners.items():
        assert KINDS[rows[str(ledger_id)]["kind"]] in {owner.kind for owner in owners}, ledger_id
    named = Counter(owners[0].kind for owners in found.owners.values() if owners[0].path)
    assert set(named) == {"topic", "cursor", "schema"}
    assert set(found.owners) == existing
    (compacted,) = (owners[0] for owners in found.owners.values() if owners[0].note)
    assert (compacted.kind, compacted.note) == ("compaction", EXISTS), "its reference is in the cursor's ledger"


def test_ledgers_are_owned_by_reference_without_custom_metadata() -> None:
    customs: dict[int, dict[str, bytes]] = {i: {} for i in golden_customs()}
    with_tags, without = find(golden.memory_tree(), golden_customs()), find(golden.memory_tree(), customs)
    referred = {i for i, owners in with_tags.owners.items() if owners[0].path}
    assert set(without.owners) == referred
    assert without.orphans == {}


def test_a_topic_that_exists_and_does_not_list_the_ledger_is_its_owner() -> None:
    name = "golden/ns1/persistent/roll"
    assert note(golden.memory_tree(), application="pulsar", pulsar__managed_ledger=name) == EXISTS


def test_a_topic_that_does_not_exist_owns_nothing() -> None:
    custom = {"application": b"pulsar", "pulsar/managed-ledger": b"golden/ns1/persistent/gone"}
    found = find(golden.memory_tree(), {10**9: custom})
    assert found.owners == {}
    assert found.orphans[10**9].name == "persistent://golden/ns1/gone"


def test_pulsars_ledger_is_owned_where_pulsars_metadata_are_elsewhere() -> None:
    name = "golden/ns1/persistent/roll"
    assert note(MemoryTree(), application="pulsar", pulsar__managed_ledger=name) == NO_METADATA


def test_any_other_application_is_an_owner() -> None:
    assert note(golden.memory_tree(), application="herddb") == NAMED
    assert note(golden.memory_tree(), component="wal") == NAMED
    assert note(golden.memory_tree(), app="x") is None


def test_owners_are_found_in_both_stores(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        path = f"{root}/managed-ledgers/t/n/persistent"
        for number in range(3):
            info = ManagedLedgerInfo((LedgerInfo(10 * number), LedgerInfo(10 * number + 1)))
            await store.create(f"{path}/x{number}", encode_ledger_info(info), parents=True)
        await store.create(f"{root}/streams/s/<default>/ledgers/logrecs_1_1", b"5;77;1", parents=True)
        plugins_here = plugins((root,), (f"{root}/streams",))
        tag = {"pulsar/managed-ledger": b"t/n/persistent/x2"}
        claim = claim_of(plugins_here, tag)
        assert claim is not None
        found = await owners_of(store, plugins_here, {0, 11, 12, 77, 88}, {88: claim})
        assert {i: owners[0].name for i, owners in found.owners.items()} == {
            0: "persistent://t/n/x0",
            11: "persistent://t/n/x1",
            77: f"{root}/streams/s",
            88: "persistent://t/n/x2",
        }
        assert found.orphans == {}

    stores.run(scenario)


def put(tree: MemoryTree, path: str, data: bytes) -> None:
    asyncio.run(MemoryStore(tree).create(path, data, parents=True))


def test_a_node_that_cannot_be_decoded_is_reported() -> None:
    tree = golden.memory_tree()
    put(tree, "/managed-ledgers/golden/ns1/persistent/broken", b"\xff\xff")
    put(tree, "/stream/storage/s/<default>/ledgers/logrecs_1_1", b"?")
    found = find(tree, {10**9: {}})
    assert found.unreadable.count == 2
    assert "persistent/broken" in found.unreadable.messages[0]
    assert "logrecs_1_1" in found.unreadable.messages[1]


def test_a_stream_in_the_functions_namespace_is_an_owner() -> None:
    tree = golden.memory_tree()
    put(tree, "/pulsar/functions/t/n/f/<default>/ledgers/inprogress_1", b"5;1000;1;1;0;0;0")
    assert find(tree, {1000: {}}).owners[1000][0].name == "/pulsar/functions/t/n/f"


def test_an_error_of_the_store_is_raised() -> None:
    class Silent(MemoryStore):
        async def children(self, path: str) -> list[str]:
            raise Unavailable("no answer")

    store: MetadataStore = Silent(golden.memory_tree())
    with pytest.raises(Unavailable):
        asyncio.run(owners_of(store, PLUGINS, {1}, {}))


def count_all(tree: MemoryTree) -> ClusterOwners:
    return asyncio.run(owners_of_all(LedgerStore(MemoryStore(tree), "/ledgers"), PLUGINS))


def test_all_ledgers_of_a_cluster_are_counted_by_owner() -> None:
    tree = golden.memory_tree()
    found = count_all(tree)
    one_by_one = find(tree, golden_customs())
    assert found.ledgers["topic"] > 40
    existing = [i for i in one_by_one.owners if f"/ledgers/00/{i // 10**4:04}/L{i % 10**4:04}" in tree.nodes]
    assert found.ledgers.total() >= len(existing)
    assert all(name.startswith("persistent://") for name in found.names["topic"])
    metadata = LedgerMetadata(
        1, 1, 1, (Ensemble(EntryId(0), (BookieId("b:1"),)),), custom_metadata={"application": b"herddb"}
    )
    put(tree, "/ledgers/00/0009/L0000", encode_metadata(metadata))
    assert count_all(tree).ledgers["application"] == 1


def test_a_cluster_without_ledgers_has_no_owners() -> None:
    tree = golden.memory_tree()
    for path in [path for path in tree.nodes if path.startswith("/ledgers/00")]:
        del tree.nodes[path]
    assert count_all(tree).ledgers.total() == 0

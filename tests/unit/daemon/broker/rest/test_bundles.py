"""Bundles in the REST interface, and operations on all topics of a namespace or a bundle."""

from __future__ import annotations

from bkctl.model.bundle import hash_of, parse_range
from bkctl.model.topic import TopicName
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import DEFAULT, HTTP_URL, NATIVE_URL, A, register_other_broker
from tests.unit.daemon.broker.rest.prepared import OPERATED, OPERATED_TOPICS, prepare_namespace, write_topics


def test_a_namespace_is_unloaded_despite_a_lease_on_a_range_that_is_not_a_bundle() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic("persistent://public/default/t")
        stray = parse_range(DEFAULT, "0x00000000_0x00000007")
        await (await register_other_broker(admin)).acquire(stray, NATIVE_URL, HTTP_URL)
        await admin.ok("PUT", f"{A}/namespaces/{DEFAULT}/unload")
        assert topic.closed

    administering(scenario)


def test_a_bundle_is_unloaded_to_the_named_broker() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic("persistent://public/default/t")
        ownership = admin.service.backend.ownership
        bundle = await ownership.bundle_of(topic.name)
        unload = f"{A}/namespaces/{DEFAULT}/{bundle.range}/unload?destinationBroker="
        refused = await admin.ask("PUT", f"{unload}b:8080")
        assert (refused.status, topic.closed, bundle in ownership.owned) == (409, False, True)
        assert "inactive destination broker" in refused.body["reason"]
        await admin.ok("PUT", unload + ownership.address.broker_id)
        assert (topic.closed, bundle in ownership.owned) == (True, True)
        await admin.ok("PUT", unload)
        assert bundle not in ownership.owned

    administering(scenario)


def test_a_bundle_is_split_at_the_requested_boundaries() -> None:
    async def scenario(admin: Admin) -> None:
        async def cut(lower: int, upper: int, algorithm: str, body: object = None) -> list[str]:
            target = f"{A}/namespaces/t/n/0x{lower:08x}_0x{upper:08x}/split?splitAlgorithmName={algorithm}"
            await admin.ok("PUT", target, body)
            return list((await admin.ok("GET", f"{A}/namespaces/t/n/bundles"))["boundaries"])

        await admin.ok("PUT", f"{A}/tenants/t", {"allowedClusters": ["lab"]})
        await admin.ok("PUT", f"{A}/namespaces/t/n", {"bundles": {"numBundles": 1}})
        end = 0xFFFFFFFF
        whole = ["0x00000000", "0xffffffff"]
        for algorithm in ("topic_count_equally_divide", "specified_positions_divide"):
            assert await cut(0, end, algorithm, [0x1000]) == whole, "nothing is to be divided"
        for number in range(4):
            await admin.topic(f"persistent://t/n/{number}")
        first, second, third, last = sorted(hash_of(f"persistent://t/n/{number}") for number in range(4))
        assert await cut(0, end, "specified_positions_divide", [0, end]) == whole, "neither is inside"
        middle = second + (third - second) // 2
        assert await cut(0, end, "topic_count_equally_divide") == [whole[0], f"0x{middle:08x}", whole[1]]
        assert f"0x{first:08x}" in await cut(0, middle, "specified_positions_divide", [last, first])
        refused = await admin.ask("PUT", f"{A}/namespaces/t/n/0x00000000_0xffffffff/split?splitAlgorithmName=x")
        assert (refused.status, "supported algorithms are" in refused.body["reason"]) == (412, True)

    administering(scenario)


def backlogs(admin: Admin) -> dict[tuple[str, str], int]:
    open_topics = admin.service.server.topics.open
    return {
        (name, one.name): one.cursor.backlog()  # type: ignore[union-attr]
        for name in OPERATED_TOPICS
        for one in open_topics[TopicName.parse(name)].subscriptions.values()
    }


def test_backlogs_are_cleared_and_subscriptions_deleted_in_a_whole_namespace() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_namespace(admin)
        await write_topics(admin)
        assert set(backlogs(admin).values()) == {3}
        await admin.ok("POST", f"{OPERATED}/clearBacklog/s")
        assert backlogs(admin) == {(t, s): 0 if s == "s" else 3 for t in OPERATED_TOPICS for s in ("s", "other")}
        await admin.ok("POST", f"{OPERATED}/0x00000000_0xffffffff/clearBacklog")
        assert set(backlogs(admin).values()) == {0}
        await admin.ok("POST", f"{OPERATED}/unsubscribe/s")
        assert {name for _, name in backlogs(admin)} == {"other"}
        await admin.ok("POST", f"{OPERATED}/0x00000000_0xffffffff/unsubscribe/other")
        assert backlogs(admin) == {}
        assert (await admin.ask("POST", f"{OPERATED}/unsubscribe/pulsar.repl.far")).status == 412
        assert (await admin.ask("POST", f"{OPERATED}/0x00000000_0x10000000/clearBacklog")).status == 412

    administering(scenario)


def test_bundles_with_topics_are_deleted_by_force_only() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_namespace(admin, 2)
        await write_topics(admin, ())
        halves = ("0x00000000_0x80000000", "0x80000000_0xffffffff")
        found = [await admin.ok("GET", f"{OPERATED}/{half}/topicHashPositions") for half in halves]
        assert [one["bundle"] for one in found] == list(halves)
        assert sorted(name for one in found for name in one["topicHashPositions"]) == OPERATED_TOPICS
        full = next(half for half, one in zip(halves, found, strict=True) if one["topicHashPositions"])
        answer = await admin.ask("DELETE", f"{OPERATED}/{full}")
        assert (answer.status, answer.body) == (409, {"reason": "Cannot delete non empty bundle"})
        for half in halves:
            await admin.ok("DELETE", f"{OPERATED}/{half}?force=true")
        assert await admin.ok("GET", f"{A}/persistent/t/n") == []
        assert not admin.service.backend.ownership.owned

    administering(scenario)

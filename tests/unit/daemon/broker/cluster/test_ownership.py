"""Leases on bundles in virtual time: one owner, redirects to leader and least loaded, fail-over, unloading."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from bkdaemon.broker.cluster.ownership import BUNDLES_AGE_MAX_S, BrokerAddress, Ownership
from bkdaemon.broker.topic.backend import Lookup

from bkctl.errors import NotFound, Unavailable, UsageError
from bkctl.meta.brokers import BrokerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.namespaces import NamespaceStore
from bkctl.meta.pulsar_cluster import init_pulsar
from bkctl.model.bundle import Bundle
from bkctl.model.topic import TopicName
from tests.broker.admin import Admin, administering
from tests.sim.loop import SimLoop, run
from tests.unit.log.logs import until

TOPIC = TopicName.parse("persistent://public/default/t")


async def broker(tree: MemoryTree, name: str, topics: int = 0) -> tuple[Ownership, MemoryStore]:
    store = MemoryStore(tree)
    address = BrokerAddress(f"{name}:8080", f"pulsar://{name}:6650", f"http://{name}:8080")
    ownership = Ownership(store, address, "lab")
    ownership.report = lambda: {"pulsarServiceUrl": address.native_url, "numTopics": topics}
    await ownership.start()
    return ownership, store


def on_a_cluster(scenario: Callable[[MemoryTree], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        tree = MemoryTree()
        urls = {"ledgers_root": "/ledgers", "service_url": "http://a:8080", "broker_service_url": "pulsar://a:6650"}
        await init_pulsar(MemoryStore(tree), "lab", **urls)
        await scenario(tree)
        assert loop.failures == []

    run(main)


def test_concurrent_lookups_read_a_namespace_and_a_lease_once() -> None:
    async def scenario(tree: MemoryTree) -> None:
        ownership, store = await broker(tree, "a")
        topics = [TopicName.parse(f"persistent://public/default/t{number}") for number in range(1000)]
        asked: list[str] = []
        inner = store.get

        async def get(path: str) -> Any:
            asked.append(path)
            await asyncio.sleep(0.1)
            return await inner(path)

        store.get = get  # type: ignore[method-assign]
        for _ in range(3):
            found = await asyncio.gather(*(ownership.lookup(topic, authoritative=True) for topic in topics))
            assert {lookup.broker_url for lookup in found} == {"pulsar://a:6650"}
            await asyncio.sleep(BUNDLES_AGE_MAX_S + 1)
        assert len([path for path in asked if path.startswith("/admin")]) <= 3 * 2 + len(ownership.owned), asked[:20]
        with pytest.raises(NotFound):
            await ownership.lookup(TopicName.parse("persistent://public/none/t"), authoritative=True)
        reading = asyncio.create_task(ownership.bundles("public/default"))
        await asyncio.sleep(0.05)
        ownership.forget("public/default")  # what is being read may be the old ones
        await reading
        count = len(asked)
        await ownership.bundles("public/default")
        assert len(asked) > count

    on_a_cluster(scenario)


async def settled(*brokers: Ownership) -> None:
    for _ in range(100):
        if any(one.leading for one in brokers):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("nobody leads")


def test_the_only_broker_acquires_a_bundle_on_lookup() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        await settled(a)
        with pytest.raises(Unavailable, match="look it up"):
            await a.check_owned(TOPIC)
        answers = await asyncio.gather(*(a.lookup(TOPIC, authoritative=False) for _ in range(5)))
        assert set(answers) == {Lookup("pulsar://a:6650")}
        await a.check_owned(TOPIC)
        with pytest.raises(NotFound, match="does not exist"):
            await a.lookup(TopicName.parse("persistent://public/none/t"), authoritative=False)
        await a.stop()
        assert await a.brokers.owned("public/default") == {}

    on_a_cluster(scenario)


def test_clients_are_redirected_to_the_leader_and_to_the_owner() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a", topics=5)
        await settled(a)
        b, _ = await broker(tree, "b")
        await asyncio.sleep(1)
        assert (a.leading, b.leading) == (True, False)
        assert await b.lookup(TOPIC, authoritative=False) == Lookup(
            "pulsar://a:6650", redirect=True, authoritative=False
        )
        assert await a.lookup(TOPIC, authoritative=False) == Lookup("pulsar://b:6650", redirect=True)
        assert await b.lookup(TOPIC, authoritative=True) == Lookup("pulsar://b:6650")
        assert await a.lookup(TOPIC, authoritative=False) == Lookup("pulsar://b:6650")
        with pytest.raises(Unavailable):
            await a.check_owned(TOPIC)
        await a.stop()
        await b.stop()

    on_a_cluster(scenario)


def test_without_a_leader_the_least_loaded_broker_acquires_a_bundle() -> None:
    """When brokers are restarted one after the other, the one that was empty would stay so."""

    async def scenario(tree: MemoryTree) -> None:
        ghost = BrokerStore(MemoryStore(tree))  # a leader that is no broker any more
        assert await ghost.try_to_lead("ghost:8080", "http://ghost:8080")
        a, _ = await broker(tree, "a", topics=5)
        b, _ = await broker(tree, "b")
        assert await a.lookup(TOPIC, authoritative=False) == Lookup(
            "pulsar://b:6650", redirect=True, authoritative=True
        )
        assert await b.lookup(TOPIC, authoritative=False) == Lookup("pulsar://b:6650")
        assert (a.leading, b.leading) == (False, False)

    on_a_cluster(scenario)


def test_assigned_bundles_count_until_the_next_load_report() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        await settled(a)
        b, _ = await broker(tree, "b")
        a.report = lambda: {"pulsarServiceUrl": "pulsar://a:6650", "numTopics": 2}
        to: list[str] = []

        async def ask() -> None:
            """Nobody goes where he is sent, so every bundle is free still."""
            to.append((await a._candidate(await a.bundle_of(TOPIC)) or Lookup("pulsar://a:6650")).broker_url)

        for _ in range(3):
            await ask()
        await a.tell_load()  # tells nothing of the other
        await ask()
        b.report = lambda: {"pulsarServiceUrl": "pulsar://b:6650", "numTopics": 0, "lastUpdate": 1}
        await b.tell_load()
        await ask()
        assert to == ["pulsar://b:6650", "pulsar://b:6650", "pulsar://a:6650", "pulsar://a:6650", "pulsar://b:6650"]
        await a.stop()
        await b.stop()

    on_a_cluster(scenario)


def test_a_load_report_follows_soon_when_the_number_of_bundles_changes() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        a.report = lambda: {"numBundles": len(a.owned)}

        async def told() -> int:
            await a.tell_change()
            return int(((await a.brokers.report("a:8080")) or {}).get("numBundles", -1))

        assert await told() == -1  # nothing has changed since it registered
        namespace = await a.bundles("public/default")
        for count, bundle in enumerate(namespace.all()[:12], 1):
            assert await a._acquire(bundle)
            assert await told() == (count if count != 11 else 10)  # one more than ten is not worth a word
        for bundle in list(a.owned):
            await a.unload(bundle, nothing)
        assert await told() == 0

    on_a_cluster(scenario)


def test_the_leader_assigns_an_unloaded_bundle_to_its_goal() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        await settled(a)
        b, _ = await broker(tree, "b", topics=9)
        bundle = await a.bundle_of(TOPIC)
        a.goals = {bundle: "b:8080"}
        assert await a.lookup(TOPIC, authoritative=False) == Lookup("pulsar://b:6650", redirect=True)
        a.goals = {bundle: "gone:8080"}
        assert await a.lookup(TOPIC, authoritative=False) == Lookup("pulsar://a:6650")
        await a.stop()
        await b.stop()

    on_a_cluster(scenario)


def test_bundles_and_leadership_of_a_dead_broker_pass_to_another() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, store = await broker(tree, "a")
        await settled(a)
        await a.lookup(TOPIC, authoritative=False)
        b, _ = await broker(tree, "b")
        lost: list[set[Bundle]] = []
        a.on_lost = lost.append
        store.expire()
        await settled(b)
        assert await b.lookup(TOPIC, authoritative=True) == Lookup("pulsar://b:6650")
        await asyncio.sleep(2)
        assert lost == [{await b.bundle_of(TOPIC)}]
        assert not await a.owns(TOPIC)
        assert a.registered.is_set()
        assert await a.lookup(TOPIC, authoritative=True) == Lookup("pulsar://b:6650")
        await a.stop()
        await b.stop()

    on_a_cluster(scenario)


def test_clients_are_not_redirected_to_a_broker_that_unloads_the_bundle() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        b, _ = await broker(tree, "b")
        await a.lookup(TOPIC, authoritative=True)
        bundle = await a.bundle_of(TOPIC)
        seen = []

        async def close(closing: Bundle) -> None:
            for one in (a, b):
                with pytest.raises(Unavailable, match="look it up again"):
                    await one.lookup(TOPIC, authoritative=True)
            seen.append(closing)

        await a.unload(bundle, close)
        assert seen == [bundle]
        assert await b.lookup(TOPIC, authoritative=True) == Lookup("pulsar://b:6650")
        with pytest.raises(NotFound):
            await a.unload(bundle, close)

        async def nothing(closing: Bundle) -> None:
            pass

        await b.split(bundle, nothing)
        assert len(await b.bundles("public/default")) == 17
        assert await b.brokers.owner(bundle) is None
        await a.stop()
        await b.stop()

    on_a_cluster(scenario)


def test_no_part_of_a_bundle_is_acquired_while_its_topics_are_closed() -> None:
    """Who opens a topic then fences its ledger, and reads cursors that are not stored yet."""

    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        b, _ = await broker(tree, "b")
        await a.lookup(TOPIC, authoritative=True)
        whole, seen = await a.bundle_of(TOPIC), []

        async def close(closing: Bundle) -> None:
            for one in (a, b):
                with pytest.raises(Unavailable, match="look it up again"):
                    await one.lookup(TOPIC, authoritative=True)
            seen.append(closing)

        with pytest.raises(UsageError, match="is not in"):
            await a.split(whole, close, [whole.upper + 1])
        assert (seen, a.owned) == ([], {whole})
        await a.split(whole, close)
        assert seen == [whole]
        assert await b.lookup(TOPIC, authoritative=True) == Lookup("pulsar://b:6650")
        assert len(await b.bundles("public/default")) == 17
        assert b.owned == {await b.bundle_of(TOPIC)} != {whole}

    on_a_cluster(scenario)


def test_topics_are_closed_when_other_brokers_cannot_be_notified() -> None:
    """Else their clients stay with topics that nobody serves, until the next owner's writes tell them."""

    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        b, _ = await broker(tree, "b")
        await a.lookup(TOPIC, authoritative=True)
        bundle, closed = await a.bundle_of(TOPIC), []

        async def broken(*_: object) -> None:
            raise Unavailable("the connection broke")

        async def close(closing: Bundle) -> None:
            closed.append(closing)

        a.brokers.disable = broken  # type: ignore[method-assign, assignment]
        await a.unload(bundle, close)
        assert closed == [bundle]
        assert await b.lookup(TOPIC, authoritative=True) == Lookup("pulsar://b:6650")

    on_a_cluster(scenario)


def test_concurrent_lookups_of_a_bundle_return_the_same_owner() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a", topics=5)
        await settled(a)
        b, _ = await broker(tree, "b", topics=3)
        answers = await asyncio.gather(*(a.lookup(TOPIC, authoritative=False) for _ in range(20)))
        assert set(answers) == {Lookup("pulsar://b:6650", redirect=True, authoritative=True)}
        assert (await a.lookup(TOPIC, authoritative=False)).broker_url == "pulsar://b:6650"  # it was given one, not 20
        await b.stop()

    on_a_cluster(scenario)


@pytest.mark.parametrize("disabled_late", [False, True])
def test_a_lookup_during_an_unload_returns_the_next_owner(disabled_late: bool) -> None:
    """A client that is refused comes back ever later, and meets the next change."""

    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        await settled(a)
        b, _ = await broker(tree, "b", topics=9)
        await a.lookup(TOPIC, authoritative=True)
        asked: list[asyncio.Task[Lookup]] = []
        disable = a.brokers.disable

        def ask() -> None:
            for one in (a, b):
                asked.extend(asyncio.ensure_future(one.lookup(TOPIC, authoritative=False)) for _ in range(3))

        async def later(*arguments: Any) -> None:
            ask()
            await asyncio.sleep(0.5)
            await disable(*arguments)

        async def close(closing: Bundle) -> None:
            if not disabled_late:
                ask()
            await asyncio.sleep(0.5)

        if disabled_late:
            a.brokers.disable = later  # type: ignore[method-assign]
        await a.unload(await a.bundle_of(TOPIC), close)
        found = await asyncio.gather(*asked)
        assert {lookup.broker_url for lookup in found} == {"pulsar://a:6650"}
        assert await b.lookup(TOPIC, authoritative=False) == Lookup("pulsar://a:6650")
        await a.stop()
        await b.stop()

    on_a_cluster(scenario)


def test_a_lease_whose_response_was_lost_is_kept() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        await settled(a)
        create = a.brokers.acquire

        async def silent(*arguments: str | Bundle) -> bool:
            await create(*arguments)  # type: ignore[arg-type]
            raise Unavailable("no answer")

        a.brokers.acquire = silent  # type: ignore[method-assign, assignment]
        with pytest.raises(Unavailable):
            await a.lookup(TOPIC, authoritative=False)
        assert await a.lookup(TOPIC, authoritative=False) == Lookup("pulsar://a:6650")
        await a.check_owned(TOPIC)

    on_a_cluster(scenario)


def test_a_lease_whose_release_failed_is_released_at_the_next_lookup() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        await settled(a)
        await a.lookup(TOPIC, authoritative=False)
        release = a.brokers.release

        async def failing(bundle: Bundle) -> None:
            raise Unavailable("no answer")

        async def close(bundle: Bundle) -> None:
            with pytest.raises(Unavailable, match="being changed"):
                await a.lookup(TOPIC, authoritative=False)

        a.brokers.release = failing  # type: ignore[method-assign]
        with pytest.raises(Unavailable, match="no answer"):
            await a.unload(await a.bundle_of(TOPIC), close)
        a.brokers.release = release  # type: ignore[method-assign]
        assert await a.lookup(TOPIC, authoritative=False) == Lookup("pulsar://a:6650")

    on_a_cluster(scenario)


def test_a_restarted_broker_reacquires_the_bundles_of_its_old_session() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, store = await broker(tree, "a")
        await settled(a)
        assert await a.lookup(TOPIC, authoritative=False) == Lookup("pulsar://a:6650")
        assert a._task is not None
        a._task.cancel()  # killed; its session is there still
        again, _ = await broker(tree, "a")
        await settled(again)
        with pytest.raises(Unavailable, match="look it up"):
            await again.check_owned(TOPIC)
        assert await again.lookup(TOPIC, authoritative=False) == Lookup("pulsar://a:6650")
        await again.check_owned(TOPIC)
        store.expire()
        await again.check_owned(TOPIC)
        assert [owner.session_id for owner in (await again.brokers.owned("public/default")).values()] == [
            again.brokers.store.session_id
        ]

    on_a_cluster(scenario)


def test_clients_are_not_redirected_to_the_old_address_of_a_renamed_broker() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        await settled(a)
        bundle = await a.bundle_of(TOPIC)
        earlier = MemoryStore(tree)
        await BrokerStore(earlier).acquire(bundle, "pulsar://a:6650", "http://a:9999")
        with pytest.raises(Unavailable, match="look it up again"):  # a client that came here would be refused
            await a.lookup(TOPIC, authoritative=False)
        earlier.expire()
        assert await a.lookup(TOPIC, authoritative=False) == Lookup("pulsar://a:6650")

    on_a_cluster(scenario)


async def nothing(closing: Bundle) -> None:
    """There are no topics to be closed."""


def test_a_bundle_that_another_broker_has_split_is_not_acquired() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        await settled(a)
        b, _ = await broker(tree, "b")
        await a.lookup(TOPIC, authoritative=True)
        whole = await b.bundle_of(TOPIC)  # b knows the bundles as they are now
        await a.split(whole, nothing)
        assert await b.lookup(TOPIC, authoritative=True) == Lookup("pulsar://b:6650")
        half = await a.bundle_of(TOPIC)
        assert half != whole
        assert b.owned == {half}
        assert set(await b.brokers.owned("public/default")) == {half}
        assert await a.lookup(TOPIC, authoritative=True) == Lookup("pulsar://b:6650")

    on_a_cluster(scenario)


def test_a_broker_that_splits_an_unowned_bundle_owns_it_meanwhile() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, store = await broker(tree, "a")
        b, _ = await broker(tree, "b")
        whole, update = await a.bundle_of(TOPIC), store.set

        async def slow(path: str, data: bytes, version: int) -> Any:
            assert await b.lookup(TOPIC, authoritative=True) == Lookup("pulsar://a:6650")
            return await update(path, data, version)

        store.set = slow  # type: ignore[method-assign, assignment]
        await a.split(whole, nothing)
        store.set = update  # type: ignore[method-assign]
        assert await a.brokers.owned("public/default") == {}
        assert await b.lookup(TOPIC, authoritative=True) == Lookup("pulsar://b:6650")
        with pytest.raises(Unavailable, match="look it up again"):
            await a.split(await b.bundle_of(TOPIC), nothing)

    on_a_cluster(scenario)


def test_concurrent_splits_of_two_brokers_both_take_effect() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        b, _ = await broker(tree, "b")
        before = await a.bundles("public/default")
        await asyncio.gather(a.split(before.at(0), nothing), b.split(before.at(1 << 31), nothing))
        after = await NamespaceStore(MemoryStore(tree)).bundles("public/default")
        assert len(after) == len(before) + 2

    on_a_cluster(scenario)


def test_leases_of_a_recreated_namespace_are_released() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, _ = await broker(tree, "a")
        namespaces = NamespaceStore(MemoryStore(tree))
        await a.lookup(TOPIC, authoritative=True)
        await a.give_up_strays(nothing)
        (stray,) = a.owned
        await namespaces.delete_namespace("public/default")
        await namespaces.create_namespace("public/default", ["lab"], 3)
        await asyncio.sleep(BUNDLES_AGE_MAX_S + 1)
        await a.lookup(TOPIC, authoritative=True)
        closed: list[Bundle] = []

        async def close(bundle: Bundle) -> None:
            closed.append(bundle)

        await a.give_up_strays(close)
        assert closed == [stray]
        assert a.owned == {await a.bundle_of(TOPIC)}
        await namespaces.delete_namespace("public/default")
        await asyncio.sleep(BUNDLES_AGE_MAX_S + 1)
        await a.give_up_strays(close)
        assert a.owned == set()
        assert await a.brokers.owned("public/default") == {}

    on_a_cluster(scenario)


def test_a_redirected_client_waits_while_its_bundle_is_acquired() -> None:
    async def scenario(tree: MemoryTree) -> None:
        a, store = await broker(tree, "a")
        b, _ = await broker(tree, "b")
        await a.bundle_of(TOPIC)
        read = store.get

        async def slow(path: str) -> Any:
            await asyncio.sleep(0.1)
            return await read(path)

        store.get = slow  # type: ignore[method-assign]
        taking = asyncio.create_task(a.lookup(TOPIC, authoritative=True))
        await asyncio.sleep(0.15)  # the lease is there, and is looked at again
        assert await b.lookup(TOPIC, authoritative=True) == Lookup("pulsar://a:6650")
        assert not taking.done()
        await a.check_owned(TOPIC)
        assert await taking == Lookup("pulsar://a:6650")

    on_a_cluster(scenario)


def test_a_broker_that_shuts_down_hands_its_bundles_over() -> None:
    async def scenario(admin: Admin) -> None:
        ours = admin.service.backend.ownership
        await until(lambda: ours.leading)
        topic = await admin.topic("public/default/a")
        address = BrokerAddress("b:8080", "pulsar://b:6650", "http://b:8080")
        other = Ownership(MemoryStore(admin.cluster.tree), address, "lab")
        other.report = lambda: {"pulsarServiceUrl": "pulsar://b:6650", "webServiceUrl": "http://b:8080"}
        await other.start()
        seen: list[object] = []

        async def close(bundle: Any) -> None:
            with pytest.raises(Unavailable):  # nobody is sent here while topics are being closed
                await other.lookup(topic.name, authoritative=True)
            await admin.service.close_bundle(bundle)
            seen.append(topic.closed)

        await ours.leave(close)
        assert seen == [True]
        assert await ours.brokers.brokers() == ["b:8080"]
        await until(lambda: other.leading)
        led = await ours.lookup(topic.name, authoritative=True)  # a client that still asks us
        assert (led.broker_url, led.redirect) == ("pulsar://b:6650", True)
        assert ours.owned == set()
        found = await other.lookup(TopicName.parse("public/default/a"), authoritative=False)
        assert (found.broker_url, found.redirect) == ("pulsar://b:6650", False)
        assert (await ours.lookup(topic.name, authoritative=False)).broker_url == "pulsar://b:6650"
        await other.stop()

    administering(scenario)

"""The balancer of a broker: splits its bundles, and as the leader unloads bundles of overloaded brokers."""

from __future__ import annotations

from typing import Any

from bkdaemon.broker.cluster.balance import ROUNDS, Move
from bkdaemon.broker.cluster.balancer import Balancer
from bkdaemon.broker.cluster.load import bundle_stats

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.cluster.reports import report
from tests.unit.log.logs import until


def test_a_large_bundle_is_split_and_its_topics_stay_available() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", "/admin/v2/namespaces/public/big", {"bundles": {"numBundles": 1}})
        names = [f"persistent://public/big/t{i}" for i in range(6)]
        for name in names:
            await admin.topic(name)
        await Balancer(admin.service).run()
        bundles = await admin.ok("GET", "/admin/v2/namespaces/public/big/bundles")
        assert bundles["boundaries"] == ["0x00000000", "0x7fffffff", "0xffffffff"]
        for name in names:
            assert not (await admin.topic(name)).closed
        told = bundle_stats(admin.service)
        assert sum(one["topics"] for one in told.values()) == 6
        assert len(told) == 2

    administering(scenario, split_topics=5)


def test_loads_are_compared_at_the_configured_interval() -> None:
    async def scenario(admin: Admin) -> None:
        await until(lambda: admin.service.backend.ownership.leading)
        balancer, compared = Balancer(admin.service), []

        async def shed(reports: Any) -> list[Move]:
            compared.append(reports)
            return []

        balancer.shed = shed  # type: ignore[method-assign]
        for _ in range(7):
            await balancer.run()
        assert len(compared) == 2
        await admin.ok("POST", "/admin/v2/brokers/configuration/loadBalancerSheddingIntervalMinutes/1")
        await balancer.run()
        assert len(compared) == 3

    administering(scenario, shedding_minutes=3)


def test_the_leader_unloads_its_own_bundle() -> None:
    async def scenario(admin: Admin) -> None:
        ownership = admin.service.backend.ownership
        await until(lambda: ownership.leading)
        topic = await admin.topic("public/default/a")
        await admin.topic("public/default/b")
        (first, second) = sorted(map(str, ownership.owned))
        reports = {
            "a:8080": report(cpu=0.9, bundles={first: 90.0, second: 5.0}),
            "b:8080": report(cpu=0.1),
        }
        balancer = Balancer(admin.service)
        moves = [await balancer.shed(reports) for _ in range(ROUNDS)]
        assert moves[-1] == [Move("a:8080", second)]
        assert set(map(str, ownership.owned)) == {first}
        assert balancer.unloaded == 1
        assert {str(bundle): goal for bundle, goal in ownership.goals.items()} == {second: "b:8080"}
        assert str(await ownership.bundle_of(topic.name)) in (first, second)

    administering(scenario)

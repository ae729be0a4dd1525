"""Namespaces that a broker takes over at its start."""

from __future__ import annotations

from pathlib import Path

from bkdaemon.broker.cluster.bootstrap import take_namespaces

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.keys import config_of_keys, one_bundle
from tests.unit.daemon.broker.rest.clients import TOPIC


def test_bootstrap_namespaces_are_taken_with_their_topics(tmp_path: Path) -> None:
    config = config_of_keys(tmp_path, bootstrapNamespaces="t/n, public/default, no/such")

    async def scenario(admin: Admin) -> None:
        await one_bundle(admin)
        await admin.topic(TOPIC)
        ownership, topics = admin.service.backend.ownership, admin.service.server.topics
        for bundle in list(ownership.owned):
            await ownership.unload(bundle, admin.service.close_bundle)
        assert not topics.open
        await take_namespaces(admin.service)
        assert [str(bundle) for bundle in ownership.owned] == ["t/n/0x00000000_0xffffffff"]
        assert sorted(map(str, topics.open)) == [f"persistent://t/n/{number}" for number in range(4)]

    administering(scenario, bootstrap_namespaces=config.bootstrap_namespaces)

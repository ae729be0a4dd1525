"""The parts of one broker: its id, and the topics of a bundle that it closes."""

from __future__ import annotations

from bkctl.meta.namespaces import NamespaceStore
from tests.broker.admin import Admin, administering


def test_the_broker_id_is_the_address_of_the_web_service() -> None:
    async def scenario(admin: Admin) -> None:
        assert admin.service.broker_id == "a:8080"

    administering(scenario, bookies=0)


def test_closing_a_bundle_closes_its_topics_and_no_others() -> None:
    async def scenario(admin: Admin) -> None:
        namespaces: NamespaceStore = admin.service.backend.meta.namespaces
        await namespaces.create_namespace("public/same", ["lab"], 4)
        topics = [await admin.topic(f"public/{namespace}/t{i}") for namespace in ("default", "same") for i in range(8)]
        ownership = admin.service.backend.ownership
        bundle = await ownership.bundle_of(topics[0].name)
        inside = [topic for topic in topics if await ownership.bundle_of(topic.name) == bundle]
        assert 0 < len(inside) < len(topics)
        await admin.service.close_bundle(bundle)
        assert [topic for topic in topics if topic.closed] == inside
        assert set(admin.service.server.topics.open) == {topic.name for topic in topics if topic not in inside}
        assert bundle in ownership.owned, "the lease is released by the ownership, not here"

    administering(scenario)

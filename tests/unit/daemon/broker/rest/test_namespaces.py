"""Policies of a namespace that are stored beside its others."""

from __future__ import annotations

from tests.broker.admin import Admin, administering

NAMESPACE = "/admin/v2/namespaces/public/fresh"
AFFINITY = f"{NAMESPACE}/persistence/bookieAffinity"
GROUPS = {"bookkeeperAffinityGroupPrimary": "a", "bookkeeperAffinityGroupSecondary": "b"}


def test_the_affinity_group_of_a_used_namespace_without_one_is_empty() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", NAMESPACE, {})
        answer = await admin.ask("GET", AFFINITY)
        assert (answer.status, answer.body) == (404, {"reason": "Namespace local-policies does not exist"})
        await admin.topic("persistent://public/fresh/t")
        assert (await admin.ask("GET", AFFINITY)).status == 204
        await admin.ok("POST", AFFINITY, GROUPS)
        assert await admin.ok("GET", AFFINITY) == GROUPS
        await admin.ok("DELETE", AFFINITY)
        assert await admin.ok("GET", AFFINITY) is None

    administering(scenario)

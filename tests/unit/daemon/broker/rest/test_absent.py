"""Features that this broker does not have: their requests are refused with a reason."""

from __future__ import annotations

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.cluster.test_dynamic import TOPIC

TOPIC_PATH = "/admin/v2/persistent/public/default/t"
POLICIES = "/admin/v2/namespaces/public/default"


def test_offload_and_entry_filters_are_refused_with_a_reason() -> None:
    async def scenario(admin: Admin) -> None:
        assert (await admin.ask("PUT", f"{TOPIC_PATH}/compaction")).status == 404
        await admin.topic(TOPIC)
        answer = await admin.ask("PUT", f"{TOPIC_PATH}/offload", {"ledgerId": 1, "entryId": 1})
        assert answer.status == 405
        assert answer.body["reason"].startswith("This broker has no offload")
        for what in ("compaction", "offload"):
            assert (await admin.ok("GET", f"{TOPIC_PATH}/{what}"))["status"] == "NOT_RUN"
        answer = await admin.ask("POST", f"{POLICIES}/offloadPolicies", 5)
        assert (answer.status, "offloadPolicies" in answer.body["reason"]) == (405, True)
        assert (await admin.ask("GET", f"{POLICIES}/offloadPolicies")).data == b""

    administering(scenario)

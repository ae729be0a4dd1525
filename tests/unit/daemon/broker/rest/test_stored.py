"""Policies that are stored for Java's brokers."""

from __future__ import annotations

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import status_of
from tests.unit.daemon.broker.rest.stored_namespace import STORED_NAMESPACE, STORED_TOPIC, prepare_stored


def test_policies_without_an_effect_here_are_stored_as_by_java() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        clusters = f"{STORED_NAMESPACE}/allowedClusters"
        assert await admin.ok("GET", clusters) == []
        assert await status_of(admin, "POST", clusters, ["lab", "lab"]) == (200, None)
        assert await admin.ok("GET", clusters) == ["lab"]
        text = "Cluster [no] is not in the list of allowed clusters list for tenant [t1]"
        assert await status_of(admin, "POST", clusters, ["no"]) == (403, {"reason": text})
        answer = await admin.ask("POST", clusters, [])
        assert (answer.status, answer.body["reason"][:60]) == (
            400, "Allowed clusters do not contain the replication cluster lab.",
        )  # fmt: skip
        invalid = {"reason": "Invalid bundle range: allowedClusters"}
        assert await status_of(admin, "DELETE", clusters) == (412, invalid)
        mode = f"{STORED_NAMESPACE}/subscriptionAuthMode"
        for value, told in (("Prefix", "Prefix"), ("None", "None")):
            assert await status_of(admin, "POST", mode, value) == (204, None)
            assert await admin.ok("GET", mode) == told
        assert (await admin.ask("POST", mode, "zzz")).status == 400
        rate = f"{STORED_NAMESPACE}/replicatorDispatchRate"
        assert await admin.ok("GET", rate) is None
        assert await status_of(admin, "POST", rate, {"dispatchThrottlingRateInMsg": 5}) == (204, None)
        wanted = {"dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": 0}
        assert await admin.ok("GET", rate) == wanted | {"relativeToPublishRate": False, "ratePeriodInSecond": 0}
        assert await status_of(admin, "DELETE", rate) == (204, None)
        for where in (f"{STORED_NAMESPACE}/entryFilters", f"{STORED_TOPIC}/entryFilters"):
            missing = {"reason": "Entry filter 'a' not found"}
            assert await status_of(admin, "POST", where, {"entryFilterNames": "a,b"}) == (400, missing)
            answer = await admin.ask("POST", where, {"entryFilterNames": " , "})
            assert (answer.status, "can't be empty" in answer.body["reason"]) == (400, True)
        assert await status_of(admin, "DELETE", f"{STORED_NAMESPACE}/entryFilters") == (204, None)

    administering(scenario)


def test_the_old_auto_update_strategy_takes_effect_unless_the_new_one_is_set() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        old, new = (f"{STORED_NAMESPACE}/schema{name}CompatibilityStrategy" for name in ("AutoUpdate", ""))

        async def rules() -> str:
            topic = await admin.topic("t1/n/t")
            admin.service.backend.policies.forget("t1/n")
            return str((await admin.service.backend.rules(topic.name)).schema_compatibility)

        assert await status_of(admin, "GET", old) == (204, None)
        assert await rules() == "FULL"
        assert await status_of(admin, "PUT", old, "Backward") == (204, None)
        assert await admin.ok("GET", old) == "Backward"
        assert await rules() == "BACKWARD"
        assert await status_of(admin, "PUT", old, "AutoUpdateDisabled") == (204, None)
        assert await rules() == "ALWAYS_INCOMPATIBLE"
        await admin.ok("PUT", new, "FORWARD")
        assert await rules() == "FORWARD"
        assert (await admin.ask("PUT", old, "backwards")).status == 400
        await admin.ok("PUT", new, "UNDEFINED")
        assert await status_of(admin, "PUT", old) == (204, None)
        assert await rules() == "FULL"

    administering(scenario)

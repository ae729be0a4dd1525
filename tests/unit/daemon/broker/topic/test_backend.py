"""What the protocol's half of the broker expects of a Backend: the broker's own and the one of tests agree."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from bkdaemon.broker.topic.backend import Backend, StoredSchema

from bkctl.errors import BkctlError, Conflict, NotFound
from bkctl.model.topic import TopicName
from tests.broker.admin import Admin, administering
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import TOPIC
from tests.unit.log.logs import until

NAME = TopicName.parse(TOPIC)
MISSING = TopicName.parse("persistent://public/missing/t")
SCHEMA = StoredSchema(-1, 1, b"", {"owner": "a"}, "s")
Scenario = Callable[[Backend], Awaitable[None]]


def with_test_backend(scenario: Scenario) -> None:
    async def run(stage: Stage) -> None:
        await scenario(stage.backend)

    on_stage(run)


def with_own_backend(scenario: Scenario) -> None:
    async def run(admin: Admin) -> None:
        await scenario(admin.service.backend)

    administering(run)


backends = pytest.mark.parametrize("with_backend", [with_test_backend, with_own_backend], ids=["test", "own"])


@backends
def test_requests_for_a_missing_namespace_fail(with_backend: Callable[[Scenario], None]) -> None:
    async def scenario(backend: Backend) -> None:
        await backend.check_namespace("public/default")
        with pytest.raises(NotFound):
            await backend.check_namespace("public/missing")
        with pytest.raises(NotFound):
            await backend.lookup(MISSING, authoritative=False)
        with pytest.raises(NotFound):
            await backend.partitions(MISSING, create=True)
        assert await backend.topics("public/missing") == []

    with_backend(scenario)


@backends
def test_a_topic_without_partitions_is_created_only_on_request(with_backend: Callable[[Scenario], None]) -> None:
    async def scenario(backend: Backend) -> None:
        with pytest.raises(NotFound):
            await backend.partitions(NAME, create=False)
        assert await backend.partitions(NAME, create=True) == 0
        found = await backend.lookup(NAME, authoritative=False)
        assert found.broker_url.startswith("pulsar://")
        assert not found.redirect
        await backend.check_owned(NAME)
        with pytest.raises(NotFound):
            await backend.open_ledger(TopicName.parse(f"{TOPIC}2"), create=False)
        ledger = await backend.open_ledger(NAME, create=True)
        assert ledger.last_confirmed.entry_id == -1
        assert await backend.topics("public/default") == [TOPIC]
        assert await backend.partitions(NAME, create=False) == 0
        await ledger.close()

    with_backend(scenario)


@backends
def test_a_watch_reports_new_topics_of_its_namespace_until_it_is_stopped(
    with_backend: Callable[[Scenario], None],
) -> None:
    async def scenario(backend: Backend) -> None:
        await backend.lookup(NAME, authoritative=False)
        reports: list[int] = []
        stop = backend.watch_topics("public/default", lambda: reports.append(1))
        first = await backend.open_ledger(NAME, create=True)
        await until(lambda: reports)
        stop()
        count = len(reports)
        second = await backend.open_ledger(TopicName.parse(f"{TOPIC}2"), create=True)
        assert len(reports) == count
        await first.close()
        await second.close()

    with_backend(scenario)


@backends
def test_schema_versions_start_at_0_and_a_taken_version_is_a_conflict(
    with_backend: Callable[[Scenario], None],
) -> None:
    async def scenario(backend: Backend) -> None:
        assert await backend.schema(NAME, None) is None
        assert await backend.schemas(NAME) == []
        first = await backend.add_schema(NAME, SCHEMA, -1)
        assert (first.version, first.data, first.properties) == (0, b"", {"owner": "a"})
        with pytest.raises(Conflict):
            await backend.add_schema(NAME, SCHEMA._replace(type=4), -1)
        second = await backend.add_schema(NAME, SCHEMA._replace(type=6), 0)
        assert second.version == 1
        assert [(one.version, one.type) for one in await backend.schemas(NAME)] == [(0, 1), (1, 6)]
        latest, oldest = await backend.schema(NAME, None), await backend.schema(NAME, 0)
        assert latest is not None
        assert oldest is not None
        assert (latest.version, oldest.version) == (1, 0)
        assert await backend.schema(NAME, 2) is None

    with_backend(scenario)


@backends
def test_producer_names_are_unique(with_backend: Callable[[Scenario], None]) -> None:
    async def scenario(backend: Backend) -> None:
        names = [backend.producer_name() for _ in range(20)]
        assert len(set(names)) == 20

    with_backend(scenario)


@backends
def test_bytes_are_unconfirmed_until_their_ledger_has_stored_them(with_backend: Callable[[Scenario], None]) -> None:
    async def scenario(backend: Backend) -> None:
        await backend.lookup(NAME, authoritative=False)
        ledger = await backend.open_ledger(NAME, create=True)
        failures: list[BkctlError] = []
        ledger.on_failed = failures.append
        assert backend.unconfirmed_bytes == 0
        ledger.add_many([b"abc", b"de"])
        assert backend.unconfirmed_bytes == 5
        await until(lambda: not backend.unconfirmed_bytes)
        assert (failures, ledger.last_confirmed.entry_id) == ([], 1)
        await ledger.close()

    with_backend(scenario)

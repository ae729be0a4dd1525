"""Asks the owners of Pulsar topics to unload them, so that the writers of their open ledgers leave a bookie.

A managed ledger's ledgers carry its name in their custom metadata (`pulsar/managed-ledger`), those of its cursors too.
The owner closes the ledger and, when clients reconnect, creates another one on writable bookies. A topic that no broker
has loaded has no writer: its ledger stays open until the topic is loaded again, or is fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from bkctl.cli.env import Env
from bkctl.errors import BkctlError, UsageError
from bkctl.model.topic import TopicName, decode_name

if TYPE_CHECKING:
    import asyncio

    from bkctl.cli.access import ClusterAccess
    from bkctl.cli.pulsar_admin import Admin
    from bkctl.meta.ledgers import LedgerStore
    from bkctl.model.ledger import LedgerMetadata

MANAGED_LEDGER: Final = "pulsar/managed-ledger"
SHOWN_MAX: Final = 20
REQUESTS_AT_ONCE_MAX: Final = 8


def topic_of(metadata: LedgerMetadata) -> TopicName | None:
    """The topic whose managed ledger a ledger belongs to; None for any other ledger."""
    name = metadata.custom_metadata.get(MANAGED_LEDGER, b"").decode("utf-8", "replace")
    parts = name.split("/")
    if len(parts) < 4:
        return None
    tenant, *namespace, domain, local = parts
    try:
        return TopicName.parse(f"{domain}://{tenant}/{'/'.join(namespace)}/{decode_name(local)}")
    except UsageError:
        return None


class Unloading:
    """Unloads the topics of open ledgers, each once."""

    def __init__(self, env: Env, ledgers: LedgerStore, brokers: Mapping[str, Admin]) -> None:
        import asyncio

        self._env = env
        self._ledgers = ledgers
        self._brokers = brokers
        self._asked: set[TopicName] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(REQUESTS_AT_ONCE_MAX)

    @classmethod
    async def on(cls, env: Env, cluster: ClusterAccess) -> Unloading:
        """Uses the brokers that are registered now."""
        from bkctl.cli.pulsar_admin import Admin
        from bkctl.meta.brokers import BrokerStore

        store, brokers = BrokerStore(await cluster.pulsar()), {}
        for broker_id in await store.brokers():
            url = ((await store.report(broker_id)) or {}).get("webServiceUrl")
            if isinstance(url, str):
                brokers[broker_id] = Admin.of(env, url)
        return cls(env, await cluster.ledgers(), brokers)

    async def topics(self, ledger_ids: Iterable[int]) -> dict[TopicName, list[int]]:
        """The topics of these ledgers, each with its ledgers."""
        found: dict[TopicName, list[int]] = {}
        async for record in self._ledgers.read_many(list(ledger_ids), lambda *_: None):
            topic = topic_of(record.metadata)
            if topic is not None and not record.metadata.closed:
                found.setdefault(topic, []).append(record.ledger_id)
        return found

    async def steps(self, ledger_ids: Iterable[int]) -> tuple[str, ...]:
        """The steps of the plan for these topics."""
        topics = await self.topics(ledger_ids)
        if not topics:
            return ("no open ledger belongs to a topic: no topic is unloaded",)
        if not self._brokers:
            return (f"no broker is registered: {len(topics)} topics cannot be unloaded, waiting for their writers",)
        steps = [
            f"ask the owner of {topic} to unload it, for ledger {', '.join(map(str, ids))}"
            for topic, ids in sorted(topics.items())[:SHOWN_MAX]
        ]
        return (*steps, f"and {len(topics) - SHOWN_MAX} more topics") if len(topics) > SHOWN_MAX else tuple(steps)

    def want(self, ledger_ids: list[int]) -> None:
        """Unloads the topics of these ledgers in the background."""
        import asyncio

        if self._brokers:
            task = asyncio.ensure_future(self._ask(ledger_ids))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stops unloading topics."""
        import asyncio

        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, ledger_ids: list[int]) -> None:
        import asyncio

        try:
            topics = await self.topics(ledger_ids)
        except BkctlError as e:
            self._env.warn(f"cannot determine the topics of the open ledgers: {e.message}")
            return
        news = sorted(topics.keys() - self._asked)
        self._asked.update(news)
        await asyncio.gather(*(self._unload(topic) for topic in news))

    async def _unload(self, topic: TopicName) -> None:
        """Unloads a topic through any broker, which redirects to the owner."""
        from bkctl.cli.pulsar_admin import topic_path

        why = ""
        async with self._turn:
            for admin in self._brokers.values():
                try:
                    await admin.ask("PUT", topic_path(topic, "unload"))
                except BkctlError as e:
                    why = e.message
                    continue
                self._env.note(f"{topic} is unloaded")
                return
        self._env.warn(f"{topic} is not unloaded: {why}")

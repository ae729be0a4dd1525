"""Open ledgers of Pulsar's topics: whoever owns the topic is asked to unload it, so that its writer leaves the bookie.

A managed ledger's ledgers carry its name in their custom metadata (`pulsar/managed-ledger`), those of its cursors too.
The owner closes the ledger and, when clients come back, begins another one on bookies that take entries. A topic that
nobody has loaded has no writer: its ledger stays open until the topic is loaded again, or is fenced.
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
    """Asks for the topics of open ledgers, each once."""

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
        """With the brokers that are registered beside the cluster now."""
        from bkctl.cli.pulsar_admin import Admin
        from bkctl.meta.brokers import BrokerStore

        store, brokers = BrokerStore(await cluster.pulsar()), {}
        for broker_id in await store.brokers():
            url = ((await store.report(broker_id)) or {}).get("webServiceUrl")
            if isinstance(url, str):
                brokers[broker_id] = Admin.of(env, url)
        return cls(env, await cluster.ledgers(), brokers)

    async def topics(self, ledger_ids: Iterable[int]) -> dict[TopicName, list[int]]:
        """The topics of these ledgers, and which are whose."""
        found: dict[TopicName, list[int]] = {}
        async for record in self._ledgers.read_many(list(ledger_ids), lambda *_: None):
            topic = topic_of(record.metadata)
            if topic is not None and not record.metadata.closed:
                found.setdefault(topic, []).append(record.ledger_id)
        return found

    async def steps(self, ledger_ids: Iterable[int]) -> tuple[str, ...]:
        """What the plan says of them."""
        topics = await self.topics(ledger_ids)
        if not topics:
            return ("no open ledger is a topic's: nothing is unloaded",)
        if not self._brokers:
            return (f"no broker is registered: {len(topics)} topics cannot be unloaded, their writers are waited for",)
        steps = [
            f"ask the owner of {topic} to unload it, for ledger {', '.join(map(str, ids))}"
            for topic, ids in sorted(topics.items())[:SHOWN_MAX]
        ]
        return (*steps, f"and {len(topics) - SHOWN_MAX} topics more") if len(topics) > SHOWN_MAX else tuple(steps)

    def want(self, ledger_ids: list[int]) -> None:
        """These are waited for: their topics are asked for, beside what goes on."""
        import asyncio

        if self._brokers:
            task = asyncio.ensure_future(self._ask(ledger_ids))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Asks for no more."""
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
            self._env.warn(f"the topics of the open ledgers cannot be told: {e.message}")
            return
        news = sorted(topics.keys() - self._asked)
        self._asked.update(news)
        await asyncio.gather(*(self._unload(topic) for topic in news))

    async def _unload(self, topic: TopicName) -> None:
        """By any broker: it knows the owner."""
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

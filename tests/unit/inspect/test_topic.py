"""A topic looked at without its broker, in virtual time."""

from __future__ import annotations

from bkinspect.topic import read_entries, read_topic

from bkctl.meta.pulsar import Stores
from bkctl.model.topic import EARLIEST, TopicName
from tests.unit.log.logs import EAGER, Broker, another, on_brokers, payloads, until

TOPIC = TopicName.parse("persistent://public/default/t")


def test_entries_far_behind_the_last_confirmed_one_that_bookies_know_are_seen() -> None:
    """An open ledger's bookies hear what is confirmed with the next add only."""

    async def scenario(broker: Broker) -> None:
        log = await broker.open(EAGER.__class__(rollover_min_s=0, retention_check_s=1e6))
        log.add_many(payloads(700))
        await until(lambda: len(broker.confirmed) == 700)
        other = (await another(broker)).context
        cold = await read_topic(other.bookkeeper, Stores.of(other.store.store), TOPIC)
        assert cold.ledgers.entries_total == 700
        found = [e async for part in read_entries(other.bookkeeper, cold, EARLIEST, None) for _, e in part]
        assert found == payloads(700)
        log.add_many(payloads(1))  # and it is not fenced
        await until(lambda: len(broker.confirmed) == 701)
        await log.close()

    on_brokers(scenario)

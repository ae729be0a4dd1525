"""Topics without storage: receipts and the consumers that get a message, in virtual time."""

from __future__ import annotations

from bkctl.codec.pulsar import Command
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import NON_PERSISTENT_TOPIC, producing


def test_receipts_have_ledger_and_entry_0() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage, topic=NON_PERSISTENT_TOPIC)
        client.publish(0)
        receipt = (await client.next(Command.SEND_RECEIPT)).message
        assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (0, 0)

    on_stage(scenario)


def test_the_consumer_that_replaces_a_silent_one_gets_new_messages() -> None:
    async def scenario(stage: Stage) -> None:
        held, other = await stage.client(), await stage.client()
        await held.subscribe(NON_PERSISTENT_TOPIC)
        held.answers_pings = False
        assert not hasattr(await other.subscribe(NON_PERSISTENT_TOPIC), "error")
        await other.produce(NON_PERSISTENT_TOPIC)
        other.flow(1)
        other.publish(0)
        await other.messages(1)

    on_stage(scenario)

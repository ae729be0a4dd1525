"""What official clients said to Java's broker, said to ours: the same commands with the same fields come back.

A capture's client frames are sent at their captured times (virtual here), with our ledger ids for Java's. Compared are,
connection by connection, every command of the broker with its fields and values; MESSAGEs apart, by consumer, as their
order among other answers is anybody's. Left out: pings, our own address, and highest_sequence_id of receipts, which is
random in Java's.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import pytest
from bkdaemon.broker.rules import TopicRules
from google.protobuf.message import Message

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, decode_command, encode_frame
from bkctl.errors import BkctlError
from tests.broker.raw import RawClient, Stage, on_stage
from tests.unit.codec.pulsar_frames import Frame, frames, split

SCENARIOS = [
    "produce_unbatched",
    "produce_batched",
    "produce_compressed",
    "produce_chunked",
    "access_modes",
    "producer_names",
    "consume_exclusive",
    "consume_cumulative",
    "consume_batch_index",
    "consume_failover",
    "seek",
    "reader",
    "dedup",
    "dead_letter",
    "unsubscribe",
    "schemas",
    "java_produce",
    "java_produce_chunked",
]
ANY_ORDER = {"access_modes"}
"""Where Java stored an epoch in ZooKeeper while it answered what was asked later, and the client hung up at once."""
OWN = {
    ("CONNECTED", "server_version"),
    ("CONNECTED", "feature_flags"),
    ("LOOKUP_RESPONSE", "brokerServiceUrl"),
    ("SEND_RECEIPT", "highest_sequence_id"),
    ("ERROR", "message"),
    ("GET_SCHEMA_RESPONSE", "error_message"),
    ("CONSUMER_STATS_RESPONSE", "address"),
    ("CONSUMER_STATS_RESPONSE", "connectedSince"),
}


class Replay:
    """One capture against one broker."""

    def __init__(self, stage: Stage, rows: list[Frame], *, hangs_up: bool) -> None:
        self.hangs_up = hangs_up
        self.stage = stage
        self.rows = rows
        self.clients: dict[int, RawClient] = {}
        self.ledgers: dict[int, int] = {}
        self.taken: dict[int, list[tuple[str, dict[str, Any]]]] = {}
        names = [f.fields["producer_name"] for f in rows if f.command == "PRODUCER_SUCCESS"]
        generated = iter(n for n in dict.fromkeys(names) if n.startswith("lab-"))
        stage.backend.producer_name = lambda: next(generated, "none")  # type: ignore[method-assign]

    async def run(self) -> None:
        expected: dict[int, int] = {}
        ours = sorted(self.rows, key=lambda f: f.time)
        start = asyncio.get_running_loop().time()
        for frame in ours:
            if frame.sender == "B":
                expected[frame.conn] = expected.get(frame.conn, 0) + (frame.command not in ("PING", "PONG"))
                continue
            await asyncio.sleep(max(start + frame.time - asyncio.get_running_loop().time(), 0))
            client = self.clients.get(frame.conn)
            if client is None:
                client = self.clients[frame.conn] = await self.stage.client(connect=False)
            await self.heard(client, expected.get(frame.conn, 0))
            self.learn()
            if not client.ended and frame.command not in ("PING", "PONG"):
                client.write(self.translated(frame))
        for conn, client in self.clients.items():
            await self.heard(client, expected.get(conn, 0))
        if not self.hangs_up:
            await asyncio.sleep(5)  # whatever else would come

    async def heard(self, client: RawClient, count: int) -> None:
        """Waits for as many answers as the client had; the comparison will show what is missing."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await client.until(lambda: len(client.said) >= count or client.ended)

    def learn(self) -> None:
        """Which of our ledgers stands for which of Java's, from receipts of the same message."""
        for conn, client in self.clients.items():
            java: dict[tuple[int, int], list[int]] = {}
            for f in self.rows:
                if f.conn == conn and f.command == "SEND_RECEIPT":
                    key = (f.fields["producer_id"], f.fields["sequence_id"])
                    java.setdefault(key, []).append(f.fields["message_id"]["ledgerId"])
            for said in client.said:
                if said.kind == Command.SEND_RECEIPT:
                    key = (said.message.producer_id, said.message.sequence_id)
                    if java.get(key):
                        self.ledgers.setdefault(java[key].pop(0), said.message.message_id.ledgerId)

    def translated(self, frame: Frame) -> bytes:
        command, body = split(frame.raw)
        base = api.BaseCommand.FromString(command)
        decode_command(command)
        changed = self.translate(base)
        return encode_frame(base, body or None) if changed else frame.raw

    def translate(self, message: Message) -> bool:
        changed = False
        for field, value in message.ListFields():
            if field.type != field.TYPE_MESSAGE:
                continue
            values = value if not isinstance(value, Message) else [value]
            for one in values:
                if isinstance(one, api.MessageIdData) and one.ledgerId in self.ledgers:
                    one.ledgerId = self.ledgers[one.ledgerId]
                    changed = True
                changed |= self.translate(one)
        return changed

    # -- the comparison ------------------------------------------------------------------------------------------------

    def java(self, conn: int) -> list[tuple[str, dict[str, Any]]]:
        return [
            (f.command, self.facts(decode_command(split(f.raw)[0])[1], f.command))
            for f in self.rows
            if f.conn == conn and f.sender == "B" and f.command not in ("PING", "PONG")
        ]

    def ours(self, conn: int) -> list[tuple[str, dict[str, Any]]]:
        names = {ours: java for java, ours in self.ledgers.items()}
        return [(s.kind.name, self.facts(s.message, s.kind.name, names)) for s in self.clients[conn].said]

    def facts(self, message: Message, command: str, names: dict[int, int] | None = None) -> dict[str, Any]:
        """Fields and values; positions in Java's ledgers."""
        out: dict[str, Any] = {}
        for field, value in message.ListFields():
            if (command, field.name) in OWN:
                if (command, field.name) != ("SEND_RECEIPT", "highest_sequence_id"):
                    out[field.name] = "…"
            elif isinstance(value, api.MessageIdData):
                ledger_id: int | str = value.ledgerId if names is None else names.get(value.ledgerId, value.ledgerId)
                if value.entryId < 0 <= value.ledgerId:
                    ledger_id = "a ledger without entries"
                out[field.name] = (ledger_id, value.entryId, value.partition, value.batch_index)
            elif field.type == field.TYPE_MESSAGE:
                out[field.name] = str(value)
            else:
                out[field.name] = list(value) if not isinstance(value, str | bytes | int | float) else value
        return out


def without_messages(said: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    return [one for one in said if one[0] != "MESSAGE"]


def by_consumer(said: list[tuple[str, dict[str, Any]]]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for command, facts in said:
        if command == "MESSAGE":
            facts = {k: v for k, v in facts.items() if (k, v) != ("redelivery_count", 0)}
            found.setdefault(facts["consumer_id"], []).append(facts)
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_captured_client_gets_the_commands_and_fields_that_java_sent(name: str) -> None:
    rows = [f for f in frames() if f.scenario == f"plain/{name}"]
    assert rows

    async def scenario(stage: Stage) -> None:
        stage.backend.topic_rules = {"dd": {"deduplication": True}}
        replay = Replay(stage, rows, hangs_up=name in ANY_ORDER)
        try:
            await replay.run()
        except BkctlError as error:
            pytest.fail(error.message)
        for conn in replay.clients:
            java, ours = replay.java(conn), replay.ours(conn)
            answers = [without_messages(java), without_messages(ours)]
            if name in ANY_ORDER:
                answers = [sorted(a, key=str) for a in answers]
            for k, (theirs, mine) in enumerate(itertools.zip_longest(*answers)):
                assert theirs == mine, f"{name} connection {conn}, answer {k}"
            assert by_consumer(java) == by_consumer(ours), f"{name} connection {conn}"

    on_stage(
        scenario,
        max_message_size=20480,
        namespaces=("golden/ns1", "golden/dedup", "public/default"),
        rules=TopicRules(),
    )

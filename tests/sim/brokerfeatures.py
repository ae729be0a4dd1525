"""Clients of a simulated topic that do one thing beside the usual: what a scenario `broker-<feature>` is about.

batches    entries of several messages, which are acknowledged in part, one by one or up to one of them
chunks     messages in several entries, which only who has all of them acknowledges
seeks      consumers go to another place or time, while they and others hold messages
delays     messages with a time
keys       Key_Shared consumers that come and go, with a word or without; some have ranges of their own
repeats    with deduplication; producers send again what was confirmed long ago, over snapshots at every turn
tails      patient consumers at the tail of a topic whose entries hardly stay in memory, while bookies stop and links
           are slow, and nothing happens to brokers: a dispatcher that stops has nobody who wakes it
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from bkctl.codec.managed_ledger import bits_of, words_of
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import KEY_SHARED_STICKY, Command, SubscriptionType
from bkctl.codec.pulsar_entry import decode_metadata, encode_batch, encode_entry
from bkctl.codec.pulsar_hash import SLOTS
from bkctl.model.topic import EARLIEST, LATEST
from tests.broker.raw import Said, entry_of
from tests.sim.brokerclients import Consumer, Gone, Link, Producer
from tests.sim.brokerlog import ORDERED, name_of

FEATURES: Final = ("batches", "chunks", "seeks", "delays", "keys", "repeats", "tails")
STEPS: Final = {"chunks": 8, "repeats": 10}
"""How many numbers one message may have."""
DELAY_MS_MAX: Final = 6000
TOGETHER_MS: Final = 250
RANGES: Final = 3
TIMED: Final = "t0"
"""A subscription of a topic whose messages are in the order of their times: nothing is in it twice."""
RANGED: Final = "r0"
"""A Key_Shared subscription whose consumers choose ranges."""
REPEATED_MAX: Final = 8
SLOWNESS: Final = ("stop bookie", "slow link", "slow disk", "spikes", "cut connection", "one way", "cut in work")
MANY: Final = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


def changes_of(feature: str, seed: int) -> dict[str, Any]:
    """What the shape of a seed has otherwise for a feature."""
    random = Random(f"{feature} {seed}")

    def groups(*kinds: SubscriptionType, most: int = 3) -> tuple[tuple[str, SubscriptionType, int], ...]:
        return tuple((f"s{n}", kind, random.randint(1, most)) for n, kind in enumerate(kinds))

    messages = random.choice((12, 24, 40))
    if feature == "seeks":
        ((name, kind, count),) = groups(random.choice(list(SubscriptionType)))
        once = random.random() < 0.7
        return {
            "producers": 1,
            "messages": messages,
            "once": once,
            "retained": random.random() < 0.7,
            "groups": ((TIMED if once else name, kind, count),),
        }
    if feature == "delays":
        return {"messages": messages, "groups": groups(random.choice(MANY), *random.sample(list(SubscriptionType), 1))}
    if feature == "keys":
        ranged = ((RANGED, MANY[1], RANGES),)
        several = ranged if random.random() < 0.3 else groups(MANY[1], most=4)
        return {"messages": 60, "keys": random.choice((3, 8, 20)), "groups": several}
    if feature == "repeats":
        return {"messages": messages, "once": True, "snapshot_entries": random.choice((1, 3, 7, 1000)),
                "producers": random.choice((1, 2, 3))}  # fmt: skip
    if feature == "tails":
        return {
            "messages": random.choice((60, 150)),
            "producers": random.choice((1, 2)),
            "entries_max": random.choice((7, 40, 1000)),
            "tail_bytes": random.choice((0, 500, 3_000, 20_000)),
            "groups": groups(*random.sample(list(SubscriptionType), 3)),
            "kinds": tuple(kind for kind in SLOWNESS if random.random() < 0.6),
        }
    return {"messages": messages}


# -- batches -----------------------------------------------------------------------------------------------------------


class BatchProducer(Producer):
    """Sends batches of 1 to 9 messages, and single ones; now and then one with more bits than a word has."""

    def _made(self, number: int, payload: bytes, key: str) -> bytes:
        random = self.random
        if random.random() < 0.2:
            return super()._made(number, payload, key)
        count = 70 if random.random() < 0.03 else random.randint(1, 9)
        each = max(1, len(payload) // count)
        batch = encode_batch([(api.SingleMessageMetadata(), payload[:each]) for _ in range(count)])
        return entry_of(number, batch, producer=self.name, partition_key=key, num_messages_in_batch=count)


class BatchConsumer(Consumer):
    """Acknowledges messages of batches one by one, as they come to its mind."""

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._left: dict[tuple[int, int], int] = {}  # of entries that it holds: messages that are not acknowledged

    def _take(self, said: Said) -> int:
        count = _size(said)
        bits = bits_of(said.message.ack_set) or (1 << count) - 1
        self.group_log().got(name_of(said.entry)[0], bits, count)
        self._held.append(said)
        self._left[_place(said)] = bits
        return bits.bit_count()

    def _acknowledge(self, link: Link) -> None:
        random = self.random
        single = [s for s in self._held if _size(s) > 1 and random.random() < 0.5]
        if self.greedy or not single or random.random() < 0.4:
            super()._acknowledge(link)
            return
        if self.kind in ORDERED and random.random() < 0.4:
            self._parts(link, single[:1], kind=1)
        else:
            self._parts(link, single, kind=0)

    def _parts(self, link: Link, said: list[Said], kind: int) -> None:
        """Of these entries some messages; of one alone, and cumulatively, the first ones and everything before it."""
        places = []
        for one in said:
            count, left = _size(one), self._left[_place(one)]
            if kind:
                left &= ~((1 << self.random.randrange(1, count + 1)) - 1)
            else:
                for bit in range(count):
                    if self.random.random() < 0.4:
                        left &= ~(1 << bit)
            self._left[_place(one)] = left
            ids = one.message.message_id
            words = words_of(left)
            places.append(api.MessageIdData(ledgerId=ids.ledgerId, entryId=ids.entryId, ack_set=words))
        if kind:
            self._held = self._held[self._held.index(said[0]) :]
        self._held = [one for one in self._held if self._left[_place(one)]]
        fields: dict[str, Any] = {"consumer_id": self.sessions, "ack_type": kind, "message_id": places}
        if self.random.random() < 0.6:
            link.requests += 1
            self.unanswered += 1
            fields["request_id"] = link.requests
        link.send(Command.ACK, **fields)


def _size(said: Said) -> int:
    return max(1, int(decode_metadata(said.entry).num_messages_in_batch))


def _place(said: Said) -> tuple[int, int]:
    return said.message.message_id.ledgerId, said.message.message_id.entryId


# -- chunks ------------------------------------------------------------------------------------------------------------


class ChunkProducer(Producer):
    """Sends messages of one to four entries; the chunks of a message have consecutive numbers and one sequence id."""

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        plan: list[tuple[int, int]] = []
        random = Random(self.name)
        while len(plan) < self.messages:
            count = min(random.choice((1, 2, 3, 4)), self.messages - len(plan))
            plan += [(n, count) for n in range(count)]
        self._plan = plan

    def _sequence(self, number: int) -> int:
        return number - self._plan[number][0]

    def _made(self, number: int, payload: bytes, key: str) -> bytes:
        chunk_id, count = self._plan[number]
        if count == 1:
            return super()._made(number, payload, key)
        sequence_id = self._sequence(number)
        return entry_of(
            sequence_id,
            payload,
            producer=self.name,
            partition_key=f"k{sequence_id % self.keys}",
            uuid=f"{self.name}-{sequence_id}",
            chunk_id=chunk_id,
            num_chunks_from_msg=count,
            total_chunk_msg_size=count * len(payload),
        )

    def _send(self, link: Link, number: int, entry: bytes) -> None:
        is_chunk = self._plan[number][1] > 1
        sequence_id = self._sequence(number)
        link.send(Command.SEND, entry, producer_id=self.sessions, sequence_id=sequence_id, is_chunk=is_chunk)


class ChunkConsumer(Consumer):
    """Puts messages together as official clients do, and acknowledges whole ones alone."""

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._parts: dict[str, list[Said]] = {}  # what was got of a message, in order
        self._aside: dict[str, list[Said]] = {}  # what came twice, and goes with it

    async def _session(self, link: Link) -> None:
        self._parts.clear()
        self._aside.clear()
        await super()._session(link)

    def _take(self, said: Said) -> int:
        metadata = decode_metadata(said.entry)
        if not metadata.HasField("num_chunks_from_msg"):
            return super()._take(said)
        uuid, chunk_id = metadata.uuid, metadata.chunk_id
        parts = self._parts.get(uuid, [])
        if name_of(said.entry)[0] in self.group_log().received:
            self._held.append(said)  # a copy of what somebody had as a whole
            return 1
        if chunk_id == 0:
            self._aside.setdefault(uuid, []).extend(parts)
            parts = self._parts[uuid] = [said]
        elif chunk_id == len(parts):
            parts.append(said)
        else:
            self._aside.setdefault(uuid, []).append(said)
        if len(parts) == metadata.num_chunks_from_msg:
            for one in parts:
                self.group_log().got(name_of(one.entry)[0])
            self._held += [*self._aside.pop(uuid, []), *self._parts.pop(uuid, [])]
        return 1

    def _acknowledge(self, link: Link) -> None:
        if not self.greedy and self.random.random() < 0.03:
            link.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=self.sessions)
            self._held, self._parts, self._aside = [], {}, {}
            return
        taken = [s for s in self._held if self.greedy or self.random.random() < 0.6]
        self._held = [s for s in self._held if s not in taken]
        if taken:
            self._say(link, taken)


# -- seeks -------------------------------------------------------------------------------------------------------------


class TimedProducer(Producer):
    """Says when a message was sent."""

    def _made(self, number: int, payload: bytes, key: str) -> bytes:
        metadata = api.MessageMetadata(
            producer_name=self.name,
            sequence_id=number,
            publish_time=self._world.clock.now_ms(),
            partition_key=key,
        )
        return encode_entry(metadata, payload)


class SeekingConsumer(Consumer):
    """Goes back and forth, by place or (where messages are in the order of their times) by time."""

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._known: dict[tuple[int, int], int] = {}  # places, and times

    def _take(self, said: Said) -> int:
        self._known[_place(said)] = decode_metadata(said.entry).publish_time
        return super()._take(said)

    async def _leaves(self, link: Link) -> bool:
        random = self.random
        if random.random() > 0.04 or not self._known:
            return await super()._leaves(link)
        place = random.choice(sorted(self._known))
        drawn = random.random()
        fields: dict[str, Any] = {}
        if drawn < 0.35 and self.group == TIMED:
            fields["message_publish_time"] = self._known[place] + random.choice((-1, 0, 1))
        elif drawn < 0.45:
            fields["message_id"] = api.MessageIdData(ledgerId=LATEST.ledger_id, entryId=LATEST.entry_id)
        elif drawn < 0.55:
            fields["message_id"] = api.MessageIdData(ledgerId=EARLIEST.ledger_id, entryId=EARLIEST.entry_id)
        else:
            fields["message_id"] = api.MessageIdData(ledgerId=place[0], entryId=place[1])
        await link.answer(Command.SEEK, Command.SUCCESS, consumer_id=self.sessions, **fields)
        raise Gone("sought")


# -- delays, keys, repeats ---------------------------------------------------------------------------------------------


class DelayingProducer(Producer):
    """Half of what it sends has a time, often that of others."""

    def _made(self, number: int, payload: bytes, key: str) -> bytes:
        if self.random.random() < 0.5:
            return super()._made(number, payload, key)
        at_ms = self._world.clock.now_ms() + self.random.randrange(DELAY_MS_MAX)
        if self.random.random() < 0.5:
            at_ms += -at_ms % TOGETHER_MS
        return entry_of(number, payload, producer=self.name, partition_key=key, deliver_at_time=at_ms)


class RestlessConsumer(Consumer):
    """Comes and goes; the number of its name gives it a range, in runs where ranges are chosen."""

    def _options(self) -> dict[str, Any]:
        if self.group != RANGED:
            return {}
        number = int(self.name[-1])
        meta = api.KeySharedMeta(keySharedMode=KEY_SHARED_STICKY)
        meta.hashRanges.add(start=number * SLOTS // RANGES, end=(number + 1) * SLOTS // RANGES - 1)
        return {"keySharedMeta": meta}

    async def _leaves(self, link: Link) -> bool:
        drawn = self.random.random()
        if drawn < 0.04:
            await link.answer(Command.CLOSE_CONSUMER, Command.SUCCESS, consumer_id=self.sessions)
        return drawn < 0.08


class PatientConsumer(Consumer):
    """Acknowledges whatever comes, and never comes anew by itself."""

    greedy = property(lambda _: True, lambda _self, _value: None)  # type: ignore[assignment]


class RepeatingProducer(Producer):
    """Sends batches, whose numbers have gaps, and begins sessions with some that are confirmed."""

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._log: list[tuple[int, bytes]] = []

    def _sequence(self, number: int) -> int:
        return number * STEPS["repeats"]

    def _made(self, number: int, payload: bytes, key: str) -> bytes:
        sequence_id, count = self._sequence(number), self.random.randint(1, STEPS["repeats"])
        batch = encode_batch([(api.SingleMessageMetadata(), payload[:10]) for _ in range(count)])
        entry = entry_of(
            sequence_id,
            batch,
            producer=self.name,
            partition_key=key,
            num_messages_in_batch=count,
            highest_sequence_id=sequence_id + count - 1,
        )
        self._log.append((number, entry))
        return entry

    def _again(self) -> list[tuple[int, bytes]]:
        waiting = {number for number, _ in self.pending}
        confirmed = [sent for sent in self._log if sent[0] not in waiting]
        return confirmed[-self.random.randint(1, REPEATED_MAX) :] if self.random.random() < 0.7 else []

    def _send(self, link: Link, number: int, entry: bytes) -> None:
        metadata = decode_metadata(entry)
        link.send(
            Command.SEND,
            entry,
            producer_id=self.sessions,
            sequence_id=metadata.sequence_id,
            highest_sequence_id=metadata.highest_sequence_id,
            num_messages=metadata.num_messages_in_batch,
        )


CLIENTS: Final[dict[str, tuple[type[Producer], type[Consumer]]]] = {
    "batches": (BatchProducer, BatchConsumer),
    "chunks": (ChunkProducer, ChunkConsumer),
    "seeks": (TimedProducer, SeekingConsumer),
    "delays": (DelayingProducer, Consumer),
    "keys": (Producer, RestlessConsumer),
    "repeats": (RepeatingProducer, BatchConsumer),
    "tails": (Producer, PatientConsumer),
}

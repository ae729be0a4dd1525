"""Producers and consumers of a simulated topic, which do as official clients do: look up, reconnect, resend."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final, cast

from bkctl.codec.pulsar import LOOKUP_CONNECT, LOOKUP_REDIRECT, Command, SubscriptionType
from bkctl.world import World
from tests.broker.raw import RawClient, Said, entry_of
from tests.sim.brokerlog import ORDERED, Group, name_of

PORT: Final = 6650
TOPIC: Final = "persistent://public/default/t"
ANSWER_S: Final = 8.0
"""How long a client waits for an answer; then it connects anew."""
BACKOFF_S: Final = 0.6
HOPS_MAX: Final = 4
WINDOW: Final = 12
"""Messages of a producer that wait for their receipts at most."""
PERMITS: Final = (1, 3, 10, 100)


class Gone(Exception):
    """The connection ended, or does not answer, or the broker wants the client to come again."""


class Link(RawClient):
    """A connection whose waits end when it does."""

    heard_s = 0.0
    asked_s = 0.0

    def data_received(self, data: bytes) -> None:
        self.heard_s = asyncio.get_running_loop().time()
        super().data_received(data)

    def keep_alive(self) -> None:
        """Asks a broker that is silent whether it is there. Raises Gone when it does not answer."""
        now = asyncio.get_running_loop().time()
        if now - self.heard_s > 2 * ANSWER_S:
            raise Gone("nobody is there")
        if now - self.heard_s > ANSWER_S / 2 and now - self.asked_s > ANSWER_S / 2:
            self.asked_s = now
            self.send(Command.PING)

    async def wait(self, seconds: float) -> None:
        """Until something is said, or the time is over.

        Raises:
            Gone: the connection has ended, or nobody answers.
        """
        self.keep_alive()
        if not self.said and not self.ended:
            self._news.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                return
        if self.ended and not self.said:
            raise Gone("the connection ended")

    async def answer(self, kind: Command, *answers: Command, **fields: Any) -> Any:
        """The answer to a request. Raises Gone where there is none, or it is an error."""
        self.requests += 1
        number = self.requests
        self.send(kind, request_id=number, **fields)
        deadline = asyncio.get_running_loop().time() + ANSWER_S
        while True:
            for said in self.said:
                if said.kind in (*answers, Command.ERROR) and said.message.request_id == number:
                    self.said.remove(said)
                    if said.kind == Command.ERROR:
                        raise Gone(f"{kind.name}: {said.message.message}")
                    return said.message
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or self.ended:
                raise Gone(f"no answer to {kind.name}")
            self._news.clear()
            try:
                async with asyncio.timeout(left):
                    await self._news.wait()
            except TimeoutError:
                pass


class Client:
    """What producers and consumers share: one connection at a time, looked up and begun again when it ends.

    Args:
        brokers: hosts to ask.
        home: the broker to go to without asking, or "" to look it up.
    """

    def __init__(self, name: str, world: World, random: Random, brokers: list[str], home: Callable[[], str]) -> None:
        self.name = name
        self.random = random
        self.brokers = brokers
        self.home = home
        self.over = False
        self.sessions = 0
        self.link: Link | None = None
        self._world = world

    @property
    def done(self) -> bool:
        """Nothing is left to do."""
        return False

    async def run(self) -> None:
        """One session after another, until it is over or done."""
        while not self.over and not self.done:
            try:
                await self._session(await self._find())
            except (Gone, OSError, TimeoutError):
                pass
            if self.link is not None:
                self.link.cut()
                self.link = None
            await asyncio.sleep(BACKOFF_S * self.random.random())

    async def _session(self, link: Link) -> None:
        raise NotImplementedError

    async def _open(self, host: str) -> Link:
        if self.link is not None:
            self.link.cut()
        async with asyncio.timeout(ANSWER_S):
            _, protocol = await self._world.network.connect(host, PORT, Link)
        link = self.link = cast("Link", protocol)
        link.heard_s = asyncio.get_running_loop().time()
        link.send(Command.CONNECT, client_version="sim", protocol_version=20)
        deadline = asyncio.get_running_loop().time() + ANSWER_S
        while not any(s.kind == Command.CONNECTED for s in link.said):
            await link.wait(0.5)
            if asyncio.get_running_loop().time() > deadline or link.ended:
                raise Gone("no CONNECTED")
            if link.said and link.said[0].kind != Command.CONNECTED:
                raise Gone("refused")
        link.said.clear()
        return link

    async def _find(self) -> Link:
        """A connection to the broker that serves the topic."""
        host = self.home() or self.random.choice(self.brokers)
        link = await self._open(host)
        authoritative = False
        for _ in range(HOPS_MAX):
            if self.home():
                return link
            found = await link.answer(Command.LOOKUP, Command.LOOKUP_RESPONSE, topic=TOPIC, authoritative=authoritative)
            if found.response not in (LOOKUP_CONNECT, LOOKUP_REDIRECT):
                raise Gone(f"lookup: {found.message}")
            there = found.brokerServiceUrl.partition("://")[2].partition(":")[0]
            authoritative = found.authoritative
            if there != host:
                host, link = there, await self._open(there)
            if found.response == LOOKUP_CONNECT:
                return link
        raise Gone("sent from one to another")


class Producer(Client):
    """Sends numbered messages with keys, and sends again what has no receipt, in order."""

    def __init__(self, *arguments: Any, messages: int, keys: int, pause_s: float) -> None:
        super().__init__(*arguments)
        self.messages = messages
        self.keys = keys
        self.pause_s = pause_s
        self.next = 0
        self.pending: deque[tuple[int, bytes]] = deque()
        self.confirmed = 0

    @property
    def done(self) -> bool:
        """Everything was sent and confirmed."""
        return self.next >= self.messages and not self.pending

    def _entry(self, number: int) -> bytes:
        size = self.random.choice((1, 20, 200, 2000))
        key = f"k{self.random.randrange(self.keys)}"
        text = b"%s %d " % (self.name.encode(), number)
        return self._made(number, text * (1 + size // len(text)), key)

    def _made(self, number: int, payload: bytes, key: str) -> bytes:
        return entry_of(number, payload, producer=self.name, partition_key=key)

    async def _session(self, link: Link) -> None:
        self.sessions += 1
        await link.answer(
            Command.PRODUCER,
            Command.PRODUCER_SUCCESS,
            topic=TOPIC,
            producer_id=self.sessions,
            producer_name=self.name,
            user_provided_producer_name=True,
            epoch=self.sessions,
        )
        for number, entry in (*self._again(), *self.pending):
            self._send(link, number, entry)
        while not self.over:
            if self.next < self.messages and len(self.pending) < WINDOW:
                for _ in range(self.random.choice((1, 1, 1, 4))):
                    if self.next < self.messages:
                        entry = self._entry(self.next)
                        self.pending.append((self.next, entry))
                        self._send(link, self.next, entry)
                        self.next += 1
            await link.wait(self.random.expovariate(1 / self.pause_s) if self.next < self.messages else ANSWER_S / 2)
            said, link.said = link.said, []
            for one in said:
                self._heard(one)
            if self.done:
                return

    def _send(self, link: Link, number: int, entry: bytes) -> None:
        link.send(Command.SEND, entry, producer_id=self.sessions, sequence_id=self._sequence(number))

    def _again(self) -> list[tuple[int, bytes]]:
        """What is sent at the beginning of a session though it is confirmed."""
        return []

    def _sequence(self, number: int) -> int:
        """The number that a message has for the broker."""
        return number

    def _heard(self, said: Said) -> None:
        if said.kind == Command.SEND_RECEIPT:
            first = self._sequence(self.pending[0][0]) if self.pending else -1
            if self.pending and first == said.message.sequence_id:
                self.pending.popleft()
                self.confirmed += 1
            elif self.pending and first < said.message.sequence_id:
                raise Gone("a receipt that comes too early")
        elif said.kind in (Command.CLOSE_PRODUCER, Command.SEND_ERROR):
            raise Gone(f"{said.kind.name} {said.message}")


class Consumer(Client):
    """Takes messages and acknowledges most of them, some late, some with a receipt, some never.

    Attributes:
        greedy: acknowledges everything at once, with a receipt.
    """

    def __init__(self, *arguments: Any, group: str, kind: SubscriptionType, group_log: Callable[[], Group]) -> None:
        super().__init__(*arguments)
        self.group = group
        self.kind = kind
        self.group_log = group_log
        self.greedy = False
        self.unanswered = 0
        self._held: list[Said] = []

    async def _session(self, link: Link) -> None:
        self.sessions += 1
        self._held = []
        self.unanswered = 0
        await link.answer(
            Command.SUBSCRIBE,
            Command.SUCCESS,
            topic=TOPIC,
            subscription=self.group,
            subType=self.kind,
            consumer_id=self.sessions,
            consumer_name=self.name,
            initialPosition=1,
            **self._options(),
        )
        permits = self.random.choice(PERMITS)
        link.flow(permits, self.sessions)
        used = 0
        greedy = self.greedy
        while not self.over and self.greedy == greedy:
            await link.wait(0.05 + self.random.random() * 0.3)
            said, link.said = link.said, []
            for one in said:
                if one.kind == Command.MESSAGE:
                    used += self._take(one)
                elif one.kind == Command.ACK_RESPONSE:
                    self.unanswered -= 1
                    if one.message.HasField("error"):
                        raise Gone(one.message.message)
                elif one.kind == Command.CLOSE_CONSUMER:
                    raise Gone("closed")
            self._acknowledge(link)
            if used * 2 >= permits:
                link.flow(used, self.sessions)
                used = 0
            if not self.greedy and await self._leaves(link):
                return

    def _options(self) -> dict[str, Any]:
        """More fields of SUBSCRIBE."""
        return {}

    def _take(self, said: Said) -> int:
        """A message has come; the permits it took."""
        self.group_log().got(name_of(said.entry)[0])
        self._held.append(said)
        return 1

    async def _leaves(self, link: Link) -> bool:
        """It may leave, without a word about what it holds."""
        return self.random.random() < 0.01

    def _acknowledge(self, link: Link) -> None:
        if not self._held:
            return
        random, held = self.random, self._held
        if self.greedy or random.random() < 0.7:
            if not self.greedy and self.kind in ORDERED and random.random() < 0.5:
                last = held[random.randrange(len(held))]
                self._held = held[held.index(last) + 1 :]
                self._say(link, [last], kind=1)
                return
            taken = held if self.greedy else [s for s in held if random.random() < 0.7]
            self._held = [s for s in held if s not in taken]
            if taken:
                self._say(link, taken)
        elif random.random() < 0.1:
            if self.kind not in ORDERED and random.random() < 0.5:
                link.send(
                    Command.REDELIVER_UNACKNOWLEDGED_MESSAGES,
                    consumer_id=self.sessions,
                    message_ids=[s.message.message_id for s in held],
                )
            else:
                link.send(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=self.sessions)
            self._held = []

    def _say(self, link: Link, said: list[Said], kind: int = 0) -> None:
        if self.greedy or self.random.random() < 0.5:
            link.requests += 1
            self.unanswered += 1
            link.ack(*said, consumer_id=self.sessions, kind=kind, request_id=link.requests)
        else:
            link.ack(*said, consumer_id=self.sessions, kind=kind)

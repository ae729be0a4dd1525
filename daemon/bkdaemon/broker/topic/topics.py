"""The topics that this broker serves: opened by the first request, closed when another broker acquires them.

Requests for a topic that is being opened wait for the same opening. An opening waits for the end of the close before
it: else it would fence the ledger that is being closed, and read cursors that are not stored yet.
Source: BrokerService.java (getTopic, unloadServiceUnit).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from bkctl.codec.pulsar import ErrorCode
from bkctl.errors import BkctlError, Conflict, NotFound
from bkdaemon.broker.dispatch.throttle import BrokerLimits
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.topic.nonpersistent import NonPersistentTopic
from bkdaemon.broker.topic.topic import Topic

if TYPE_CHECKING:
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.topic.backend import Backend

logger = logging.getLogger(__name__)

AnyTopic: TypeAlias = Topic | NonPersistentTopic

OPENING_MAX: Final = 10_000
"""Topics that are opened at the same time; further requests have to be repeated."""
CLOSING_WAIT_S: Final = 60.0
"""Maximum wait for a close, as Java's namespaceBundleUnloadingTimeoutMs. Fencing makes it safe to continue then."""
LOAD_TIMEOUT_S: Final = 60.0


class Topics:
    """Topics by name.

    Attributes:
        open: topics that are served now.
        limits: the rate limits of all topics together.
        load_timeout_s: how long a request waits for an opening, from its start; the opening continues after that.
    """

    def __init__(
        self,
        backend: Backend,
        now_ms: Callable[[], int],
        *,
        loads_max: int = OPENING_MAX,
        load_timeout_s: float = LOAD_TIMEOUT_S,
    ) -> None:
        self.open: dict[TopicName, AnyTopic] = {}
        self.closed = False
        self.limits = BrokerLimits(lambda: now_ms() / 1000)
        self._backend = backend
        self._now_ms = now_ms
        self.load_timeout_s = load_timeout_s
        self._loads = asyncio.Semaphore(loads_max)
        self._began_s: dict[asyncio.Task[AnyTopic], float] = {}
        self._opening: dict[tuple[TopicName, bool], asyncio.Task[AnyTopic]] = {}
        self._deleting: set[TopicName] = set()
        self._ends: dict[AnyTopic, asyncio.Event] = {}

    def set_loads_max(self, most: int) -> None:
        """Sets how many topics are opened at the same time, in addition to those that are being opened now."""
        self._loads = asyncio.Semaphore(most)

    async def get(self, name: TopicName, *, create: bool) -> AnyTopic:
        """Returns a topic; opens it if it is closed, creates it if create is set and the rules allow it.

        Raises:
            NotFound: the topic does not exist and is not created.
            Refusal, Unavailable, Conflict: another broker serves it, or it cannot be opened now.
        """
        found = self.open.get(name)
        if found is not None and not found.closed:
            return found
        if self.closed:
            raise Refusal(ErrorCode.SERVICE_NOT_READY, "The broker is shutting down")
        task = self._opening.get((name, create))
        if task is None:
            if len(self._opening) >= OPENING_MAX:
                raise Refusal(ErrorCode.SERVICE_NOT_READY, f"Too many topics are being opened: {OPENING_MAX}")
            task = asyncio.ensure_future(self._open(name, create, self._opening.get((name, not create))))
            self._opening[name, create] = task
            task.add_done_callback(lambda _: self._opening.pop((name, create), None))
            task.add_done_callback(_seen)
            self._began_s[task] = asyncio.get_running_loop().time()
            task.add_done_callback(self._began_s.pop)
        try:
            async with asyncio.timeout_at(self._began_s.get(task, 0) + self.load_timeout_s):
                return await asyncio.shield(task)
        except TimeoutError:
            raise Refusal(ErrorCode.UNKNOWN, "Failed to load topic within timeout") from None

    async def _open(self, name: TopicName, create: bool, before: asyncio.Task[AnyTopic] | None) -> AnyTopic:
        if before is not None:
            await asyncio.wait((before,))
            found = self.open.get(name)
            if found is not None and not found.closed:
                return found
        async with self._loads:
            return await self._load(name, create)

    async def _load(self, name: TopicName, create: bool) -> AnyTopic:
        if name in self._deleting:
            raise Refusal(ErrorCode.SERVICE_NOT_READY, f"Topic {name} is being deleted")
        await self._closed(name)
        backend = self._backend
        await backend.check_owned(name)
        rules = await backend.rules(name)
        if not rules.served:  # the same message for every kind, as in Java
            raise Refusal(ErrorCode.NOT_ALLOWED, "Broker is unable to load persistent topic")
        if name.persistent:
            ledger = await backend.open_ledger(
                name, create=create and await self._may_create(name, rules.auto_create_topic)
            )
            try:
                topic: AnyTopic = await Topic.open(name, ledger, rules, self._now_ms)
            except BaseException:
                await ledger.close()
                raise
        else:
            topic = NonPersistentTopic(name, rules, self._now_ms)
        try:
            await backend.check_owned(name)  # the bundle may have been released meanwhile
            topic.check_open()
            if self.closed:
                raise Refusal(ErrorCode.SERVICE_NOT_READY, "The broker is shutting down")
        except BkctlError:
            await topic.close()
            raise
        topic.apply_rates(self.limits)
        self.open[name] = topic
        topic.on_closed = self._gone
        return topic

    async def _may_create(self, name: TopicName, allowed: bool) -> bool:
        """Returns whether a missing topic may be created: a partition that its topic has, or as the rules say."""
        if name.partition >= 0:
            try:
                partitions = await self._backend.partitions(name.partitioned, create=False)
            except NotFound:
                partitions = 0
            if partitions:
                return name.partition < partitions
        return allowed

    def _gone(self, topic: AnyTopic) -> None:
        if self.open.get(topic.name) is topic:
            del self.open[topic.name]
        end = self._ends.pop(topic, None)
        if end is not None:
            end.set()

    async def _closed(self, name: TopicName) -> None:
        """Waits until a topic is closed, CLOSING_WAIT_S at most."""
        topic = self.open.get(name)
        if topic is None or not topic.closed:
            return
        end = self._ends.setdefault(topic, asyncio.Event())
        try:
            async with asyncio.timeout(CLOSING_WAIT_S):
                await end.wait()
        except TimeoutError:
            logger.warning("%s: not closed after %g s; continuing without waiting", name, CLOSING_WAIT_S)

    async def unload(self, name: TopicName) -> bool:
        """Closes a topic, so that its clients repeat their lookup; returns false if it was not open."""
        topic = self.open.get(name)
        if topic is None:
            return False
        await topic.close()
        await self._closed(name)  # another task may close it
        return True

    async def unload_all(self, of: Callable[[TopicName], bool]) -> None:
        """Closes the topics of a released bundle; topics that are being opened notice it themselves."""
        opening = [task for (name, _), task in self._opening.items() if of(name)]
        closing = [asyncio.ensure_future(self.unload(name)) for name in self.open if of(name)]
        if not opening and not closing:
            return
        done, late = await asyncio.wait((*opening, *closing), timeout=CLOSING_WAIT_S)
        if late:
            logger.warning("%d topics are not closed after %g s; continuing without waiting", len(late), CLOSING_WAIT_S)
        for task in done.intersection(closing):
            task.result()

    @asynccontextmanager
    async def kept_closed(self, name: TopicName) -> AsyncIterator[None]:
        """Closes a topic, and refuses to open it while it is deleted, as its clients reconnect at once.

        Raises:
            Conflict: the topic is being deleted already.
        """
        if name in self._deleting:
            raise Conflict(f"Topic {name} is being deleted", topic=str(name))
        self._deleting.add(name)
        try:
            opening = [task for (one, _), task in self._opening.items() if one == name]
            if opening:
                await asyncio.wait(opening)
            await self.unload(name)
            yield
        finally:
            self._deleting.discard(name)

    async def close(self) -> None:
        """Closes every topic, and refuses to open topics from now on."""
        self.closed = True
        results = await asyncio.gather(*(t.close() for t in list(self.open.values())), return_exceptions=True)
        for result in results:
            if isinstance(result, BkctlError):
                logger.warning("failed to close a topic: %s", result.message)
            elif isinstance(result, BaseException):
                logger.error("failed to close a topic with an internal error", exc_info=result)


def _seen(task: asyncio.Task[AnyTopic]) -> None:
    """Retrieves the error of an opening, which the waiting callers have already."""
    if not task.cancelled():
        task.exception()

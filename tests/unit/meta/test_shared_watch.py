"""One watch of the server, shared by several callers."""

from __future__ import annotations

import asyncio

from bkctl.meta.shared_watch import SharedWatch
from bkctl.meta.store import WatchEvent


def test_an_event_calls_every_callback_once_and_removes_the_watch() -> None:
    events: list[tuple[str, WatchEvent]] = []
    watch = SharedWatch()
    watches = {"/a": watch, "/b": SharedWatch()}
    watch.join(lambda event: events.append(("one", event)))
    watch.join(lambda event: events.append(("two", event)))
    watch.fire(watches, "/a", WatchEvent.CHANGED)
    assert events == [("one", WatchEvent.CHANGED), ("two", WatchEvent.CHANGED)]
    assert list(watches) == ["/b"]
    assert watch.over
    watch.fire(watches, "/a", WatchEvent.CHANGED)
    assert len(events) == 2


def test_a_later_watch_of_the_same_path_stays() -> None:
    old, new = SharedWatch(), SharedWatch()
    watches = {"/a": new}
    old.fire(watches, "/a", WatchEvent.CHANGED)
    assert watches == {"/a": new}
    assert not new.over


def test_a_cancelled_callback_is_not_called_and_may_be_cancelled_twice() -> None:
    events: list[WatchEvent] = []
    watch = SharedWatch()
    cancel = watch.join(events.append)
    watch.join(lambda event: events.append(event))
    cancel()
    cancel()
    watch.fire({}, "/a", WatchEvent.CHANGED)
    cancel()
    assert events == [WatchEvent.CHANGED]


def test_a_callback_that_joins_after_the_event_is_called_in_the_next_turn() -> None:
    async def scenario() -> None:
        events: list[WatchEvent] = []
        watch = SharedWatch()
        watch.fire({}, "/a", WatchEvent.DELETED)
        watch.join(events.append)
        watch.join(events.append)()
        assert events == []
        await asyncio.sleep(0)
        assert events == [WatchEvent.DELETED]

    asyncio.run(scenario())

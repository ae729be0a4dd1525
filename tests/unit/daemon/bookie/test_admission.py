"""Read-only reasons and back-pressure: what an add is answered, and when servers pause."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bkdaemon.bookie.admission import Admission
from bkdaemon.bookie.bookie import HIGH_PRIORITY

from bkctl.codec.entry import encode_lac
from bkctl.world import World
from tests.sim.loop import run
from tests.unit.daemon.bookie.world import (
    DIGEST,
    HERE,
    KEY,
    OK,
    READ_ONLY,
    TOO_MANY,
    config_in,
    entry,
    running,
    sim_disk,
    world_on,
)


async def test_a_full_write_cache_pauses_servers_and_then_rejects_adds() -> None:
    disk = sim_disk()
    config = replace(config_in(HERE), write_cache_mb=1)
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        bookie = calls.bookie
        heard: list[bool] = []
        bookie.admission.on_throttle = heard.append
        answers: list[int] = []
        adds = [(5, e, KEY, entry(5, e, bytes(50_000)), 0, None) for e in range(40)]
        for add in adds:  # no turn of the loop in between: nothing can be flushed
            answers += [status for status, _ in bookie.add_batch([add], lambda *_: None)]
        assert bookie.throttled
        assert heard == [True]
        assert set(answers) == {TOO_MANY}, "above the reserve for pending adds"
        while bookie.throttled:
            await bookie.flush()
        assert heard == [True, False]
        taken = len(adds) - len(answers)
        assert await calls.has(5, range(taken), payload=bytes(50_000))
        assert await calls.add(5, [taken]) == [OK]


async def test_adds_are_rejected_while_a_read_only_reason_remains(world: World) -> None:
    async with running(replace(config_in(HERE), force_read_only=True), world) as calls:
        assert calls.bookie.admission.reasons.keys() == {"configuration"}
        assert await calls.add(5, [0]) == [READ_ONLY]
        assert await calls.write_lac(5, encode_lac(5, 1, DIGEST)) == READ_ONLY
        admission = calls.bookie.admission
        admission.drop_reason("configuration")
        admission.add_reason("disk", "full")
        assert await calls.add(5, [0], flags=HIGH_PRIORITY) == [READ_ONLY]
        admission.takes_high_priority = True
        assert await calls.add(5, [0], flags=HIGH_PRIORITY) == [OK]
        assert await calls.add(5, [1]) == [READ_ONLY]
        admission.add_reason("journal", "broken")
        assert await calls.add(5, [2], flags=HIGH_PRIORITY) == [READ_ONLY]


class Heard:
    """An admission, and the answers that it announced."""

    def __init__(self, throttle_s: float) -> None:
        self.admission = Admission(throttle_s)
        self.modes: list[bool] = []
        self.pauses: list[bool] = []
        self.admission.on_read_only, self.admission.on_throttle = self.modes.append, self.pauses.append


def test_the_mode_changes_with_the_first_and_the_last_reason() -> None:
    heard = Heard(1.0)
    admission = heard.admission
    assert admission.status == READ_ONLY, "it is starting"
    admission.drop_reason("starting")
    admission.add_reason("disk", "full")
    admission.add_reason("disk", "full")
    admission.add_reason("manual", "ann: a test")
    admission.drop_reason("disk")
    admission.drop_reason("no such reason")
    assert (heard.modes, admission.status, admission.reasons) == ([False, True], READ_ONLY, {"manual": "ann: a test"})
    admission.drop_reason("manual")
    assert (heard.modes, admission.status) == ([False, True, False], None)


def test_adds_are_rejected_while_no_memory_is_left_and_when_a_pause_is_too_long() -> None:
    async def scenario(_: object) -> None:
        heard = Heard(10.0)
        admission = heard.admission
        admission.drop_reason("starting")
        admission.press(full=True, beyond=False)
        assert (heard.pauses, admission.status) == ([True], None)
        admission.press(full=True, beyond=True)
        assert admission.status == TOO_MANY
        admission.press(full=True, beyond=False)
        assert admission.status is None
        await asyncio.sleep(10.1)
        assert (heard.pauses, admission.throttled, admission.status) == ([True, False], False, TOO_MANY), (
            "the pause is too long"
        )
        admission.press(full=True, beyond=False)
        assert (heard.pauses, admission.status) == ([True, False], TOO_MANY), "no second pause while memory stays full"
        admission.press(full=False, beyond=False)
        assert admission.status is None
        admission.press(full=True, beyond=False)
        admission.press(full=False, beyond=False)
        await asyncio.sleep(20)
        assert (heard.pauses, admission.status) == ([True, False, True, False], None), "the timer was cancelled"

    run(scenario)

"""The switch with reason and end, beside a plain `disable` as Java makes it; on both stores."""

from __future__ import annotations

import pytest

from bkctl.errors import Refused
from bkctl.meta.recovery_switch import RecoverySwitch
from bkctl.meta.store import Cancel, MetadataStore, WatchCallback, WatchEvent
from bkctl.meta.underreplication import Underreplication
from tests.unit.meta.test_underreplication import Clock
from tests.zookeeper_fixture import Stores


def test_off_and_on_with_a_reason(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        switch, java = RecoverySwitch(store, root, Clock()), Underreplication(store, root, Clock())
        await java.ensure()
        assert (await switch.state())[:3] == (True, None, False)
        assert not await switch.turn_on("me", "")
        assert await switch.turn_off("me", "new disks")
        assert not await switch.turn_off("you", "me too")
        assert not await java.enabled()
        state = await switch.state()
        assert state.last is not None
        assert (state.enabled, state.in_force, state.last.reason, state.until_ms) == (False, True, "new disks", None)
        assert await switch.turn_on("me", "done")
        assert await java.enabled()
        assert [change.reason for change in (await switch.state()).log.changes] == ["done", "new disks"]

    stores.run(scenario)


def test_a_pause_ends_at_its_time_and_no_sooner(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        clock = Clock()
        switch, java = RecoverySwitch(store, root, clock), Underreplication(store, root, clock)
        await java.ensure()
        assert await switch.turn_off("me", "restarts", until_ms=5000)
        clock.time_ms = 4999
        assert not await switch.end_pause("auditor")
        fired: list[WatchEvent] = []
        await store.watch_data(f"{root}/underreplication/disable", fired.append)
        assert await switch.turn_off("me", "longer", until_ms=9000)
        clock.time_ms = 8999
        assert not await switch.end_pause("auditor")
        assert (await switch.state()).until_ms == 9000
        assert fired == []  # Java's watch on the node must still be there for its end
        clock.time_ms = 9000
        assert await switch.end_pause("auditor")
        assert not await switch.end_pause("another auditor")
        assert await java.enabled()
        assert (await switch.state()).log.changes[0].who == "auditor"

    stores.run(scenario)


def test_nobody_elses_off_is_ended(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        clock = Clock()
        switch, java = RecoverySwitch(store, root, clock), Underreplication(store, root, clock)
        await java.ensure()
        await java.disable()
        assert (await switch.state())[:3] == (False, None, False)
        with pytest.raises(Refused, match="by another client"):
            await switch.turn_off("me", "a pause", until_ms=2000)
        await java.enable()
        assert await switch.turn_off("me", "a pause", until_ms=2000)
        await java.enable()  # by hand, in the shell
        await java.disable()  # and off again, for good
        clock.time_ms = 3000
        state = await switch.state()
        assert (state.enabled, state.in_force, state.until_ms) == (False, False, None)
        assert not await switch.end_pause("auditor")
        assert not await java.enabled()
        assert await switch.turn_on("me", "yes, that one too")
        assert await java.enabled()

    stores.run(scenario)


def test_a_pause_becomes_for_good_but_not_the_other_way(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        clock = Clock()
        switch = RecoverySwitch(store, root, clock)
        await Underreplication(store, root, clock).ensure()
        await switch.turn_off("me", "a pause", until_ms=2000)
        assert await switch.turn_off("me", "for good")
        clock.time_ms = 3000
        assert not await switch.end_pause("auditor")
        with pytest.raises(Refused, match="by me: for good"):
            await switch.turn_off("you", "a pause", until_ms=9000)

    stores.run(scenario)


class Meddling:
    """The store; before the next transaction somebody else does something."""

    def __init__(self, store: MetadataStore, meddle: RecoverySwitch) -> None:
        self._store, self._meddle = store, meddle
        self.get, self.exists, self.create = store.get, store.exists, store.create

    async def multi(self, operations: object) -> None:
        await self._meddle.turn_on("you", "before time")
        await self._meddle.turn_off("you", "anew", until_ms=9000)
        await self._store.multi(operations)  # type: ignore[arg-type]

    async def watch_data(self, path: str, callback: WatchCallback) -> Cancel:
        return await self._store.watch_data(path, callback)


def test_a_new_pause_is_not_taken_for_the_old_one(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        clock = Clock()
        switch = RecoverySwitch(store, root, clock)
        await Underreplication(store, root, clock).ensure()
        await switch.turn_off("me", "short", until_ms=2000)
        clock.time_ms = 3000
        assert not await RecoverySwitch(Meddling(store, switch), root, clock).end_pause("auditor")  # type: ignore[arg-type]
        state = await switch.state()
        assert (state.enabled, state.until_ms) == (False, 9000)

    stores.run(scenario)

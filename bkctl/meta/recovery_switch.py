"""The switch of auto recovery, with who, why and until when: Java's `disable` node, and our own log beside it.

    by                    `disable`, which all processes read        `bkctl/switch`
    Java, older bkctl     created empty, version 0                   -
    disable, pause        created and set at once, version 1         a change: off, who, why, until
    enable, resume        deleted                                    a change: on, who, why

A pause disables until a time. Every auto recovery process of bkctl, and any command of bkctl that changes the switch,
ends an expired pause; Java never does. Both nodes change in one transaction, so a pause is ended only if it is still
the one that was read, and a `disable` of another client never. `disable` is not rewritten while it exists: Java's watch
on it would fire, be ignored, and then miss the deletion.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bkctl.codec.recovery_notes import SwitchChange, SwitchLog
from bkctl.errors import AlreadyExists, Conflict, NotFound, Refused
from bkctl.meta import paths
from bkctl.meta.store import (
    FIRST_VERSION,
    Cancel,
    Check,
    Create,
    Delete,
    MetadataStore,
    Operation,
    Set,
    Version,
    WatchCallback,
)
from bkctl.world import Clock

ROUNDS_MAX: Final = 20
"""Transactions that fail because of concurrent changes before an error is raised."""
OUR_VERSION: Final = Version(FIRST_VERSION + 1)
"""Of a `disable` that bkctl made."""


class SwitchState(NamedTuple):
    """Whether auto recovery is enabled, and bkctl's last change; in_force: that change caused the current state."""

    enabled: bool
    last: SwitchChange | None
    in_force: bool
    log: SwitchLog

    @property
    def until_ms(self) -> int | None:
        """When a pause ends; None without one."""
        return self.last.until_ms if self.last is not None and self.in_force and not self.enabled else None


class RecoverySwitch:
    """The switch below a root."""

    def __init__(self, store: MetadataStore, root: str, clock: Clock) -> None:
        self.store = store
        base = f"{root}/{paths.UNDERREPLICATION}"
        self._disable = f"{base}/disable"
        self._log = f"{base}/bkctl/switch"
        self._clock = clock

    async def state(self) -> SwitchState:
        """Reads whether auto recovery is enabled, and who disabled it, for how long and why."""
        log, _ = await self._read()
        stat = await self.store.exists(self._disable)
        return _state(log, None if stat is None else stat.version)

    async def turn_off(self, who: str, reason: str, until_ms: int | None = None) -> bool:
        """Disables auto recovery, permanently or until a time; a pause in force gets the new end. False: no change.

        Raises:
            Refused: a pause is requested while it is disabled permanently, which a pause must not end.
        """
        for _ in range(ROUNDS_MAX):
            log, version = await self._read()
            stat = await self.store.exists(self._disable)
            now = _state(log, None if stat is None else stat.version)
            if not now.enabled and now.until_ms is None:
                if until_ms is None:
                    return False
                raise Refused(
                    f"auto recovery is already disabled without a time limit{_by(now)}",
                    hint="bkctl autorecovery enable",
                )
            change = SwitchChange(False, self._clock.now_ms(), who, reason, until_ms)
            off: list[Operation] = [Create(self._disable), Set(self._disable, change.encode(), FIRST_VERSION)]
            if await self._change(log, version, change, off if now.enabled else [Check(self._disable, OUR_VERSION)]):
                return True
        raise _restless()

    async def turn_on(self, who: str, reason: str) -> bool:
        """Enables auto recovery. False: it was enabled."""
        for _ in range(ROUNDS_MAX):
            log, version = await self._read()
            stat = await self.store.exists(self._disable)
            if stat is None:
                return False
            change = SwitchChange(True, self._clock.now_ms(), who, reason)
            if await self._change(log, version, change, [Delete(self._disable, stat.version)]):
                return True
        raise _restless()

    async def end_pause(self, who: str) -> bool:
        """Enables auto recovery if a pause has expired. False: no pause, it has not expired, or another process ended
        it.
        """
        log, version = await self._read()
        stat = await self.store.exists(self._disable)
        state = _state(log, None if stat is None else stat.version)
        now_ms = self._clock.now_ms()
        if state.last is None or state.until_ms is None or state.until_ms > now_ms:
            return False
        change = SwitchChange(True, now_ms, who, f"the pause has expired: {state.last.reason}")
        return await self._change(log, version, change, [Delete(self._disable, OUR_VERSION)])

    async def watch(self, callback: WatchCallback) -> Cancel:
        """Calls back once, at bkctl's next change; changes by Java are not watched."""
        return await self.store.watch_data(self._log, callback)

    async def _read(self) -> tuple[SwitchLog, Version | None]:
        try:
            node = await self.store.get(self._log)
        except NotFound:
            return SwitchLog(), None
        return SwitchLog.decode(node.data, source=self._log), node.stat.version

    async def _change(
        self, log: SwitchLog, version: Version | None, change: SwitchChange, operations: list[Operation]
    ) -> bool:
        """Writes both in one transaction, if the log is still at this version; False if it is not, or the switch
        changed meanwhile.
        """
        if version is None:
            try:
                await self.store.create(self._log, SwitchLog().encode(), parents=True)
            except AlreadyExists:
                return False
            version = FIRST_VERSION
        try:
            await self.store.multi([Set(self._log, log.with_change(change).encode(), version), *operations])
        except (Conflict, NotFound):
            return False
        return True


def _state(log: SwitchLog, disable_version: Version | None) -> SwitchState:
    last = log.changes[0] if log.changes else None
    enabled = disable_version is None
    in_force = last is not None and last.enabled is enabled and (enabled or disable_version == OUR_VERSION)
    return SwitchState(enabled, last, in_force, log)


def _by(state: SwitchState) -> str:
    if state.last is None or not state.in_force:
        return ", by another client"
    return f", by {state.last.who}: {state.last.reason}"


def _restless() -> Conflict:
    return Conflict("other clients keep changing the switch of auto recovery")

"""The racks of bookies: from Pulsar's rack znode, or a topology script.

    znode /bookies (JSON)   {"group": {"host1:3181": {"rack": "/rack1", "hostname": "host1"}, …}, …}
    script                  called with the bookies' hosts as arguments, prints one rack a line, in their order

A bookie that neither knows is on DEFAULT_RACK. The znode is watched: it is read again only after a change. Groups
serve isolation. Source: BookiesRackConfiguration.java, BookieRackAffinityMapping.java (Pulsar);
ScriptBasedMapping.java, NetworkTopology.java.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from bkctl.errors import Corrupt, NotFound, Unavailable
from bkctl.meta.store import Cancel, MetadataStore, WatchEvent
from bkctl.model.ids import BookieId

DEFAULT_RACK: Final = "/default-rack"
PULSAR_RACKS_PATH: Final = "/bookies"
SCRIPT_TIMEOUT_S: Final = 10.0
SCRIPT_HOSTS_MAX: Final = 100
"""Hosts given to one call of the script, as Java does."""

_log = logging.getLogger(__name__)


def parse_pulsar_racks(data: bytes, *, source: str) -> dict[BookieId, str]:
    """The racks in Pulsar's znode; a rack without a leading slash gets one.

    Raises:
        Corrupt: it is not the JSON it should be.
    """
    try:
        groups = json.loads(data or b"{}")
        racks: dict[BookieId, str] = {}
        for group in groups.values():
            for bookie, info in group.items():
                rack = info.get("rack") or DEFAULT_RACK
                racks[BookieId(bookie)] = rack if rack.startswith("/") else f"/{rack}"
    except (ValueError, AttributeError) as e:
        raise Corrupt("not a map of racks", source=source, offset=0, expected="JSON", found=str(e)) from None
    return racks


def parse_pulsar_groups(data: bytes, *, source: str) -> dict[str, frozenset[BookieId]]:
    """The groups in Pulsar's znode, which ledgers can be bound to.

    Raises:
        Corrupt: it is not the JSON it should be.
    """
    parse_pulsar_racks(data, source=source)
    return {name: frozenset(map(BookieId, group)) for name, group in json.loads(data or b"{}").items()}


async def run_script(script: str, hosts: Iterable[str]) -> dict[str, str]:
    """Runs a topology script for hosts.

    Raises:
        Unavailable: it cannot be run, fails, takes too long, or prints another number of racks.
    """
    wanted = list(hosts)
    racks: dict[str, str] = {}
    for start in range(0, len(wanted), SCRIPT_HOSTS_MAX):
        part = wanted[start : start + SCRIPT_HOSTS_MAX]
        try:
            process = await asyncio.create_subprocess_exec(script, *part, stdout=asyncio.subprocess.PIPE)
        except OSError as e:
            raise Unavailable(f"topology script {script}: {e}") from None
        try:
            async with asyncio.timeout(SCRIPT_TIMEOUT_S):
                out, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            raise Unavailable(f"topology script {script} took more than {SCRIPT_TIMEOUT_S:g} s") from None
        lines = out.decode(errors="replace").split()
        if process.returncode or len(lines) != len(part):
            raise Unavailable(
                f"topology script {script}: exit {process.returncode}, {len(lines)} racks for {len(part)} hosts"
            )
        racks.update(zip(part, lines, strict=True))
    return racks


class Racks:
    """Racks by bookie id, loaded before an ensemble is chosen."""

    def __init__(self, store: MetadataStore, script: str | None, path: str = PULSAR_RACKS_PATH) -> None:
        self._store = store
        self._script = script
        self._path = path
        self._racks: Mapping[BookieId, str] = {}
        self._groups: Mapping[str, frozenset[BookieId]] = {}
        self._fresh = False
        self._reading = asyncio.Lock()

    def of(self, bookie: BookieId) -> str:
        """The rack of a bookie."""
        return self._racks.get(bookie, DEFAULT_RACK)

    def groups(self) -> Mapping[str, frozenset[BookieId]]:
        """The bookies of each group; none where racks come from a script."""
        return self._groups

    async def load(self, bookies: Iterable[BookieId], host_of: Callable[[BookieId], str]) -> None:
        """Reads the current racks; if that fails, the last known ones stay in use."""
        try:
            if self._script is not None:
                known = {b: host_of(b) for b in bookies}
                by_host = await run_script(self._script, sorted(set(known.values())))
                self._racks = {b: by_host[host] for b, host in known.items()}
            else:
                async with self._reading:
                    await self._read()
        except (Unavailable, Corrupt) as e:
            _log.warning("cannot read the racks; using the last known ones: %s", e)

    async def _read(self) -> None:
        """Reads the znode, unless nothing changed since it was read last."""
        if self._fresh:
            return
        self._fresh = True  # a change behind the watch says otherwise
        cancel = await self._watch()
        try:
            data = (await self._store.get(self._path)).data
            racks, groups = parse_pulsar_racks(data, source=self._path), parse_pulsar_groups(data, source=self._path)
        except NotFound:
            racks, groups = {}, {}
        except BaseException:
            self._fresh = False
            cancel()
            raise
        self._racks, self._groups = racks, groups

    async def _watch(self) -> Cancel:
        try:
            return await self._store.watch_data(self._path, self._changed)
        except BaseException:
            self._fresh = False
            raise

    def _changed(self, _: WatchEvent) -> None:
        self._fresh = False

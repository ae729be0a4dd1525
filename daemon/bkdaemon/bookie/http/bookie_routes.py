"""The routes of Java's HTTP port for the bookie itself: its state, its disks, its garbage collection.

Paths, methods, codes, texts and fields are Java's. Not supported (404): configuration, sanity,
last_log_mark, expand_storage, entry_location_compact, list_bookie_info. Source: HttpRouter.java and the services of
org.apache.bookkeeper.server.http.service (BookieState*, BookieInfo, BookieIsReady, TriggerGC, GCDetails,
Suspend/ResumeCompaction, ListDiskFiles).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bkdaemon.bookie.compaction import MAJOR, MINOR
from bkdaemon.http_server import Answer, Request, Route, json_text

if TYPE_CHECKING:
    from bkdaemon.bookie.served import ServedBookie

BASE: Final = "/api/v1/bookie"
ONLY_GET: Final = "Not found method. Should be GET method"
FILE_KINDS: Final = {"journal": "txn", "entrylog": "log", "index": "idx"}


class BookieRoutes:
    """The routes of one bookie."""

    def __init__(self, service: ServedBookie) -> None:
        self._service = service

    def routes(self) -> dict[str, Route]:
        """Returns the routes by path."""
        return {
            f"{BASE}/state": self._state,
            f"{BASE}/state/readonly": self._read_only,
            f"{BASE}/is_ready": self._is_ready,
            f"{BASE}/info": self._info,
            f"{BASE}/list_disk_file": self._list_disk_files,
            f"{BASE}/gc": self._gc,
            f"{BASE}/gc_details": self._gc_details,
            f"{BASE}/gc/suspend_compaction": self._suspend,
            f"{BASE}/gc/resume_compaction": self._resume,
        }

    # -- state

    async def _state(self, request: Request) -> Answer:
        if request.method != "GET":
            return Answer("Only support GET method to retrieve bookie state.", 404)
        admission = self._service.bookie.admission
        state = {
            "running": self._running,
            "readOnly": bool(admission.reasons),
            "shuttingDown": self._shutting_down,
            "availableForHighPriorityWrites": admission.takes_high_priority,
        }
        return Answer(json_text(state))

    @property
    def _shutting_down(self) -> bool:
        """True while the bookie stops, and after a failure because of which it stops."""
        return self._service.lost.is_set() or "stopping" in self._service.bookie.admission.reasons

    @property
    def _running(self) -> bool:
        return not self._shutting_down and "starting" not in self._service.bookie.admission.reasons

    async def _read_only(self, request: Request) -> Answer:
        if request.method not in ("GET", "PUT"):
            return Answer("Unsupported method. Should be GET or PUT method", 404)
        service = self._service
        admission = service.bookie.admission
        if request.method == "PUT":
            wanted = _read_only_of(request)
            if admission.reasons and not wanted:
                if service.config.force_read_only:
                    return Answer("Bookie is in forceReadOnly mode, cannot transit to writable mode", 400)
                service.set_manual_read_only(None)
            elif not admission.reasons and wanted:
                if not service.config.read_only_mode:
                    return Answer("Bookie is disabled ReadOnly mode, cannot transit to readOnly mode", 400)
                service.set_manual_read_only("request by HTTP: no reason given")
        return Answer(json_text({"readOnly": bool(admission.reasons)}))

    async def _is_ready(self, request: Request) -> Answer:
        if request.method != "GET":
            return Answer("Only support GET method check if bookie is ready.", 404)
        return Answer("OK") if self._running else Answer("Bookie is not fully started yet", 503)

    # -- disks

    async def _info(self, request: Request) -> Answer:
        if request.method != "GET":
            return Answer("Only GET is supported.", 404)
        total, free = self._service.bookie.info()
        return Answer(json_text({"freeSpace": free, "totalSpace": total}))

    async def _list_disk_files(self, request: Request) -> Answer:
        if request.method != "GET":
            return Answer(ONLY_GET, 404)
        config = self._service.config
        directories = {"journal": config.journal_dirs, "entrylog": config.ledger_dirs, "index": config.index_dirs}
        asked = request.parameters.get("file_type", "")
        kinds = [asked] if asked in FILE_KINDS else FILE_KINDS
        found = {
            f"{kind} files": await asyncio.to_thread(_names, directories[kind], FILE_KINDS[kind]) for kind in kinds
        }
        return Answer(json_text(found))

    # -- garbage collection

    async def _gc(self, request: Request) -> Answer:
        garbage = self._service.garbage
        if request.method == "GET":
            return Answer(json_text({"is_in_force_gc": str(garbage.forced).lower()}))
        if request.method != "PUT":
            return Answer("Not allowed method. Should be PUT to trigger GC, Or GET to get Force GC state.", 405)
        paused = garbage.compactor.paused
        levels = {MAJOR: MAJOR not in paused, MINOR: MINOR not in paused}
        if request.body is not None and request.body.strip():
            try:
                asked = _object_of(request)
            except ValueError as error:
                return Answer(f"Failed to handle the request, exception: {error}", 400)
            for level, name in ((MAJOR, "forceMajor"), (MINOR, "forceMinor")):
                levels[level] = str(asked.get(name, levels[level])).lower() == "true"
        garbage.force(frozenset(level for level, wanted in levels.items() if wanted))
        return Answer(json_text(f"Triggered GC on BookieServer: {self._service.bookie_id}"))

    async def _gc_details(self, request: Request) -> Answer:
        if request.method != "GET":
            text = "If you want to trigger gc, send a POST to gc endpoint."
            return Answer(f"Only support GET method to retrieve GC details. {text}", 404)
        garbage = self._service.garbage
        compactor = garbage.compactor
        status = {
            "forceCompacting": garbage.forced,
            "majorCompacting": compactor.running == MAJOR,
            "minorCompacting": compactor.running == MINOR,
            "lastMajorCompactionTime": compactor.ended_ms[MAJOR],
            "lastMinorCompactionTime": compactor.ended_ms[MINOR],
            "lastEntryLocationCompactionTime": compactor.began_ms,  # RocksDB does it automatically
            "majorCompactionCounter": compactor.counts[MAJOR],
            "minorCompactionCounter": compactor.counts[MINOR],
            "entryLocationCompactionCounter": 0,
        }
        return Answer(
            json_text([status] * len(self._service.config.ledger_dirs))
        )  # Java reports one for each directory

    async def _suspend(self, request: Request) -> Answer:
        paused = self._service.garbage.compactor.paused
        if request.method == "GET":
            state = {f"is{level.capitalize()}GcSuspended": str(level in paused).lower() for level in (MAJOR, MINOR)}
            return Answer(json_text(state))
        if request.method != "PUT":
            text = "Should be PUT to suspend major or minor compaction, Or GET to get compaction state."
            return Answer(f"Not found method. {text}", 404)
        return self._switch(request, "suspend", paused.add)

    async def _resume(self, request: Request) -> Answer:
        if request.method != "PUT":
            text = "Should be PUT to resume major or minor compaction, Or GET to get compaction state."
            return Answer(f"Not found method. {text}", 404)
        return self._switch(request, "resume", self._service.garbage.compactor.paused.discard)

    def _switch(self, request: Request, verb: str, switch: Any) -> Answer:
        """Applies the request to each level; Java's text begins with a comma if only minor is named."""
        if request.body is None:
            return Answer("Empty request body", 400)
        asked = _object_of(request)
        major, minor = (_flag(asked, f"{verb}{level.capitalize()}") for level in (MAJOR, MINOR))
        if major is None and minor is None:
            return Answer(f"No {verb}Major or {verb}Minor params found", 400)
        bookie = self._service.bookie_id
        server = f"Bookie Server listening on {self._service.address} with id {bookie}"
        text = ""
        if major:
            switch(MAJOR)
            text = f"{verb.capitalize()} majorGC on BookieServer: {server}"
        if minor:
            switch(MINOR)
            text += f", {verb.capitalize()} minorGC on BookieServer: {server}"
        return Answer(json_text(text))


def _object_of(request: Request) -> dict[str, Any]:
    """Returns the JSON object in a request.

    Raises:
        ValueError: the body is not a JSON object; with Java's text.
    """
    try:
        found = json.loads(request.body or "")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError("Failed to deserialize Object from Json string")
    return found


def _flag(asked: Mapping[str, Any], name: str) -> bool | None:
    """Returns a boolean field, None if it is missing.

    Raises:
        ValueError: it has another type.
    """
    value = asked.get(name)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{name} is not a boolean")
    return value


def _read_only_of(request: Request) -> bool:
    """Returns the value of {"readOnly": …}; numbers and words are read as Jackson does, unknown fields are rejected.

    Raises:
        ValueError: it has another type.
    """
    asked = _object_of(request)
    value = asked.pop("readOnly", False)
    if asked or not isinstance(value, bool | int | str | None):
        raise ValueError("not a valid ReadOnlyState")
    if isinstance(value, str) and value.strip() not in ("true", "True", "TRUE", "false", "False", "FALSE", ""):
        raise ValueError("not a valid ReadOnlyState")
    return value.strip().lower() == "true" if isinstance(value, str) else bool(value)


def _names(directories: Iterable[str], extension: str) -> str:
    """Worker: returns the names of all files below, the oldest first, each followed by a tab."""
    found = []
    for directory in directories:
        for path in Path(directory).rglob(f"*.{extension}"):
            try:
                found.append((path.stat().st_mtime_ns, path.name))
            except FileNotFoundError:
                continue  # it was removed just now
    return "".join(f"{name}\t" for _, name in sorted(found))

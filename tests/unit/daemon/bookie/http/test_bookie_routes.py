"""The paths of Java's HTTP server on ours; the expected texts are what Java's bookie 4.17.3 answered."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.daemon.bookie.http.clients import ask, served
from tests.unit.daemon.bookie.services import ID, until
from tests.unit.daemon.bookie.world import Calls


async def test_the_configuration_is_not_served(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, service):
        assert (await ask(service, "GET", "/config/server_config"))[0] == 404


async def test_the_state_is_reported_and_the_mode_is_changed(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, service):
        path = "/bookie/state/readonly"
        assert await ask(service, "GET", "/bookie/is_ready") == (200, "OK")
        assert await ask(service, "GET", path) == (200, '{\n  "readOnly" : false\n}')
        assert await ask(service, "PUT", path, '{"readOnly": true}') == (200, '{\n  "readOnly" : true\n}')
        state = await ask(service, "GET", "/bookie/state")
        assert state[1].startswith('{\n  "running" : true,\n  "readOnly" : true,\n  "shuttingDown" : false,\n')
        assert service.bookie.read_only
        assert await ask(service, "PUT", path, '{"readOnly": "false"}') == (200, '{\n  "readOnly" : false\n}')
        for bad in ("", "x", '{"readOnly": 1, "x": 2}', '{"readOnly": "no"}', "[]"):
            assert await ask(service, "PUT", path, bad) == (500, "Internal Server Error")
        assert not service.bookie.read_only
        assert await ask(service, "DELETE", path) == (404, "Unsupported method. Should be GET or PUT method")
        assert (await ask(service, "HEAD", path))[0] == 405
        assert (await ask(service, "POST", "/bookie/state"))[0] == 404
        service.lose(RuntimeError("auto recovery failed"))
        assert json.loads((await ask(service, "GET", "/bookie/state"))[1])["shuttingDown"] is True
        assert await ask(service, "GET", "/bookie/is_ready") == (503, "Bookie is not fully started yet")


async def test_mode_changes_that_the_configuration_forbids_are_rejected(tmp_path: Path) -> None:
    path = "/bookie/state/readonly"
    async with served(tmp_path / "a", read_only_mode=False) as (_, service):
        answer = await ask(service, "PUT", path, '{"readOnly": true}')
        assert answer == (400, "Bookie is disabled ReadOnly mode, cannot transit to readOnly mode")
    async with served(tmp_path / "b", force_read_only=True) as (_, service):
        answer = await ask(service, "PUT", path, '{"readOnly": false}')
        assert answer == (400, "Bookie is in forceReadOnly mode, cannot transit to writable mode")


async def test_disk_space_and_files_are_reported(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, service):
        assert list(json.loads((await ask(service, "GET", "/bookie/info"))[1])) == ["freeSpace", "totalSpace"]
        await Calls(service.bookie).add(5, range(3))
        await service.bookie.flush()
        found = json.loads((await ask(service, "GET", "/bookie/list_disk_file"))[1])
        assert list(found) == ["journal files", "entrylog files", "index files"]
        assert found["entrylog files"].endswith(".log\t")
        (journal,) = (tmp_path / "journal").rglob("*.txn")
        only = await ask(service, "GET", "/bookie/list_disk_file?file_type=journal")
        assert only == (200, f'{{\n  "journal files" : "{journal.name}\\t"\n}}')


async def test_garbage_is_collected_and_compacted_when_asked(tmp_path: Path) -> None:
    intervals = {"minor_compaction_interval_s": 3600, "major_compaction_interval_s": 86_400}
    async with served(tmp_path, gc_wait_ms=3_600_000, **intervals) as (_, service):
        garbage = service.garbage
        compactor = garbage.compactor
        assert await ask(service, "GET", "/bookie/gc") == (200, '{\n  "is_in_force_gc" : "false"\n}')
        triggered = (200, f'"Triggered GC on BookieServer: {ID}"')
        assert await ask(service, "PUT", "/bookie/gc") == triggered
        await until(lambda: not garbage.forced)
        assert (garbage.cycles, compactor.counts) == (1, {"minor": 0, "major": 1})
        assert await ask(service, "PUT", "/bookie/gc", '{"forceMajor": false}') == triggered
        await until(lambda: not garbage.forced)
        assert (garbage.cycles, compactor.counts) == (2, {"minor": 1, "major": 1})
        bad = "Failed to handle the request, exception: Failed to deserialize Object from Json string"
        assert await ask(service, "PUT", "/bookie/gc", "x") == (400, bad)
        (details,) = json.loads((await ask(service, "GET", "/bookie/gc_details"))[1])
        times = ["lastMajorCompactionTime", "lastMinorCompactionTime", "lastEntryLocationCompactionTime"]
        counters = ["majorCompactionCounter", "minorCompactionCounter", "entryLocationCompactionCounter"]
        assert list(details) == ["forceCompacting", "majorCompacting", "minorCompacting", *times, *counters]
        assert [details[name] for name in counters] == [1, 1, 0]
        assert details[times[2]] <= details[times[0]] <= details[times[1]]


async def test_compaction_is_suspended_and_resumed(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, service):
        suspend, resume = "/bookie/gc/suspend_compaction", "/bookie/gc/resume_compaction"
        server = f"BookieServer: Bookie Server listening on 127.0.0.1:{service.server.port} with id {ID}"
        both = await ask(service, "PUT", suspend, '{"suspendMajor": true, "suspendMinor": true}')
        assert both == (200, f'"Suspend majorGC on {server}, Suspend minorGC on {server}"')
        assert await ask(service, "PUT", resume, '{"resumeMinor": true}') == (200, f'", Resume minorGC on {server}"')
        state = '{\n  "isMajorGcSuspended" : "true",\n  "isMinorGcSuspended" : "false"\n}'
        assert await ask(service, "GET", suspend) == (200, state)
        assert service.garbage.compactor.paused == {"major"}
        assert await ask(service, "PUT", suspend) == (400, "Empty request body")
        assert await ask(service, "PUT", suspend, "{}") == (400, "No suspendMajor or suspendMinor params found")
        for bad in ("x", '{"suspendMinor": "x"}'):
            assert (await ask(service, "PUT", suspend, bad))[0] == 500
        assert (await ask(service, "GET", resume))[0] == 404


async def test_a_suspended_compaction_is_not_due_unless_asked_for(tmp_path: Path) -> None:
    async with served(tmp_path, minor_compaction_interval_s=0, major_compaction_interval_s=1) as (_, service):
        compactor = service.garbage.compactor
        await until(lambda: compactor.due() is not None)
        compactor.paused.add("major")
        assert compactor.due() is None
        assert compactor.due(frozenset({"major"})) is not None

"""The paths of Java's HTTP server on ours; the expected texts are what Java's bookie 4.17.3 answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.bookie.http import entry_routes
from bkdaemon.bookie.http.jackson import dumps, hash_map, text_of
from bkdaemon.bookie.service import BookieService

from bkctl.client.client import BookKeeper
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import open_ledgers
from bkctl.meta.election import Election
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.underreplication import Underreplication
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata
from bkctl.world import SystemClock
from tests.unit.daemon.bookie.test_service import ID, ROOT, config_at, new_cluster, serving, until
from tests.unit.daemon.bookie.world import Calls

BASE = "/api/v1"
A, B = BookieId("127.0.0.1:21061"), BookieId("127.0.0.1:21062")


async def ask(service: BookieService, method: str, path: str, body: str = "") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.http_port)
    writer.write(f"{method} {BASE}{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    await writer.drain()
    writer.write(body.encode())  # in a packet of its own
    head, _, text = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split(" ")[1]), text


@asynccontextmanager
async def served(directory: Path, **settings: Any) -> AsyncIterator[tuple[MemoryTree, BookieService]]:
    tree = await new_cluster()
    config = config_at(directory, http_enabled=True, http_port=0, http_host="127.0.0.1", **settings)
    async with serving(tree, config) as service:
        yield tree, service


def test_as_jackson_prints() -> None:
    assert dumps({}) == "{ }"
    assert dumps([]) == "[ ]"
    assert dumps([1, 2]) == "[ 1, 2 ]"
    assert dumps([{"a": 1}, {"b": [True, None]}]) == '[ {\n  "a" : 1\n}, {\n  "b" : [ true, null ]\n} ]'
    assert dumps({"0": {"ids": [{"id": "x"}]}}) == '{\n  "0" : {\n    "ids" : [ {\n      "id" : "x"\n    } ]\n  }\n}'
    assert dumps('a"\\\b\t\n\x0f\x7fä') == '"a\\"\\\\\\b\\t\\n\\u000F\x7fä"'
    assert list(hash_map({A: 0, B: 0})) == [B, A]
    names = ["journal files", "entrylog files", "index files"]
    assert list(hash_map(dict.fromkeys(names, 0))) == ["index files", "journal files", "entrylog files"]


def test_bytes_are_text_as_java_takes_them() -> None:
    """What Java 17 made of them; the first are a ledger's time of creation, as an hour of a day has it."""
    marks = {b"P\xb1\xed\xa8\x80\xb54": (1, 3), b"\xed\xa0": (0, 1), b"\xed\xbfA": (0, 1), b"\xf0\x90\x80": (0, 1)}
    for data, (before, count) in marks.items():
        assert text_of(data) == data[:before].decode() + "\ufffd" * count + data[-1:].decode(errors="ignore")
    assert text_of(b"\xed\xa0\xed\xbf\xbf\xbf") == "\ufffd" * 3
    assert text_of(b"\xed\x9f\xbf\xee\x80\x80\xe0\x80\x80\xf4\x90\x80\x80") == "\ud7ff\ue000" + "\ufffd" * 7


async def test_the_configuration_is_not_served(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, service):
        assert (await ask(service, "GET", "/config/server_config"))[0] == 404


async def test_its_state(tmp_path: Path) -> None:
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
        service.lose(RuntimeError("what ran beside it has ended"))
        assert json.loads((await ask(service, "GET", "/bookie/state"))[1])["shuttingDown"] is True
        assert await ask(service, "GET", "/bookie/is_ready") == (503, "Bookie is not fully started yet")


async def test_modes_that_cannot_be(tmp_path: Path) -> None:
    path = "/bookie/state/readonly"
    async with served(tmp_path / "a", read_only_mode=False) as (_, service):
        answer = await ask(service, "PUT", path, '{"readOnly": true}')
        assert answer == (400, "Bookie is disabled ReadOnly mode, cannot transit to readOnly mode")
    async with served(tmp_path / "b", force_read_only=True) as (_, service):
        answer = await ask(service, "PUT", path, '{"readOnly": false}')
        assert answer == (400, "Bookie is in forceReadOnly mode, cannot transit to writable mode")


async def test_its_disks(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, service):
        assert list(json.loads((await ask(service, "GET", "/bookie/info"))[1])) == ["freeSpace", "totalSpace"]
        await Calls(service.bookie).add(5, range(3))
        await service.bookie.flush()
        found = json.loads((await ask(service, "GET", "/bookie/list_disk_file"))[1])
        assert list(found) == ["index files", "journal files", "entrylog files"]
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
        state = '{\n  "isMinorGcSuspended" : "false",\n  "isMajorGcSuspended" : "true"\n}'
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


async def test_its_cluster(tmp_path: Path) -> None:
    async with served(tmp_path) as (tree, service):
        store = MemoryStore(tree)
        assert await ask(service, "GET", "/bookie/list_bookies") == (200, f'{{\n  "{ID}" : null\n}}')
        assert await ask(service, "GET", "/bookie/list_bookies?type=ro") == (200, "{ }")
        named = await ask(service, "GET", "/bookie/list_bookies?print_hostnames=true")
        assert named == (200, f'{{\n  "{ID}" : "127.0.0.1"\n}}')
        ledgers = await open_ledgers(store, ROOT, write=True)
        metadata = LedgerMetadata(2, 2, 1, (Ensemble(EntryId(0), (A, B)),), password=b"pw", ctime_ms=1795321579852)
        await ledgers.create(metadata.closed_at(2, 12), 0)
        assert await ask(service, "GET", "/ledger/list") == (200, '{\n  "0" : null\n}')
        decoded = await ask(service, "GET", "/ledger/list?print_metadata=true&decode_meta=true&page=1")
        assert decoded == await ask(service, "GET", "/ledger/metadata?ledger_id=0")
        assert '"digestType" : "CRC32C",\n    "password" : "cHc=",\n    "customMetadata" : { },\n' in decoded[1]
        texts = json.loads((await ask(service, "GET", "/ledger/list?print_metadata=true"))[1])
        assert texts["0"].startswith("BookieMetadataFormatVersion\t3\n")
        for bad in ("77", "x"):
            assert (await ask(service, "GET", f"/ledger/metadata?ledger_id={bad}"))[0] == 500
        assert (await ask(service, "GET", "/ledger/metadata"))[0] == 404
        info = json.loads((await ask(service, "GET", "/bookie/cluster_info"))[1])
        assert (info["totalBookiesCount"], info["writableBookiesCount"], info["unavailableBookiesCount"]) == (1, 1, 0)
        assert (info["auditorElected"], info["auditorId"], info["clusterUnderReplicated"]) == (False, "", False)
        await store.close()


async def test_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path) as (tree, service):
        store = MemoryStore(tree)
        ledgers = await open_ledgers(store, ROOT, write=True)
        client = BookKeeper(ledgers, BookieRegistry(store, ROOT), service.world)
        writer = await client.create(1, 1, 1, password=b"pw", digest_type=DigestType.HMAC)
        for payload in (b"one", b'two"\n', b"\xff\x00"):
            writer.append(payload)
            await writer.flush()
        path = f"/ledger/read?ledger_id={writer.ledger_id}"
        entries = ['"0" : "one"', '"1" : "two\\"\\n"', '"2" : "\ufffd\\u0000"']
        two = f"{{\n  {entries[0]},\n  {entries[1]}\n}}"
        assert await ask(service, "GET", path) == (200, two), "it is open: the last is not known to be confirmed"
        await writer.close()
        assert await ask(service, "GET", path) == (200, "{\n  " + ",\n  ".join(entries) + "\n}")
        assert await ask(service, "GET", f"{path}&start_entry_id=2&end_entry_id=9") == (200, f"{{\n  {entries[2]}\n}}")
        paged = await ask(service, "GET", f"{path}&page=1&end_entry_id=1")
        assert paged == (200, '{\n  "Entries for page: " : "1",' + two[1:])
        assert await ask(service, "GET", f"{path}&page=2") == (200, '{\n  "Entries for page: " : "2"\n}')
        words = "parameter for start_entry_id: 2 and end_entry_id: 1 conflict with page=-1"
        assert await ask(service, "GET", f"{path}&start_entry_id=2&end_entry_id=1") == (500, words)
        for bad in ("ledger_id=77", "ledger_id=x", f"ledger_id={writer.ledger_id}&start_entry_id=-1"):
            assert await ask(service, "GET", f"/ledger/read?{bad}") == (500, "Internal Server Error")
        words = "Not found method. Should be GET method, with ledger_id provided"
        assert await ask(service, "GET", "/ledger/read") == (404, words)
        monkeypatch.setattr(entry_routes, "READS_MAX", 0)
        assert await ask(service, "GET", path) == (503, "0 requests are reading entries; retry later")
        await client.close()
        await store.close()


async def test_auto_recovery(tmp_path: Path) -> None:
    async with served(tmp_path) as (tree, service):
        store = MemoryStore(tree)
        queue = Underreplication(store, ROOT, SystemClock())
        never = "org.apache.zookeeper.KeeperException$NoNodeException: KeeperErrorCode = NoNode for "
        never += "/ledgers/underreplication/auditorelection"
        base = "/autorecovery"
        assert await ask(service, "GET", f"{base}/who_is_auditor") == (404, f"Exception when get.{never}")
        assert await ask(service, "PUT", f"{base}/trigger_audit") == (404, f"Exception when do operation.{never}")
        none = (404, "No under replicated ledgers found")
        assert await ask(service, "GET", f"{base}/list_under_replicated_ledger") == none
        await queue.mark(7, [A])
        marks = f"{base}/list_under_replicated_ledger"
        assert await ask(service, "GET", f"{marks}?missingreplica={A}") == (200, "[ 7 ]")
        assert await ask(service, "GET", f"{marks}?excludingmissingreplica={A}") == none
        assert await ask(service, "GET", f"{marks}?printmissingreplica=1") == (200, f'{{\n  "7" : [ "{A}" ]\n}}')
        delay = f"{base}/lost_bookie_recovery_delay"
        missing = "Exception when get lostBookieRecoveryDelay.Error contacting zookeeper"
        assert await ask(service, "GET", delay) == (404, missing)
        told = (200, "Success set lostBookieRecoveryDelay to 5")
        assert await ask(service, "PUT", delay, '{"delay_seconds": 5}') == told
        assert await ask(service, "GET", delay) == (200, "lostBookieRecoveryDelay value: 5")
        assert (await ask(service, "PUT", delay, '{"delay_seconds": true}'))[0] == 500
        await Election(store, ROOT).win(A)
        assert await ask(service, "GET", f"{base}/who_is_auditor") == (200, f"Auditor: {A}")
        assert await ask(service, "PUT", f"{base}/trigger_audit") == (200, "Success trigger audit.")
        off = (200, '{\n  "enabled" : false\n}')
        assert await ask(service, "PUT", f"{base}/status?enabled=false") == off
        disabled = (404, "Exception when do operation.Autorecovery is disabled. So giving up!")
        assert await ask(service, "PUT", f"{base}/trigger_audit") == disabled
        assert not await queue.enabled()
        assert await ask(service, "PUT", f"{base}/status") == (400, "Param 'enabled' not found in {}")
        await store.close()

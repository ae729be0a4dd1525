"""The route to the entries of a ledger; the expected texts are what Java's bookie 4.17.3 answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkdaemon.bookie.http import entry_routes

from bkctl.client.client import BookKeeper
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import open_ledgers
from bkctl.meta.memory import MemoryStore
from bkctl.model.ledger import DigestType
from tests.unit.daemon.bookie.http.clients import ask, served
from tests.unit.daemon.bookie.services import ROOT


async def test_entries_are_returned_as_text_by_range_and_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

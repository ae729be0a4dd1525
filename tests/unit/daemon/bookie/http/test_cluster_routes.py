"""The routes of the cluster and of auto recovery; the expected texts are what Java's bookie 4.17.3 answered."""

from __future__ import annotations

import json
from pathlib import Path

from bkctl.meta.cluster import open_ledgers
from bkctl.meta.election import Election
from bkctl.meta.memory import MemoryStore
from bkctl.meta.underreplication import Underreplication
from bkctl.model.ids import EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.world import SystemClock
from tests.unit.daemon.bookie.http.clients import A, B, ask, served
from tests.unit.daemon.bookie.services import ID, ROOT


async def test_bookies_ledgers_and_cluster_info_are_reported_as_java_reports_them(tmp_path: Path) -> None:
    async with served(tmp_path) as (tree, service):
        store = MemoryStore(tree)
        assert await ask(service, "GET", "/bookie/list_bookies") == (200, f'{{\n  "{ID}" : null\n}}')
        assert await ask(service, "GET", "/bookie/list_bookies?type=ro") == (200, "{}")
        named = await ask(service, "GET", "/bookie/list_bookies?print_hostnames=true")
        assert named == (200, f'{{\n  "{ID}" : "127.0.0.1"\n}}')
        ledgers = await open_ledgers(store, ROOT, write=True)
        metadata = LedgerMetadata(2, 2, 1, (Ensemble(EntryId(0), (A, B)),), password=b"pw", ctime_ms=1795321579852)
        await ledgers.create(metadata.closed_at(2, 12), 0)
        assert await ask(service, "GET", "/ledger/list") == (200, '{\n  "0" : null\n}')
        decoded = await ask(service, "GET", "/ledger/list?print_metadata=true&decode_meta=true&page=1")
        assert decoded == await ask(service, "GET", "/ledger/metadata?ledger_id=0")
        assert '"digestType" : "CRC32C",\n    "password" : "cHc=",\n    "customMetadata" : {},\n' in decoded[1]
        texts = json.loads((await ask(service, "GET", "/ledger/list?print_metadata=true"))[1])
        assert texts["0"].startswith("BookieMetadataFormatVersion\t3\n")
        for bad in ("77", "x"):
            assert (await ask(service, "GET", f"/ledger/metadata?ledger_id={bad}"))[0] == 500
        assert (await ask(service, "GET", "/ledger/metadata"))[0] == 404
        info = json.loads((await ask(service, "GET", "/bookie/cluster_info"))[1])
        assert (info["totalBookiesCount"], info["writableBookiesCount"], info["unavailableBookiesCount"]) == (1, 1, 0)
        assert (info["auditorElected"], info["auditorId"], info["clusterUnderReplicated"]) == (False, "", False)
        await store.close()


async def test_the_auditor_the_queue_and_its_switch_are_reported_and_changed(tmp_path: Path) -> None:
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
        assert await ask(service, "GET", f"{marks}?missingreplica={A}") == (200, "[\n  7\n]")
        assert await ask(service, "GET", f"{marks}?excludingmissingreplica={A}") == none
        named = await ask(service, "GET", f"{marks}?printmissingreplica=1")
        assert named == (200, f'{{\n  "7" : [\n    "{A}"\n  ]\n}}')
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

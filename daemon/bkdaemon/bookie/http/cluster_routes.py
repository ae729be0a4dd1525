"""The routes of Java's HTTP port for the cluster: bookies, ledgers, auto recovery; from metadata only.

Paths, methods, codes, texts and fields are Java's; so `ledger/metadata` contains the password.
Not supported (404): ledger/delete, autorecovery/bookie and autorecovery/decommission, which are commands of bkctl;
ledger/read is in entry_routes.py. Source: HttpRouter.java and the services of org.apache.bookkeeper.server.http.service
(ListBookies, ClusterInfo, ListLedger, GetLedgerMeta, AutoRecoveryStatus, WhoIsAuditor, ListUnderReplicatedLedger,
LostBookieRecoveryDelay, TriggerAudit); LedgerMetadataImpl.java.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.codec.underreplication import DELAY_S_MAX, decode_marker
from bkctl.errors import BadBytes, NotFound, Refused, Unavailable
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.election import Election
from bkctl.meta.ledgers import no_such_ledger
from bkctl.meta.underreplication import Underreplication
from bkctl.model.ledger import DigestType
from bkdaemon.http_server import Answer, Request, Route, json_text

if TYPE_CHECKING:
    from bkctl.meta.ledgers import LedgerRecord, LedgerStore
    from bkctl.world import Clock

BASE: Final = "/api/v1"
ONLY_GET: Final = "Not found method. Should be GET method"
ONLY_PUT: Final = "Not found method. Should be PUT method"
PAGE_LEDGERS: Final = 100


class ClusterRoutes:
    """The routes of the cluster that the ledgers are in."""

    def __init__(self, ledgers: LedgerStore, clock: Clock) -> None:
        self._ledgers = ledgers
        self._registry = BookieRegistry(ledgers.store, ledgers.root)
        self._queue = Underreplication(ledgers.store, ledgers.root, clock)
        self._election = Election(ledgers.store, ledgers.root)

    def routes(self) -> dict[str, Route]:
        """Returns the routes by path."""
        return {
            f"{BASE}/bookie/list_bookies": self._list_bookies,
            f"{BASE}/bookie/cluster_info": self._cluster_info,
            f"{BASE}/ledger/list": self._list_ledgers,
            f"{BASE}/ledger/metadata": self._ledger_metadata,
            f"{BASE}/autorecovery/status": self._status,
            f"{BASE}/autorecovery/who_is_auditor": self._who_is_auditor,
            f"{BASE}/autorecovery/list_under_replicated_ledger": self._list_under_replicated,
            f"{BASE}/autorecovery/lost_bookie_recovery_delay": self._delay,
            f"{BASE}/autorecovery/trigger_audit": self._trigger_audit,
        }

    # -- bookies

    async def _list_bookies(self, request: Request) -> Answer:
        if request.method != "GET":
            return Answer(ONLY_GET, 404)
        read_only = request.parameters.get("type") == "ro"
        bookies = sorted(await (self._registry.read_only() if read_only else self._registry.writable()))
        named = request.parameters.get("print_hostnames") == "true"
        return Answer(json_text({b: (await self._registry.address(b))[0] if named else None for b in bookies}))

    async def _cluster_info(self, request: Request) -> Answer:
        if request.method != "GET":
            return Answer("Only GET is supported.", 404)
        auditor = await self._election.auditor()
        known, (writable, read_only) = await self._registry.known(), await self._registry.registered()
        info = {
            "auditorElected": auditor is not None,
            "auditorId": auditor or "",
            "clusterUnderReplicated": await anext(self._queue.markers(), None) is not None,
            "ledgerReplicationEnabled": await self._queue.enabled(),
            "totalBookiesCount": len(known),
            "writableBookiesCount": len(writable),
            "readonlyBookiesCount": len(read_only),
            "unavailableBookiesCount": len(known) - len(writable) - len(read_only),
        }
        return Answer(json_text(info))

    # -- ledgers

    async def _list_ledgers(self, request: Request) -> Answer:
        if request.method != "GET":
            return Answer(ONLY_GET, 404)
        asked = request.parameters
        if asked.get("print_metadata") != "true":
            found = {str(ledger_id): None async for part in self._ledgers.ids() for ledger_id in part}
            return Answer(await asyncio.to_thread(json_text, found))  # long: not on the event loop
        page = int(asked.get("page", "-1"))
        decoded = asked.get("decode_meta") == "true"
        chosen = [ledger_id async for ledger_id in self._page(page)]
        records = [record async for record in self._ledgers.read_many(chosen)]
        items = {str(r.ledger_id): metadata_item(r) if decoded else _text(r) for r in records}
        return Answer(await asyncio.to_thread(json_text, items))

    async def _page(self, page: int) -> AsyncIterator[int]:
        """Returns the ledgers of a page, all of them without a page; Java's first page is one ledger short."""
        first = (page - 1) * PAGE_LEDGERS if page > 0 else 0
        last = first + PAGE_LEDGERS - 1 if page > 0 else 0
        number = 0
        async for part in self._ledgers.ids():
            for ledger_id in part:
                number += 1
                if not last or first <= number <= last:
                    yield ledger_id

    async def _ledger_metadata(self, request: Request) -> Answer:
        if request.method != "GET" or "ledger_id" not in request.parameters:
            return Answer(ONLY_GET, 404)
        ledger_id = int(request.parameters["ledger_id"])
        records = [record async for record in self._ledgers.read_many([ledger_id])]
        if not records:
            raise no_such_ledger(ledger_id)
        return Answer(json_text({str(ledger_id): metadata_item(records[0])}))

    # -- auto recovery

    async def _status(self, request: Request) -> Answer:
        if request.method not in ("GET", "PUT"):
            return Answer("Not found method. Should be GET or PUT method", 404)
        if request.method == "PUT":
            wanted = request.parameters.get("enabled")
            if wanted is None:
                named = ", ".join(f"{name}={value}" for name, value in request.parameters.items())
                return Answer(f"Param 'enabled' not found in {{{named}}}", 400)
            await (self._queue.enable() if wanted.lower() == "true" else self._queue.disable())
        return Answer(json_text({"enabled": await self._queue.enabled()}))

    async def _who_is_auditor(self, request: Request) -> Answer:
        if request.method != "GET":
            return Answer(ONLY_GET, 404)
        auditor = await self._election.auditor()
        if auditor is not None:
            return Answer(f"Auditor: {auditor}")
        never = await self._never_elected()
        return Answer(f"Exception when get.{never}" if never else "No auditor elected", 404)

    async def _never_elected(self) -> str | None:
        """Returns Java's text for a cluster that never had an auditor, None for another cluster."""
        if await self._ledgers.store.exists(self._election.base) is not None:
            return None
        where = f"KeeperErrorCode = NoNode for {self._election.base}"
        return f"org.apache.zookeeper.KeeperException$NoNodeException: {where}"

    async def _list_under_replicated(self, request: Request) -> Answer:
        if request.method != "GET":
            return Answer(ONLY_GET, 404)
        asked = request.parameters
        including, excluding = asked.get("missingreplica", "").strip(), asked.get("excludingmissingreplica", "").strip()
        try:
            found = {
                ledger_id: missing
                async for ledger_id, missing in self._marks()
                if (not including or including in missing) and (not excluding or excluding not in missing)
            }
        except BadBytes as error:
            return Answer(f"Exception when get.{error.message}", 404)
        if not found:
            return Answer("No under replicated ledgers found", 404)
        return Answer(json_text(found if "printmissingreplica" in asked else list(found)))

    async def _marks(self) -> AsyncIterator[tuple[int, tuple[str, ...]]]:
        """Yields marked ledgers and their missing bookies."""
        async for ledger_ids in self._queue.markers():
            paths = [self._queue.marker_path(ledger_id) for ledger_id in ledger_ids]
            nodes = await self._queue.store.get_many(paths)
            for ledger_id, path, node in zip(ledger_ids, paths, nodes, strict=True):
                if node is not None:
                    yield ledger_id, decode_marker(node.data, source=path).replicas

    async def _delay(self, request: Request) -> Answer:
        if request.method == "GET":
            delay_s = await self._queue.delay_s()
            if delay_s is None:
                return Answer("Exception when get lostBookieRecoveryDelay.Error contacting zookeeper", 404)
            return Answer(f"lostBookieRecoveryDelay value: {delay_s}")
        if request.method != "PUT":
            return Answer(ONLY_PUT, 404)
        if request.body is None:
            return Answer("Null request body for lostBookieRecoveryDelay.", 404)
        asked = json.loads(request.body)
        if not isinstance(asked, dict) or "delay_seconds" not in asked:
            return Answer("Request body not contains lostBookieRecoveryDelay.", 404)
        delay_s = asked["delay_seconds"]
        if type(delay_s) is not int or not 0 <= delay_s <= DELAY_S_MAX:
            raise ValueError(f"{delay_s!r} is not a valid delay")
        await self._queue.set_delay(delay_s)
        return Answer(f"Success set lostBookieRecoveryDelay to {delay_s}")

    async def _trigger_audit(self, request: Request) -> Answer:
        if request.method != "PUT":
            return Answer(ONLY_PUT, 404)
        try:
            await self._queue.trigger_audit()
        except Refused:
            return Answer("Exception when do operation.Autorecovery is disabled. So giving up!", 404)
        except (Unavailable, NotFound):
            none = "No auditor elected, though Autorecovery is enabled. So giving up."
            return Answer(f"Exception when do operation.{await self._never_elected() or none}", 404)
        return Answer("Success trigger audit.")


def metadata_item(record: LedgerRecord) -> dict[str, Any]:
    """Returns the fields of a ledger that Jackson reads from Java's LedgerMetadataImpl."""
    metadata = record.metadata
    digest = metadata.digest_type
    return {
        "ledgerId": record.ledger_id,
        "metadataFormatVersion": metadata.format_version,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum_size,
        "ackQuorumSize": metadata.ack_quorum_size,
        "state": metadata.state.name,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry_id,
        "ctime": -1 if metadata.ctime_ms is None else metadata.ctime_ms,
        "digestType": None if digest is None else "MAC" if digest is DigestType.HMAC else digest.name,
        "password": _base64(metadata.password or b""),
        "customMetadata": {name: _base64(value) for name, value in metadata.custom_metadata.items()},
        "closed": metadata.closed,
        "allEnsembles": {e.first_entry_id: [{"id": bookie} for bookie in e.bookies] for e in metadata.ensembles},
        "ctoken": metadata.creation_token,
    }


def _text(record: LedgerRecord) -> str:
    """Returns the stored record decoded as text, as Java does."""
    return encode_metadata(record.metadata).decode("utf-8", "replace")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")

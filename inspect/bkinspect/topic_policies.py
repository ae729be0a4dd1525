"""Policies of single topics, as Pulsar stores them: events in each namespace's topic `__change_events`.

    entry       key: the topic's full name; value: a PulsarEvent in Avro, or empty: the topic's policies are removed
    event       all policies of the topic; the last event of a key takes effect
    global      policies for all clusters have their own key, __G__ and the name; they apply where the others are unset

The topic is compacted by its owner, so that a namespace's policies are in few ledgers, however old it is. They can be
read without a broker, because the ledgers are read without fencing. The broker of bkctl closes the ledger after each
event, so that all events can be read; the last event in an open ledger of a Java broker may be missed until the next
event. Fields that this broker does not know are kept. Source: SystemTopicBasedTopicPoliciesService.java,
PulsarEvent.java, TopicPolicies.java; topic_policies.avsc is the schema that Pulsar 4.0.7 registers.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.compression import decompress
from bkctl.codec.managed_ledger import COMPACTED, COMPACTION_CURSOR
from bkctl.codec.pulsar_compacted import COMPACTED_DIGEST, COMPACTED_PASSWORD, decode_compacted
from bkctl.codec.pulsar_entry import split_entry
from bkctl.errors import BadBytes, BkctlError, Corrupt, NotFound
from bkctl.log.workers import Workers
from bkctl.model.topic import EARLIEST, PERSISTENT, Position, TopicName
from bkctl.world import run_in
from bkinspect.topic import read_cursor_state

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.client.reader import LedgerReader
    from bkctl.codec.managed_ledger import ManagedLedgerInfo
    from bkctl.meta.managed_ledgers import ManagedLedgerStore
    from bkctl.meta.store import Version

CHANGE_EVENTS: Final = "__change_events"
GLOBAL_PREFIX: Final = "__G__"
"""Prefix of the key of a topic's policies for all clusters."""
NAMESPACES_CACHED_MAX: Final = 1_000
EVENT_BYTES_MAX: Final = 5 * 1024 * 1024
"""Maximum size of an event, decompressed."""
READ_ATTEMPTS_MAX: Final = 3
"""Attempts to read one namespace while its owner compacts the topic and deletes ledgers."""

_log = logging.getLogger(__name__)

Policies = dict[str, Any]
"""The set fields of TopicPolicies, by Avro's names."""


def system_topic(namespace: str) -> TopicName:
    """Returns the topic that stores the policies of a namespace's topics."""
    tenant, _, name = namespace.partition("/")
    return TopicName(PERSISTENT, tenant, name, CHANGE_EVENTS)


@cache
def schema_text() -> str:
    """Returns the Avro schema of the events."""
    return files("bkinspect").joinpath("topic_policies.avsc").read_text(encoding="utf-8")


@cache
def _schema() -> Any:
    from avro.schema import parse

    return parse(schema_text())


def encode_event(topic: TopicName, policies: Mapping[str, Any], cluster: str, action: str = "UPDATE") -> bytes:
    """Encodes an event that sets a topic's policies in a cluster."""
    from avro.io import BinaryEncoder, DatumWriter

    event = {
        "actionType": action,
        "eventType": "TOPIC_POLICY",
        "replicateTo": [cluster],
        "topicPoliciesEvent": {
            "domain": topic.domain,
            "namespace": topic.namespace,
            "policies": dict(policies),
            "tenant": topic.tenant,
            "topic": topic.local,
        },
    }
    out = io.BytesIO()
    DatumWriter(_schema()).write(event, BinaryEncoder(out))
    return out.getvalue()


def decode_event(data: bytes) -> dict[str, Any]:
    """Decodes the event in a message's value.

    Raises:
        Corrupt: it is not valid.
    """
    from avro.io import BinaryDecoder, DatumReader

    try:
        found: Any = DatumReader(_schema()).read(BinaryDecoder(io.BytesIO(data)))
    except Exception as e:  # noqa: BLE001 - the library has no error of its own for bytes that end
        raise Corrupt("event", source=CHANGE_EVENTS, offset=0, expected="a PulsarEvent", found=str(e)) from None
    return dict(found)


def policies_key(topic: str, *, everywhere: bool = False) -> str:
    """Returns the key of a topic's policies: its full name, with GLOBAL_PREFIX if they are for all clusters."""
    return GLOBAL_PREFIX + topic if everywhere else topic


def read_entry(entry: bytes, size_max: int = EVENT_BYTES_MAX) -> tuple[str, Policies | None]:
    """Returns (key as of `policies_key`, policies) of an entry; None instead of the policies if the event removes them.

    Raises:
        BadBytes: the entry is not an event of a topic's policies.
    """
    metadata, payload = split_entry(entry)
    if metadata.null_value or not payload:
        return str(metadata.partition_key), None
    event = decode_event(decompress(metadata, payload, size_max))
    told = event.get("topicPoliciesEvent") or {}
    policies = told.get("policies")
    everywhere = bool((policies or {}).get("isGlobal"))
    topic = f"{told.get('domain')}://{told.get('tenant')}/{told.get('namespace')}/{told.get('topic')}"
    name = policies_key(topic, everywhere=everywhere)
    if event.get("actionType") == "DELETE" or policies is None:
        return name, None
    return name, {key: value for key, value in policies.items() if value is not None}


class TopicPolicyReader:
    """Reads the policies of topics from BookKeeper, and caches them until the list of ledgers changes."""

    def __init__(self, bookkeeper: BookKeeper, ledgers: ManagedLedgerStore) -> None:
        self._bookkeeper = bookkeeper
        self._ledgers = ledgers
        self._workers = Workers()
        self._known: dict[str, tuple[Version, dict[str, Policies]]] = {}

    async def of(self, namespace: str) -> dict[str, Policies]:
        """Returns the policies of a namespace's topics by key; the cached ones if they cannot be read now."""
        path = system_topic(namespace).path
        known = self._known.get(namespace)
        try:
            info, version = await self._ledgers.read(path)
            if known is not None and known[0] == version:
                return known[1]
            found = await self._all(path, info)
        except NotFound:
            return {}
        except BkctlError as e:
            _log.warning("policies of the topics of %s cannot be read now: %s", namespace, e.message)
            return known[1] if known is not None else {}
        if len(self._known) >= NAMESPACES_CACHED_MAX:
            self._known.clear()
        self._known[namespace] = (version, found)
        return found

    async def read(self, namespace: str) -> dict[str, Policies]:
        """Returns the policies as `of` does, but reads them always.

        Raises:
            BkctlError: they cannot be read now.
        """
        path = system_topic(namespace).path
        try:
            info, _ = await self._ledgers.read(path)
        except NotFound:
            return {}
        return await self._all(path, info)

    async def _all(self, path: str, info: ManagedLedgerInfo) -> dict[str, Policies]:
        """Reads the compacted ledger, then later events; retries if a compaction deletes a ledger meanwhile.

        Raises:
            BkctlError: a ledger cannot be read.
        """
        for attempt in range(READ_ATTEMPTS_MAX):
            found: dict[str, Policies] = {}
            compacted, horizon = await self._compacted(path)
            try:
                if compacted is not None:
                    reader = await self._bookkeeper.open(compacted, COMPACTED_PASSWORD, COMPACTED_DIGEST)
                    await self._take(reader, 0, found, compacted=True)
                for ledger_id in [ledger.ledger_id for ledger in info.ledgers if ledger.ledger_id >= horizon.ledger_id]:
                    reader = await self._bookkeeper.open(ledger_id)
                    first = horizon.entry_id + 1 if ledger_id == horizon.ledger_id else 0
                    await self._take(reader, first, found)
            except NotFound:
                if attempt == READ_ATTEMPTS_MAX - 1:
                    raise
                info, _ = await self._ledgers.read(path)
            else:
                break
        return found

    async def _take(
        self, reader: LedgerReader, first: int, found: dict[str, Policies], *, compacted: bool = False
    ) -> None:
        """Reads a ledger to its end; a worker decodes the events of one batch at a time."""

        def decode(entries: list[tuple[int, bytes]]) -> None:
            for entry_id, entry in entries:
                data = decode_compacted(entry, source=f"ledger {reader.ledger_id}")[1] if compacted else entry
                _take(data, (reader.ledger_id, entry_id), found)

        if first > reader.last_confirmed:
            return
        world = self._bookkeeper.context.world
        async for batch in reader.read_unconfirmed(first, reader.last_confirmed):
            entries = [(int(entry.entry_id), bytes(entry.payload)) for entry in batch]
            await run_in(self._workers.get(world, "policies"), lambda entries=entries: decode(entries))  # type: ignore[misc]

    async def _compacted(self, path: str) -> tuple[int | None, Position]:
        """Returns the compacted ledger, None without one, and the last entry of the topic that it covers."""
        try:
            cursor, _ = await self._ledgers.read_cursor(path, COMPACTION_CURSOR)
        except NotFound:
            return None, EARLIEST
        state = await read_cursor_state(self._bookkeeper, cursor)
        if state is None or COMPACTED not in state.longs:
            return None, EARLIEST
        return state.longs[COMPACTED], state.mark_delete


def _take(entry: bytes, where: tuple[int, int], found: dict[str, Policies]) -> None:
    try:
        topic, policies = read_entry(entry)
    except BadBytes as e:
        _log.warning("ledger %d entry %d of %s: %s", *where, CHANGE_EVENTS, e.message)
        return
    found.pop(topic, None)
    if policies is not None:
        found[topic] = policies

"""Which ledgers Pulsar's nodes name: topics' data, cursors, compacted ledgers, schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_plus

from bkctl.codec.managed_ledger import (
    NO_CURSOR_LEDGER,
    LedgerInfo,
    decode_cursor_info,
    decode_ledger_info,
    decode_schema_locator,
)
from bkctl.codec.protobuf import Message

if TYPE_CHECKING:
    from bkinspect.audit.sources.nodes import StoredNode

TOPICS_PATH: Final = "/managed-ledgers"
SCHEMAS_PATH: Final = "/schemas"
COMPACTED_LEDGER: Final = "CompactedTopicLedger"
"""The property of the cursor `__compaction` that names the compacted ledger. Source: CompactedTopicImpl.java."""
_DOMAIN: Final = "persistent"
_OFFLOAD, _BOOKKEEPER_DELETED = 5, 4

Row = tuple[object, ...]


def rows_of(node: StoredNode) -> tuple[list[Row], list[Row]]:
    """(rows of `topics`, rows of `cursors`) of one node; nothing of a directory.

    Raises:
        BadBytes: the node is not what its path says.
    """
    if node.path.startswith(f"{SCHEMAS_PATH}/"):
        return _schema(node), []
    parts = node.path[len(TOPICS_PATH) + 1 :].split("/")
    at = next((i for i in (2, 3) if len(parts) > i and parts[i] == _DOMAIN), None)
    if at is None or len(parts) not in (at + 2, at + 3):
        return [], []
    topic = f"{_DOMAIN}://{'/'.join(parts[:at])}/{unquote_plus(parts[at + 1])}"
    if len(parts) == at + 2:
        return _topic(node, topic), []
    return _cursor(node, topic, unquote_plus(parts[at + 2]))


def _topic(node: StoredNode, topic: str) -> list[Row]:
    info = decode_ledger_info(node.data, source=node.path)
    last = len(info.ledgers) - 1
    return [
        (
            topic,
            ledger.ledger_id,
            "data",
            position,
            position == last and info.terminated is None,
            ledger.entries,
            ledger.size,
            ledger.timestamp_ms or None,
            _offloaded(ledger, node.path),
            None,
            node.path,
        )
        for position, ledger in enumerate(info.ledgers)
    ]


def _offloaded(ledger: LedgerInfo, source: str) -> bool:
    if not ledger.rest:
        return False
    context = Message(ledger.rest, source=source).raw(_OFFLOAD)
    return context is not None and bool(Message(context, source=source).integer(_BOOKKEEPER_DELETED))


def _cursor(node: StoredNode, topic: str, cursor: str) -> tuple[list[Row], list[Row]]:
    if not node.data:
        return [], []
    info = decode_cursor_info(node.data, source=node.path)
    named: list[Row] = []
    if info.ledger_id != NO_CURSOR_LEDGER:
        named.append((topic, info.ledger_id, "cursor", 0, None, None, None, None, None, cursor, node.path))
    mark: tuple[int | None, int | None] = (None, None)
    if info.state is not None:
        mark = info.state.mark_delete
        compacted = info.state.longs.get(COMPACTED_LEDGER)
        if compacted is not None and compacted >= 0:
            named.append((topic, compacted, "compaction", 0, None, None, None, None, None, cursor, node.path))
    return named, [(topic, cursor, info.ledger_id, mark[0], mark[1], info.last_active_ms, node.path)]


def _schema(node: StoredNode) -> list[Row]:
    parts = node.path[len(SCHEMAS_PATH) + 1 :].split("/")
    if len(parts) < 3 or not node.data:
        return []
    topic = f"{_DOMAIN}://{'/'.join(parts[:-1])}/{unquote_plus(parts[-1])}"
    versions = decode_schema_locator(node.data, source=node.path)
    ledgers = dict.fromkeys(version.position.ledger_id for version in versions)
    return [
        (topic, ledger_id, "schema", place, None, None, None, None, None, None, node.path)
        for place, ledger_id in enumerate(ledgers)
    ]

"""Converts nodes to rows of `topics` and `cursors`: of Pulsar's topics, cursors and schemas, and of DistributedLog.

The nodes are decoded by the owner plug-ins of `bkctl.meta.owners`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from bkctl.meta.managed_ledgers import ROOT as MANAGED_LEDGERS
from bkctl.meta.owners import distributedlog
from bkctl.meta.owners.base import COMPACTION, CURSOR, SCHEMA, STREAM
from bkctl.meta.owners.pulsar import CursorNode, SchemaNode, TopicNode, decode_node
from bkctl.meta.topics import SCHEMAS

if TYPE_CHECKING:
    from bkinspect.audit.sources.nodes import StoredNode

TOPICS_PATH: Final = MANAGED_LEDGERS
SCHEMAS_PATH: Final = SCHEMAS

STREAM_NAMESPACES: Final = (*distributedlog.DEFAULT_NAMESPACES, distributedlog.FUNCTIONS_NAMESPACE)
ALLOCATION: Final = "allocation"
"""A ledger that an allocator of DistributedLog holds for the next segment."""

Row = tuple[object, ...]


def rows_of(node: StoredNode) -> tuple[list[Row], list[Row]]:
    """Returns (rows of `topics`, rows of `cursors`) of one node; no rows for a directory.

    Raises:
        BadBytes: the node cannot be decoded as the kind that its path indicates.
    """
    decoded = decode_node(node.path, node.data, source=node.path)
    if isinstance(decoded, TopicNode):
        return _topic(decoded, node.path), []
    if isinstance(decoded, CursorNode):
        return _cursor(decoded, node.path)
    return _schema(decoded, node.path) if decoded is not None else [], []


def stream_rows(node: StoredNode, namespaces: Sequence[str]) -> list[Row]:
    """Returns rows of `topics` for a node of DistributedLog; none for a node without a ledger.

    Raises:
        BadBytes: the node is a segment or an allocator and cannot be decoded.
    """
    kind = STREAM if distributedlog.is_segment(node.path) else ALLOCATION
    last = kind == ALLOCATION or distributedlog.is_in_progress(node.path)
    return [
        (reference.owner.name, reference.ledger_id, kind, 0, last, None, None, None, None, None, node.path)
        for reference in distributedlog.references(namespaces, node.path, node.data)
    ]


def _topic(node: TopicNode, path: str) -> list[Row]:
    last = len(node.info.ledgers) - 1
    return [
        (
            node.topic,
            ledger.ledger_id,
            "data",
            position,
            position == last and node.info.terminated is None,
            ledger.entries,
            ledger.size,
            ledger.timestamp_ms or None,
            ledger.offloaded,
            None,
            path,
        )
        for position, ledger in enumerate(node.info.ledgers)
    ]


def _cursor(node: CursorNode, path: str) -> tuple[list[Row], list[Row]]:
    named: list[Row] = [
        (node.topic, ledger_id, kind, 0, None, None, None, None, None, node.cursor, path)
        for kind, ledger_id in ((CURSOR, node.ledger_id), (COMPACTION, node.compacted_ledger_id))
        if ledger_id is not None
    ]
    mark = (None, None) if node.info.state is None else node.info.state.mark_delete
    return named, [(node.topic, node.cursor, node.info.ledger_id, *mark, node.info.last_active_ms, path)]


def _schema(node: SchemaNode, path: str) -> list[Row]:
    return [
        (node.topic, ledger_id, SCHEMA, place, None, None, None, None, None, None, path)
        for place, ledger_id in enumerate(node.ledger_ids)
    ]

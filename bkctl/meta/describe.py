"""The kind of a node, by its path below the ledgers root, and its decoded value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from bkctl.codec import layout, registration
from bkctl.codec import recovery_notes as notes
from bkctl.codec import underreplication as under
from bkctl.codec.data_dir import decode_cookie
from bkctl.codec.ledger_metadata import decode_metadata
from bkctl.meta.paths import parse_ledger_path


class Described(NamedTuple):
    """The kind of a node, and its value: a dataclass, text, a number, or None for no bytes."""

    kind: str
    value: object


LEDGER: Final = "ledger"
UNKNOWN: Final = "unknown"
EMPTY: Final = "empty"


def _marker_layout(data: bytes, *, source: str) -> dict[str, object]:
    under.check_layout(data, source=source)
    return {"type": under.LAYOUT_TYPE, "version": under.LAYOUT_VERSION}


def _switched_off(data: bytes, *, source: str) -> object:
    """Java leaves it empty."""
    return notes.SwitchChange.decode(data, source=source) if data else None


_KINDS: Final[tuple[tuple[str, str, Callable[..., object]], ...]] = (
    ("layout", r"LAYOUT", layout.decode_layout),
    ("instance_id", r"INSTANCEID", layout.decode_instance_id),
    ("cookie", r"cookies/[^/]+", decode_cookie),
    ("registration", r"available/(?:readonly/)?(?!readonly\Z)[^/]+", registration.decode_service_info),
    ("marker_layout", r"underreplication/LAYOUT", _marker_layout),
    ("marker", r"underreplication/ledgers/(?:[0-9a-f]{4}/){4}urL[0-9]+", under.decode_marker),
    ("lock", r"underreplication/locks/urL[0-9]+", under.decode_holder),
    ("vote", r"underreplication/auditorelection/V_[0-9]+", under.decode_holder),
    ("auditor", r"underreplication/auditorelection", under.decode_holder),
    ("delay_s", r"underreplication/lostBookieRecoveryDelay", under.decode_delay),
    (
        "check_time_ms",
        r"underreplication/(?:checkallledgers|placementpolicycheck|replicascheck)ctime",
        under.decode_check_time,
    ),
    ("switched_off", r"underreplication/disable", _switched_off),
    ("switch_log", r"underreplication/bkctl/switch", notes.SwitchLog.decode),
    ("auditor_note", r"underreplication/bkctl/auditor", notes.AuditorNote.decode),
    ("check_request", r"underreplication/bkctl/requests/q_[0-9]+", notes.CheckRequest.decode),
    ("check_result", r"underreplication/bkctl/results/[a-z]+", notes.CheckResult.decode),
    ("worker_note", r"underreplication/bkctl/workers/[^/]+", notes.WorkerNote.decode),
    ("lost_note", r"underreplication/bkctl/lost/[0-9]+", notes.LostNote.decode),
)


def describe(root: str, path: str, data: bytes) -> Described:
    """Decodes a node.

    Raises:
        BadBytes: its bytes are not valid for its path.
    """
    if parse_ledger_path(root, path) is not None:
        return Described(LEDGER, decode_metadata(data, source=path))
    name = path[len(root) + 1 :] if path.startswith(root + "/") else ""
    for kind, pattern, decode in _KINDS:
        if re.fullmatch(pattern, name):
            return Described(kind, decode(data, source=path))
    return Described(UNKNOWN if data else EMPTY, None)

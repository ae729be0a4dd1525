"""Shared by the verbs that read and write bkctl's own nodes: opening them, the caller's name, the form of results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from bkctl.cli.render import moment
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkctl.cli.access import ClusterAccess
    from bkctl.cli.env import Env
    from bkctl.codec.recovery_notes import CheckName, CheckResult, LostNote
    from bkctl.meta.recovery_board import RecoveryBoard
    from bkctl.meta.recovery_switch import RecoverySwitch, SwitchState

_DURATION: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")
DURATION_S_MAX: Final = 30 * 86_400


def open_board(cluster: ClusterAccess) -> RecoveryBoard:
    """The notes of the cluster's auto recovery."""
    from bkctl.meta.recovery_board import RecoveryBoard

    return RecoveryBoard(cluster.store, cluster.root)


def open_switch(cluster: ClusterAccess) -> RecoverySwitch:
    """The switch of the cluster's auto recovery."""
    from bkctl.meta.recovery_switch import RecoverySwitch
    from bkctl.world import SystemClock

    return RecoverySwitch(cluster.store, cluster.root, SystemClock())


def whoever(env: Env) -> str:
    """The user of this command, as other clients see it: user@host."""
    import socket

    return f"{env.environ.get('USER') or 'unknown'}@{socket.gethostname()}"


def parse_duration(text: str) -> int:
    """Seconds: `90`, `90s`, `30m`, `2h`, `1d12h`.

    Raises:
        UsageError: not a duration, zero, or more than DURATION_S_MAX.
    """
    match = _DURATION.fullmatch(text.strip())
    parts = match.groups() if match else ()
    seconds = sum(int(part or 0) * unit for part, unit in zip(parts, (86_400, 3600, 60, 1), strict=False))
    if not 0 < seconds <= DURATION_S_MAX:
        raise UsageError(
            f"{text!r} is not a valid duration", hint=f"90s, 30m, 2h, 1d12h; at most {DURATION_S_MAX // 86_400} d"
        )
    return seconds


def parse_check(text: str) -> CheckName:
    """The check with this name.

    Raises:
        UsageError: no check has this name.
    """
    from bkctl.codec.recovery_notes import CheckName

    try:
        return CheckName(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a valid check", hint=", ".join(CheckName)) from None


def switch_item(state: SwitchState) -> dict[str, Any]:
    """Whether auto recovery is enabled, since when, by whom and why; null if another client changed it."""
    last = state.last if state.in_force else None
    return {
        "enabled": state.enabled,
        **moment("until", state.until_ms),
        "reason": last.reason if last is not None else None,
        "by": last.who if last is not None else None,
        **moment("since", last.at_ms if last is not None else None),
    }


def result_item(result: CheckResult) -> dict[str, Any]:
    """The last run of a check."""
    figures = result.figures
    return {
        "check": result.check.value,
        "by": result.by,
        **moment("started", result.started_ms),
        **moment("ended", result.ended_ms),
        "seconds": round((result.ended_ms - result.started_ms) / 1000, 3),
        "marked": figures.get("marked", 0),
        "ledgers_checked": figures.get("ledgers", 0),
        "lost_bookies": figures.get("lost_bookies"),
        "broken_ledgers": figures.get("broken_ledgers", 0),
        "figures": dict(figures),
        "findings_count": result.findings_count,
        "findings": [{"ledger_id": finding.ledger_id, "text": finding.text} for finding in result.findings],
        "error": result.error,
    }


def lost_item(note: LostNote) -> dict[str, Any]:
    """Entries that no bookie stores."""
    return {
        "entries_count": note.entries_count,
        "entries": list(note.entries),
        "reason": note.reason,
        "tries": note.tries,
        **moment("first", note.first_ms),
        **moment("last", note.last_ms),
        **moment("next", note.next_ms),
    }

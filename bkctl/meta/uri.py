"""Metadata service URIs, as BookKeeper writes them.

    zk+hierarchical://h1:2181;h2:2181/ledgers     driver zk, manager hierarchical, two hosts, root /ledgers
    zk://h1:2181/ledgers, zk+null://…             the manager is the one LAYOUT names

Hosts are separated by `;` (Java's property files take `,` for themselves) or by `,`. The path is the ledgers root as it
stands, no chroot. Source: ZKMetadataDriverBase.java, AbstractConfiguration.java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from bkctl.codec.layout import LedgerManager
from bkctl.errors import UsageError
from bkctl.meta.store import check_path

PORT_DEFAULT: Final = 2181
PORT_MAX: Final = 65535
DRIVER: Final = "zk"
_HINT: Final = "as in zk+hierarchical://host1:2181;host2:2181/ledgers"
_URI: Final = re.compile(r"(?P<scheme>[^:/]*)://(?P<hosts>[^/]*)(?P<root>/.*)?", re.DOTALL)
_HOST: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.%\w]+\]|[^\s:\[\]@]+)(?::(?P<port>[0-9]{1,5}))?")
_MANAGERS: Final = {
    "null": None,
    LedgerManager.FLAT.value: LedgerManager.FLAT,
    LedgerManager.HIERARCHICAL.value: LedgerManager.HIERARCHICAL,
    LedgerManager.LONG_HIERARCHICAL.value: LedgerManager.LONG_HIERARCHICAL,
}


@dataclass(frozen=True, slots=True)
class MetadataUri:
    """The location of the metadata. manager None: that of LAYOUT."""

    hosts: tuple[str, ...]
    root: str
    manager: LedgerManager | None = None

    @property
    def connect_string(self) -> str:
        """The hosts as ZooKeeper clients take them."""
        return ",".join(self.hosts)

    def __str__(self) -> str:
        scheme = DRIVER if self.manager is None else f"{DRIVER}+{self.manager.value}"
        return f"{scheme}://{';'.join(self.hosts)}{self.root}"


def parse_uri(text: str) -> MetadataUri:
    """Reads a metadata URI.

    Raises:
        UsageError: another scheme or manager, no host, no root, or a slash at the end.
    """
    match = _URI.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a metadata URI", hint=_HINT)
    driver, _, manager = match["scheme"].lower().partition("+")
    if driver != DRIVER:
        raise UsageError(f"metadata URI {text!r}: {driver or 'no'!s} is not a supported scheme: zk", hint=_HINT)
    if (manager or "null") not in _MANAGERS:
        known = ", ".join(_MANAGERS)
        raise UsageError(f"metadata URI {text!r}: no ledger manager {manager!r} (there are {known})", hint=_HINT)
    root = match["root"] or ""
    if root in ("", "/"):
        raise UsageError(f"metadata URI {text!r} has no ledgers root", hint=_HINT)
    check_path(root)
    hosts = tuple(_host(part, text) for part in re.split("[;,]", match["hosts"]))
    return MetadataUri(hosts, root, _MANAGERS[manager or "null"])


def _host(part: str, text: str) -> str:
    match = _HOST.fullmatch(part)
    if match is None or int(match["port"] or PORT_DEFAULT) > PORT_MAX:
        raise UsageError(f"metadata URI {text!r}: {part!r} is not a host", hint=_HINT)
    return f"{match['host']}:{match['port'] or PORT_DEFAULT}"

"""A bookie as the cluster sees it: its id, where it listens, its cookie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from ipaddress import ip_address
from typing import Final

from bkctl.model.ids import BookieId

BOOKIE_PROTOCOL: Final = "bookie-rpc"
HTTP_PROTOCOL: Final = "http"
GRPC_PROTOCOL: Final = "grpc"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine only: localhost, or an address of a loopback interface."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@unique
class BookieState(StrEnum):
    """Registered writable, registered read-only, or known by its cookie alone."""

    READ_WRITE = "rw"
    READ_ONLY = "ro"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of a bookie. Source: DataFormats.proto, BookieServiceInfoFormat.Endpoint."""

    id: str
    port: int
    host: str
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BookieServiceInfo:
    """The registration of a bookie. Empty means: split host and port from the id."""

    endpoints: tuple[Endpoint, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def endpoint(self, protocol: str) -> Endpoint | None:
        """The first endpoint that speaks protocol, or None."""
        return next((e for e in self.endpoints if e.protocol == protocol), None)


@dataclass(frozen=True, slots=True)
class Cookie:
    """The owner of a set of directories; the same text is in every directory and in the metadata store.

    journal_dirs, ledger_dirs, index_dirs are the configured paths; index_dirs is null if the configuration does not set
    them. Source: Cookie.java.
    """

    bookie_id: BookieId
    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    index_dirs: tuple[str, ...] | None = None
    instance_id: str | None = None
    layout_version: int = 5

"""Names of topics, and positions in their logs.

    persistent://tenant/namespace/local             a topic; or, of a partitioned one, what its partitions share
    persistent://tenant/namespace/local-partition-3 its partition 3, a topic of its own
    non-persistent://…                              a topic that stores nothing

Short names mean `persistent://public/default/…`. Where a name goes into a path, its local part is encoded as a form
field is in Java (`URLEncoder`). Source: TopicName.java, PositionImpl.java.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_plus

from bkctl.errors import UsageError

PERSISTENT: Final = "persistent"
NON_PERSISTENT: Final = "non-persistent"
DEFAULT_TENANT: Final = "public"
DEFAULT_NAMESPACE: Final = "default"
NAMES_CACHED_MAX: Final = 20_000

_PARTITION: Final = re.compile(r"(?s)(.*)-partition-(0|[1-9][0-9]*)")
_NAMED_ENTITY: Final = re.compile(r"[-=:.\w]+", re.ASCII)


class Position(NamedTuple):
    """An entry of a topic: a ledger and an entry of it; entry -1 is before the ledger's first."""

    ledger_id: int
    entry_id: int


EARLIEST: Final = Position(-1, -1)
LATEST: Final = Position(2**63 - 1, 2**63 - 1)
"""As clients ask for them: before the first entry, and after the last."""


class TopicName(NamedTuple):
    """The name of a topic or of one partition. `TopicName.parse` makes it.

    namespace may hold the cluster of an old name with four parts (`cluster/namespace`).
    """

    domain: str
    tenant: str
    namespace: str
    local: str

    @staticmethod
    def parse(text: str) -> TopicName:
        """Reads a full or a short name.

        Raises:
            UsageError: it is not a valid topic name.
        """
        return _parse(text)

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"

    @property
    def persistent(self) -> bool:
        """True if its messages are stored."""
        return self.domain == PERSISTENT

    @property
    def namespace_name(self) -> str:
        """tenant/namespace."""
        return f"{self.tenant}/{self.namespace}"

    @property
    def partition(self) -> int:
        """Which partition this is; -1 for a topic of its own."""
        match = _PARTITION.fullmatch(self.local)
        return int(match[2]) if match else -1

    @property
    def partitioned(self) -> TopicName:
        """Returns the topic that this is a partition of; itself if it is not a partition."""
        match = _PARTITION.fullmatch(self.local)
        return self._replace(local=match[1]) if match else self

    def partition_name(self, index: int) -> TopicName:
        """Its partition of that number."""
        return self._replace(local=f"{self.local}-partition-{index}")

    @property
    def encoded_local(self) -> str:
        """The local part as paths have it."""
        return encode_name(self.local)

    @property
    def path(self) -> str:
        """tenant/namespace/persistent/encoded-local: the name of its managed ledger."""
        return f"{self.tenant}/{self.namespace}/{self.domain}/{self.encoded_local}"


@lru_cache(NAMES_CACHED_MAX)
def _parse(text: str) -> TopicName:
    full = text
    if "://" not in full:
        parts = [part for part in full.split("/") if part]
        if len(parts) == 1:
            full = f"{PERSISTENT}://{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}/{parts[0]}"
        elif len(parts) == 3:
            full = f"{PERSISTENT}://{full}"
        else:
            raise UsageError(f"{text!r} is not a topic", hint="tenant/namespace/topic, or a topic of public/default")
    domain, _, rest = full.partition("://")
    if domain not in (PERSISTENT, NON_PERSISTENT):
        raise UsageError(f"{text!r} is not a topic", hint="it begins with persistent:// or non-persistent://")
    parts = rest.split("/", 3)
    if len(parts) == 4:
        tenant, namespace, local = parts[0], f"{parts[1]}/{parts[2]}", parts[3]
    elif len(parts) == 3:
        tenant, namespace, local = parts
    else:
        raise UsageError(f"{text!r} is not a topic", hint="domain://tenant/namespace/topic")
    named = [tenant, *namespace.split("/")]
    if not local.strip() or not all(map(_NAMED_ENTITY.fullmatch, named)):
        raise UsageError(f"{text!r} is not a topic", hint="names are letters, digits and -=:._")
    return TopicName(domain, tenant, namespace, local)


def is_namespace(text: str) -> bool:
    """True if it could be a namespace's name: tenant/namespace, or the old tenant/cluster/namespace."""
    parts = text.rstrip("/").split("/")
    return len(parts) in (2, 3) and all(map(_NAMED_ENTITY.fullmatch, parts))


def encode_name(text: str) -> str:
    """A name as Java's URLEncoder writes it, for a path."""
    return quote(text, safe="*-._").replace("%20", "+").replace("~", "%7E")


def decode_name(text: str) -> str:
    """Reverses `encode_name`."""
    return unquote_plus(text)

"""Any application that a ledger's custom metadata names, where no other plug-in knows how to find its references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bkctl.meta.owners.base import APPLICATION, Claim, Owner, OwnerPlugin, text_of

APPLICATION_KEY: Final = "application"
COMPONENT_KEY: Final = "component"


def claim(custom: Mapping[str, bytes]) -> Claim | None:
    """The application, with its component if there is one. Its references cannot be searched."""
    words = [text_of(custom[key]) for key in (APPLICATION_KEY, COMPONENT_KEY) if key in custom]
    return Claim(Owner(APPLICATION, " ".join(words))) if words else None


PLUGIN: Final = OwnerPlugin("application", (), lambda _path, _data: (), claim)

"""Names of tenants and namespaces, validated before any connection."""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

from bkctl.errors import UsageError

Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="tenant/namespace")]
Namespaces = Annotated[
    list[str], typer.Argument(metavar="NAMESPACE…", help="tenant/namespace, several, - for stdin, @file")
]
Tenants = Annotated[list[str], typer.Argument(metavar="TENANT…", help="tenants: names, - for stdin, @file")]
Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="the tenant's name")]

_NAME: Final = re.compile(r"[-=:.\w]+")


def tenant_name(text: str) -> str:
    """A tenant's name.

    Raises:
        UsageError: it is not a valid name.
    """
    if not _NAME.fullmatch(text):
        raise UsageError(f"{text!r} is not a valid tenant name", hint="letters, digits and -=:._")
    return text


def namespace_name(text: str) -> str:
    """A namespace as tenant/namespace.

    Raises:
        UsageError: it is not a valid name, or a namespace of Pulsar 1.
    """
    parts = text.split("/")
    if len(parts) == 3:
        raise UsageError(
            f"{text} is a namespace of Pulsar 1 (tenant/cluster/namespace), which is not supported",
            hint="tenant/namespace",
        )
    if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts):
        raise UsageError(
            f"{text!r} is not a valid namespace", hint="tenant/namespace; names are letters, digits and -=:._"
        )
    return text

"""The identity of a client and its rights.

Without authentication every client is "anonymous" and may do everything, as in a Pulsar cluster without it.
Source: AuthenticationService.java, AuthorizationService.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from bkctl.model.topic import TopicName


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of the client of a connection."""

    role: str


@unique
class Action(Enum):
    """An operation on a topic that authorization may refuse."""

    LOOKUP = "lookup"
    PRODUCE = "produce"
    CONSUME = "consume"


ANONYMOUS: Final = Principal("anonymous")


def authenticate(connect: Any) -> Principal:
    """Returns the identity of the client that sends a CONNECT command.

    Raises:
        Refusal: AUTHENTICATION; not raised while no authentication is supported.
    """
    del connect  # authentication is off: method and data are ignored, as Java does
    return ANONYMOUS


def allowed(principal: Principal, action: Action, topic: TopicName) -> bool:
    """Returns whether a client may perform an operation on a topic."""
    del principal, action, topic
    return True

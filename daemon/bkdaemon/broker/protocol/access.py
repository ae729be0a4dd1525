"""Who a client is, and what it may do: the one place for each.

Without authentication everybody is "anonymous" and may do everything, as in a Pulsar cluster with authentication off.
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
    """Who is at the other end of a connection."""

    role: str


@unique
class Action(Enum):
    """What can be done with a topic."""

    LOOKUP = "lookup"
    PRODUCE = "produce"
    CONSUME = "consume"


ANONYMOUS: Final = Principal("anonymous")


def authenticate(connect: Any) -> Principal:
    """Makes a CONNECT command a principal.

    Raises:
        Refusal: AUTHENTICATION, once there is a way to fail.
    """
    del connect  # authentication is off: method and data are ignored, as Java does
    return ANONYMOUS


def allowed(principal: Principal, action: Action, topic: TopicName) -> bool:
    """True if the principal may do this with the topic."""
    del principal, action, topic
    return True

"""The real cores as tables: a state number and an event give a state number and what was asked for.

A core is run once for each (state, event) that occurs, on a clone; after that the table answers. Two cores are the
same state when their `state()` is: the class promises that it holds all that decides what happens next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from bkctl.protocol.actions import Action

Event = tuple[Any, ...]


class Core(Protocol):
    """What WriterCore and RecoveryCore have in common."""

    def clone(self) -> Any:
        """A copy that shares nothing that changes."""

    def state(self) -> Hashable:
        """All that decides what happens next."""


C = TypeVar("C", bound=Core)


class Table(Generic[C]):
    """All states of one kind of core that were reached, by number from 1; 0 is for a client that does not exist yet.

    Args:
        call: brings an event to a core, and returns what the core asks for.
    """

    def __init__(self, call: Callable[[C, Event], Sequence[Action]]) -> None:
        self._call = call
        self.cores: list[C | None] = [None]
        self._numbers: dict[Hashable, int] = {}
        self._steps: dict[tuple[int, Event], tuple[int, tuple[Action, ...]]] = {}

    def number(self, core: C) -> int:
        """The number of a core's state."""
        key = core.state()
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.cores)
            self.cores.append(core)
        return found

    def __getitem__(self, number: int) -> C:
        core = self.cores[number]
        assert core is not None
        return core

    def step(self, number: int, event: Event) -> tuple[int, tuple[Action, ...]]:
        """What an event makes of a state."""
        found = self._steps.get((number, event))
        if found is None:
            core = self[number].clone()
            actions = tuple(self._call(core, event))
            found = self._steps[number, event] = (self.number(core), actions)
        return found

    def __len__(self) -> int:
        return len(self.cores) - 1

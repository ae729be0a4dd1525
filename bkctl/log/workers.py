"""Threads of a broker for work that takes long, one for each purpose, started with its first piece of work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkctl.world import Worker, World


class Workers:
    """Workers by name. A purpose has one thread: its work is done in order, and others' beside it."""

    def __init__(self) -> None:
        self._by_name: dict[str, Worker] = {}

    def get(self, world: World, name: str) -> Worker:
        """Returns the worker of this name, started if it was not."""
        if name not in self._by_name:
            self._by_name[name] = world.worker(name)
        return self._by_name[name]

    def close(self) -> None:
        """Lets submitted work finish, then ends the threads."""
        while self._by_name:
            self._by_name.popitem()[1].close()

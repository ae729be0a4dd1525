"""Breadth-first search over all states of a system; the first state that breaks a rule ends the shortest history.

A state is a nested tuple of non-negative ints. Visited states are kept as 64-bit hashes with the hash of the state
they were reached from; a history is told by walking the hashes back and the steps forward again. Among n states two
share a hash with a chance of about n² / 2^65: one in a million for six million states.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

State: TypeAlias = tuple[Any, ...]
Label: TypeAlias = tuple[Any, ...]
CHECK_EVERY: Final = 20_000


class Broken(Exception):
    """A rule does not hold."""

    def __init__(self, rule: str, what: str, label: Label | None = None) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        self.what = what
        self.label = label  # of the step that breaks it by itself, whatever state it leads to


class System(Protocol):
    """What can be explored."""

    def initial(self) -> State:
        """Where everything begins."""

    def steps(self, state: State) -> Iterable[tuple[Label, State]]:
        """Everything that can happen next. Raises Broken where a step breaks a rule by itself."""

    def check(self, state: State) -> None:
        """Raises Broken if the state breaks a rule."""

    def words(self, state: State, label: Label) -> str:
        """A step out of a state, for a person."""


@dataclass
class Result:
    """What a search saw. `complete` if every reachable state was visited."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    seconds: float = 0.0
    complete: bool = False
    broken: Broken | None = None
    history: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        extent = "all" if self.complete else "not all"
        text = f"{self.states:,} states ({extent}), {self.steps:,} steps, depth {self.depth}, {self.seconds:.0f} s"
        if self.broken is None:
            return f"{text}: no rule is broken"
        lines = [f"{n:3d}. {line}" for n, line in enumerate(self.history, 1)]
        return "\n".join([f"{text}: BROKEN after {len(lines)} steps", *lines, f"  => {self.broken}"])


def explore(
    system: System,
    *,
    seconds_max: float = 900.0,
    memory_gb_max: float = 8.0,
    start: State | None = None,
    progress: Callable[[str], None] = lambda _text: None,
) -> Result:
    """Visits states level by level, from the initial one or another, until all are visited, a rule breaks, or a limit
    is reached.
    """
    began, result = time.monotonic(), Result()
    start = start or system.initial()
    parents: dict[int, int] = {hash(start): 0}
    level = [start]
    try:
        while level:
            following: list[State] = []
            for n, state in enumerate(level):
                if n % CHECK_EVERY == 0 and _exhausted(began, seconds_max, memory_gb_max):
                    return result
                key = hash(state)
                try:
                    for _label, successor in system.steps(state):
                        result.steps += 1
                        found = hash(successor)
                        if found not in parents:
                            parents[found] = key
                            following.append(successor)
                            system.check(successor)
                except Broken as broken:
                    result.broken = broken
                    result.history = _history(system, start, parents, key)
                    result.history.append(_last_words(system, state, broken))
                    result.depth += 1
                    return result
            level = following
            result.depth += bool(level)
            spent = time.monotonic() - began
            progress(f"depth {result.depth:3d}  {len(parents):>12,} states  {len(level):>11,} new  {spent:6.1f} s")
        result.complete = not level
        return result
    finally:
        result.states = len(parents)
        result.seconds = time.monotonic() - began


def _exhausted(began: float, seconds_max: float, memory_gb_max: float) -> bool:
    used_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return time.monotonic() - began > seconds_max or used_gb > memory_gb_max


def _history(system: System, start: State, parents: dict[int, int], key: int) -> list[str]:
    """The steps from the start to the state with this hash."""
    path = []
    while key != hash(start):
        path.append(key)
        key = parents[key]
    state, lines = start, []
    for wanted in reversed(path):
        for label, successor in system.steps(state):
            if hash(successor) == wanted:
                lines.append(system.words(state, label))
                state = successor
                break
        else:
            raise AssertionError("a history that cannot be told again: the system is not deterministic")
    return lines


def _last_words(system: System, state: State, broken: Broken) -> str:
    """The step that broke the rule."""
    last: Label | None = None
    try:
        for label, successor in system.steps(state):
            last = label
            system.check(successor)
    except Broken as again:
        label = again.label or last
        return system.words(state, label) if label else str(broken)
    raise AssertionError("a rule that breaks only once")


def play(system: System, lines: Sequence[str]) -> State:
    """The state behind these steps, each told in the words of `System.words`."""
    state = system.initial()
    for line in lines:
        offered = [(system.words(state, label), successor) for label, successor in system.steps(state)]
        found = [successor for told, successor in offered if told == line]
        assert found, f"{line!r} is not among {[told for told, _ in offered]}"
        state = found[0]
    return state

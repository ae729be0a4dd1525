"""Regular expressions of clients and policies: RE2, whose time is linear in the text, as Java prefers RE2/J.

A pattern that RE2 does not support, but Java's own engine does (lookarounds, back references, possessive quantifiers),
is an UnsupportedPattern: it is never run here. Matching many names is done in slices on a worker.

Source: TopicsPatternFactory.java, RE2JTopicsPattern.java.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import re2

from bkctl.errors import Unavailable, UsageError
from bkctl.world import run_in

if TYPE_CHECKING:
    from bkctl.world import Worker

PROGRAM_BYTES_MAX: Final = 64 * 1024
"""Maximum memory of RE2 for one pattern, its program and its automaton."""
PATTERN_LENGTH_MAX: Final = 1024
"""Maximum characters of a policy's pattern; clients' patterns are limited by subscriptionPatternMaxLength."""
PATTERNS_CACHED_MAX: Final = 1024
SLICE_COST_MAX: Final = 1_000_000
"""Maximum characters times instructions of the program that are matched in one slice."""
SLICE_NAMES_MAX: Final = 1000
MATCH_SECONDS_MAX: Final = 30.0
"""Maximum time of matching the names of a namespace for one request: clients wait as long."""


class InvalidPattern(UsageError):
    """The text is not a regular expression."""


class UnsupportedPattern(InvalidPattern):
    """The text is a regular expression, but not one of RE2's, or its program is too large."""


class Pattern:
    """A compiled pattern."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def fits(self, text: str) -> bool:
        """True if the whole text matches."""
        return self._compiled.fullmatch(text) is not None

    @property
    def size(self) -> int:
        """The number of instructions of its program: a measure of a match's cost for each character."""
        return int(self._compiled.programsize)

    async def matching(self, names: Sequence[str], worker: Worker, key: Callable[[str], str]) -> list[str]:
        """Returns the names whose key matches, in their order; matches on a worker.

        Raises:
            Unavailable: it takes more than MATCH_SECONDS_MAX.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + MATCH_SECONDS_MAX
        found: list[str] = []
        for part in self._slices(names):
            if loop.time() > end_s:
                raise Unavailable(f"matching {len(names)} topics takes more than {MATCH_SECONDS_MAX:g} s")
            found += await run_in(worker, lambda part=part: [name for name in part if self.fits(key(name))])  # type: ignore[misc]
        return found

    def _slices(self, names: Sequence[str]) -> Iterator[Sequence[str]]:
        start = cost = 0
        for index, name in enumerate(names):
            cost += self.size * len(name)
            if cost > SLICE_COST_MAX or index - start >= SLICE_NAMES_MAX:
                yield names[start : index + 1]
                start, cost = index + 1, 0
        if start < len(names):
            yield names[start:]


@lru_cache(maxsize=PATTERNS_CACHED_MAX)
def compiled(text: str) -> Pattern:
    """Compiles a pattern.

    Raises:
        InvalidPattern: it is not a regular expression. UnsupportedPattern: it is one that RE2 cannot run.
    """
    if len(text) > PATTERN_LENGTH_MAX:
        raise UnsupportedPattern(f"pattern of {len(text)} characters; at most {PATTERN_LENGTH_MAX} are allowed")
    options = re2.Options()
    options.max_mem = PROGRAM_BYTES_MAX
    options.log_errors = False
    try:
        return Pattern(re2.compile(text, options))
    except (re2.error, UnicodeEncodeError) as error:
        why = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else str(error)
    try:
        re.compile(text)  # only its syntax: it is never run
    except (re.error, RecursionError, OverflowError):
        raise InvalidPattern(f"invalid regular expression {text!r}: {why}") from None
    raise UnsupportedPattern(f"regular expression {text!r} is not supported by RE2: {why}")

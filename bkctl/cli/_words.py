"""The possible next words of a command line, for the completion of shells.

Read from the tree of commands itself; only the verb that was named is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from bkctl.cli.app import Noun, build
from bkctl.cli.render import Format

if TYPE_CHECKING:
    from typer._click import Command as ClickCommand


def candidates(words: Sequence[str]) -> list[str]:
    """The candidates for the last word, given the words before it; empty if any word or a file may follow.

    Args:
        words: the line without `bkctl`; the last one is the incomplete word, possibly empty.
    """
    *before, begun = words
    command: ClickCommand | None = build()
    waits: Any = None  # the option whose value comes next
    for word in before:
        if command is None or word == "--":
            return []
        if waits is not None:
            waits = None
        elif word.startswith("-"):
            waits = _value_of(command, word)
        elif isinstance(command, Noun):
            command = command.get_command(typer.Context(command), word)
    if command is None:
        return []
    if waits is not None:
        found = [str(format_) for format_ in Format] if "--output" in waits.opts else []
    elif begun.startswith("-"):
        found = [option for parameter in command.params for option in _options(parameter)]
    else:
        found = command.list_commands(typer.Context(command)) if isinstance(command, Noun) else []
    return sorted(word for word in found if word.startswith(begun))


def _options(parameter: Any) -> list[str]:
    """Its names on a command line; none for an argument, or for one that help does not show."""
    if parameter.param_type_name != "option" or parameter.hidden:
        return []
    return [*parameter.opts, *parameter.secondary_opts]


def _value_of(command: ClickCommand, word: str) -> Any:
    """The option that a word names, if a value has to follow it."""
    for parameter in command.params:
        if word in _options(parameter):
            return None if parameter.is_flag or parameter.count else parameter  # type: ignore[attr-defined]
    return None

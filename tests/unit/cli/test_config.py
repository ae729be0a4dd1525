from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from bkctl.cli import config
from bkctl.cli.env import Env, Options
from bkctl.cli.render import Format
from bkctl.errors import NotFound, UsageError


def env(environ: dict[str, str] | None = None, **options: object) -> Env:
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    return Env(io.BytesIO(), out, err, {"HOME": "/nonexistent", **(environ or {})}, Options(**options))  # type: ignore[arg-type]


def test_properties(tmp_path: Path) -> None:
    path = tmp_path / "bk_server.conf"
    path.write_text(
        '# note\n! note\n\nbookiePort=3181\nledgerDirectories = /a,\\\n  /b\nodd: 1\nexport BK_x="y"\nbookiePort=3182\n'
    )
    found = config.read_properties(path)
    assert found == {"bookiePort": "3182", "ledgerDirectories": "/a,  /b", "odd": "1", "BK_x": "y"}
    with pytest.raises(NotFound):
        config.read_properties(tmp_path / "none")


@pytest.mark.parametrize(
    ("keys", "uri"),
    [
        ({"metadataServiceUri": "zk+flat://a/b"}, "zk+flat://a/b"),
        ({"metadataServiceUri": "null", "zkServers": "a:1,b:2"}, "zk+null://a:1;b:2/ledgers"),
        ({"zkServers": "a:1", "zkLedgersRootPath": "/x/y"}, "zk+null://a:1/x/y"),
        ({}, None),
    ],
)
def test_the_store_a_configuration_names(keys: dict[str, str], uri: str | None) -> None:
    assert config.metadata_uri_of(keys) == uri


def test_precedence(tmp_path: Path) -> None:
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


def test_nothing_says_where(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no metadata store"):
        _ = env({"BKCTL_STATE_DIR": str(tmp_path)}).metadata_uri


@pytest.mark.parametrize(
    ("text", "name", "error"),
    [(None, "x", NotFound), ("[profile.y]\na=1\n", "x", NotFound), ("[profile", "x", UsageError)],
)
def test_profiles_that_are_none(tmp_path: Path, text: str | None, name: str, error: type[Exception]) -> None:
    (tmp_path / "bkctl").mkdir()
    if text is not None:
        (tmp_path / "bkctl/config.toml").write_text(text)
    with pytest.raises(error):
        _ = env({"XDG_CONFIG_HOME": str(tmp_path)}, profile=name).format


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(UsageError):
        _ = env(output="xml").format
    with pytest.raises(UsageError):
        _ = env({"BKCTL_TIMEOUT": "soon"}).timeout_s
    with pytest.raises(UsageError):
        _ = env(timeout=-1.0).timeout_s


def test_one_level_over_another() -> None:
    assert Options(output="json", verbose=2).over(Options(output="csv", yes=True)) == Options(
        output="json", yes=True, verbose=2
    )

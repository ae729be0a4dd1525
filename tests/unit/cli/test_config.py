from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.cli import config
from bkctl.errors import NotFound


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

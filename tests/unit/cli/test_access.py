"""What a command does with the security keys of the file that -c names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bkctl.meta.cluster import init_cluster
from bkctl.meta.memory import MemoryStore, MemoryTree
from tests.command_line import bkctl


@pytest.fixture
def tree() -> MemoryTree:
    made = MemoryTree()
    asyncio.run(init_cluster(MemoryStore(made), "/ledgers"))
    return made


@pytest.mark.parametrize("line", ["tlsProviderFactoryClass=x.Y", "zkEnableSecurity=true", "BK_zkEnableSecurity=true"])
def test_a_command_refuses_keys_of_protection_that_is_not_supported(
    tree: MemoryTree, tmp_path: Path, line: str
) -> None:
    conf = tmp_path / "bk.conf"
    conf.write_text(f"{line}\n")
    key = line.partition("=")[0].removeprefix("BK_")
    for words in (("ledger", "list"), ("audit", "run")):
        answer = bkctl(*words, "-c", conf, "-o", "json", tree=tree)
        assert (answer.code, f"{conf}: {key}=" in answer.error()["message"]) == (2, True)
    conf.write_text(f"{line}\nbkctlAllowInsecure=true\n")
    answer = bkctl("ledger", "list", "-c", conf, tree=tree)
    assert (answer.code, answer.stderr.count(f"warning: {conf}: {key}=")) == (0, 1)


@pytest.mark.parametrize("server", ["bookie", "autorecovery", "broker"])
def test_a_server_with_such_a_key_exits_with_2_and_names_it(tmp_path: Path, server: str) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text("clusterName=c\nmetadataServiceUri=zk://127.0.0.1:1/ledgers\ntlsKeyStore=/missing/key.jks\n")
    answer = bkctl(server, "start", "-c", conf)
    assert answer.code == 2
    assert f"error: {conf}:3: tlsKeyStore=" in answer.stderr

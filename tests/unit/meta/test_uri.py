"""Metadata URIs as BookKeeper reads them, and every one that is refused."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.codec.layout import LedgerManager
from bkctl.errors import UsageError
from bkctl.meta.connect import open_store
from bkctl.meta.uri import parse_uri


@pytest.mark.parametrize(
    ("text", "hosts", "root", "manager"),
    [
        ("zk+hierarchical://h1:2181;h2:2182/ledgers", ("h1:2181", "h2:2182"), "/ledgers", LedgerManager.HIERARCHICAL),
        ("zk+longhierarchical://h1:2181/a/b", ("h1:2181",), "/a/b", LedgerManager.LONG_HIERARCHICAL),
        ("zk+flat://h1,h2/ledgers", ("h1:2181", "h2:2181"), "/ledgers", LedgerManager.FLAT),
        ("zk+null://h/ledgers", ("h:2181",), "/ledgers", None),
        ("ZK://h/ledgers", ("h:2181",), "/ledgers", None),
        (" zk://[::1]:2182/ledgers\n", ("[::1]:2182",), "/ledgers", None),
    ],
)
def test_uris(text: str, hosts: tuple[str, ...], root: str, manager: LedgerManager | None) -> None:
    uri = parse_uri(text)
    assert (uri.hosts, uri.root, uri.manager) == (hosts, root, manager)
    assert parse_uri(str(uri)) == uri
    assert uri.connect_string == ",".join(hosts)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a metadata URI"),
        ("h1:2181", "not a metadata URI"),
        ("etcd://h/ledgers", "etcd is not a supported scheme"),
        ("zk+ms://h/ledgers", "no ledger manager 'ms'"),
        ("zk+legacyhierarchical://h/ledgers", "no ledger manager"),
        ("zk://h", "no ledgers root"),
        ("zk://h/", "no ledgers root"),
        ("zk://h/ledgers/", "not a metadata path"),
        ("zk://h//ledgers", "not a metadata path"),
        ("zk:///ledgers", "not a host"),
        ("zk://h1;;h2/ledgers", "not a host"),
        ("zk://h:x/ledgers", "not a host"),
        ("zk://h:70000/ledgers", "not a host"),
        ("zk://u@h/ledgers", "not a host"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_uri(text)
    with pytest.raises(UsageError):
        asyncio.run(open_store(text))

"""`--digest` of `ledger read|check|recover|replicate`, on a store in memory without bookies."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bkctl.meta.cluster import init_cluster, open_ledgers
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata
from tests.command_line import bkctl

VERBS = ("read", "check", "recover", "replicate")
NAMED = LedgerMetadata(1, 1, 1, (Ensemble(EntryId(0), (BookieId("b0:3181"),)),), digest_type=DigestType.CRC32)
UNNAMED = replace(NAMED, format_version=1, digest_type=None, password=None)
LOST = "no entry could be read to detect it"


@pytest.fixture
def tree() -> MemoryTree:
    tree = MemoryTree()

    async def fill() -> None:
        store = MemoryStore(tree)
        await init_cluster(store, "/ledgers")
        ledgers = await open_ledgers(store, "/ledgers", write=True)
        await ledgers.create(NAMED, 5)
        await ledgers.create(UNNAMED, 6)
        await ledgers.create(UNNAMED.closed_at(9, 90), 7)
        await store.close()

    asyncio.run(fill())
    return tree


def arguments(verb: str, ledger_id: int, *more: str) -> tuple[object, ...]:
    return ("ledger", verb, ledger_id, *more, *(("--yes",) if verb in ("recover", "replicate") else ()))


@pytest.mark.parametrize("verb", VERBS)
def test_a_digest_that_differs_from_the_metadata_is_a_usage_error(tree: MemoryTree, verb: str) -> None:
    result = bkctl(*arguments(verb, 5, "--digest", "MAC"), tree=tree)
    assert result.code == 2
    assert "--digest MAC: the metadata of ledger 5 names CRC32" in result.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_a_word_that_is_no_digest_is_a_usage_error(tree: MemoryTree, verb: str) -> None:
    result = bkctl(*arguments(verb, 6, "--digest", "MD5"), tree=tree)
    assert result.code == 2
    assert "CRC32C" in result.stderr


def test_a_digest_type_that_no_bookie_can_prove_is_unavailable_with_the_option_as_hint(tree: MemoryTree) -> None:
    for verb, ledger_id in (("read", 7), ("recover", 6)):
        result = bkctl(*arguments(verb, ledger_id), tree=tree)
        assert result.code == 6, verb
        assert LOST in result.stderr
        assert "--digest" in result.stderr
        assert LOST not in bkctl(*arguments(verb, ledger_id, "--digest", "CRC32"), tree=tree).stderr


def test_check_finds_the_lost_copies_of_a_ledger_without_a_digest_type(tree: MemoryTree) -> None:
    result = bkctl("ledger", "check", 7, "-o", "json", tree=tree)
    assert result.code == 1
    assert [item["bad_bookies"] for item in result.json()["items"]] == [["b0:3181"]]

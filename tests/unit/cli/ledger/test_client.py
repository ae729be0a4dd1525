"""The options that verbs on entries share: passwords, digests, custom metadata, and the claim to write a ledger."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from bkctl.cli.env import Env
from bkctl.cli.ledger._client import (
    UNCLAIMED,
    check_digest,
    claim,
    digest_of,
    made_by,
    parse_custom_metadata,
    password_of,
    quorum_words,
)
from bkctl.errors import Conflict, Refused, UsageError
from bkctl.meta.cluster import init_cluster, open_ledgers
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata
from tests.command_line import bkctl

VERBS = ("read", "check", "recover", "replicate")
NAMED = LedgerMetadata(1, 1, 1, (Ensemble(EntryId(0), (BookieId("b0:3181"),)),), digest_type=DigestType.CRC32)
UNNAMED = replace(NAMED, format_version=1, digest_type=None, password=None)
LOST = "no entry could be read to detect it"
T = TypeVar("T")


def env(**environ: str) -> Env:
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    return Env(io.BytesIO(), out, err, environ)


def test_the_password_comes_from_the_option_the_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"from file\r\n")
    own = env(BKCTL_LEDGER_PASSWORD="from environment")
    assert password_of(own, "given", None) == b"given"
    assert password_of(own, None, file) == b"from file"
    assert password_of(own, None, None) == b"from environment"
    assert password_of(env(), None, None) == b""
    assert password_of(own, "", None) == b"", "an empty option is an empty password"
    with pytest.raises(UsageError, match="exclude each other"):
        password_of(own, "given", file)


def test_custom_metadata_is_split_at_the_first_equals_sign() -> None:
    assert parse_custom_metadata(None) == {}
    assert parse_custom_metadata(["a=b=c", "k="]) == {"a": b"b=c", "k": b""}
    for wrong in (["a"], ["=b"], ["a=1", "a=2"]):
        with pytest.raises(UsageError, match="--custom-metadata"):
            parse_custom_metadata(wrong)


def test_a_digest_option_must_agree_with_the_metadata() -> None:
    assert digest_of(None) is None
    check_digest(None, NAMED, 5)
    check_digest(DigestType.CRC32, NAMED, 5)
    check_digest(DigestType.HMAC, UNNAMED, 6)
    with pytest.raises(UsageError, match="--digest MAC: the metadata of ledger 5 names CRC32") as caught:
        check_digest(DigestType.HMAC, NAMED, 5)
    assert caught.value.hint == "omit --digest"


def test_quorums_are_checked_and_described() -> None:
    assert quorum_words(3, 2, 1) == "ensemble 3, write quorum 2, ack quorum 1"
    with pytest.raises(UsageError):
        quorum_words(2, 3, 1)


def on_ledgers(tree: MemoryTree, work: Callable[[LedgerStore], Awaitable[T]]) -> T:
    async def main() -> T:
        return await work(await open_ledgers(MemoryStore(tree), "/ledgers", write=True))

    return asyncio.run(main())


def test_only_the_first_of_two_writers_claims_a_ledger(tree: MemoryTree) -> None:
    unclaimed = replace(NAMED, custom_metadata={UNCLAIMED: made_by(), "app": b"x"})

    async def race(ledgers: LedgerStore) -> list[object]:
        await ledgers.create(unclaimed, 20)
        return await asyncio.gather(claim(ledgers, 20), claim(ledgers, 20), return_exceptions=True)

    first, second = on_ledgers(tree, race)
    assert isinstance(first, tuple)
    assert first[0].custom_metadata == {"app": b"x"}
    assert isinstance(second, Conflict)

    async def again(ledgers: LedgerStore) -> None:
        await claim(ledgers, 20)

    with pytest.raises(Refused, match="ledger 20 already has, or had, a writer"):
        on_ledgers(tree, again)


def test_a_closed_ledger_cannot_be_claimed(tree: MemoryTree) -> None:
    async def closed(ledgers: LedgerStore) -> None:
        await ledgers.create(replace(NAMED, custom_metadata={UNCLAIMED: made_by()}).closed_at(-1, 0), 21)
        await claim(ledgers, 21)

    with pytest.raises(Refused, match="CLOSED"):
        on_ledgers(tree, closed)


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
def test_a_word_that_is_not_a_digest_is_a_usage_error(tree: MemoryTree, verb: str) -> None:
    result = bkctl(*arguments(verb, 6, "--digest", "MD5"), tree=tree)
    assert result.code == 2
    assert "CRC32C" in result.stderr


def test_a_digest_type_that_cannot_be_detected_is_unavailable_with_the_option_as_hint(tree: MemoryTree) -> None:
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

"""`bkctl bookie rename|drain|decommission|recover` on a metadata store in memory: what needs no bookie that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from bkrecovery.drain import DrainClaim, DrainClaims, drained, refuse_drained
from bkrecovery.job_state import JobState
from bkrecovery.mode import NoWay, set_mode

from bkctl.cli.jobs import parse_rate
from bkctl.errors import UsageError
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import init_cluster
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import Node
from bkctl.model.bookie import BookieServiceInfo, Cookie, Endpoint
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from tests.command_line import Answer, bkctl

T = TypeVar("T")
ROOT = "/ledgers"
LIVE, OTHER, DOWN = map(BookieId, ("10.0.0.1:3181", "10.0.0.2:3181", "10.0.0.3:3181"))
NEW = BookieId("bk3.example.org:3181")
SERVING, BACK = BookieId("10.0.0.4:3181"), BookieId("10.0.0.5:3181")
LEDGER = LedgerMetadata(2, 2, 2, (Ensemble(EntryId(0), (DOWN, OTHER)),))


def on(tree: MemoryTree, work: Callable[[MemoryStore], Awaitable[T]]) -> T:
    async def main() -> T:
        return await work(MemoryStore(tree))

    return asyncio.run(main())


@pytest.fixture
def tree() -> MemoryTree:
    made = MemoryTree()

    async def fill(store: MemoryStore) -> None:
        await init_cluster(store, ROOT)
        registry = BookieRegistry(store, ROOT)
        for bookie in (LIVE, OTHER):  # without an admin port: like Java's without HTTP
            await registry.register(bookie, BookieServiceInfo())
        for bookie in (LIVE, OTHER, DOWN):
            await registry.create_cookie(Cookie(bookie, ("/j",), ("/l",)))
        ledgers = LedgerStore(store, ROOT)
        for ledger_id in (3, 5):
            await ledgers.create(LEDGER.closed_at(9, 1000), ledger_id)
        await ledgers.create(LEDGER, 7)

    on(made, fill)
    return made


@pytest.fixture
def run(tree: MemoryTree, tmp_path: Path) -> Callable[..., Answer]:
    def command(*arguments: str | int | Path) -> Answer:
        environ = {"BKCTL_STATE_DIR": str(tmp_path / "state"), "USER": "ann"}
        return bkctl(*arguments, tree=tree, environ=environ)

    return command


RENAME = ("bookie", "rename", "--from", DOWN, "--to", NEW)


def test_rename(tree: MemoryTree, run: Callable[..., Answer], tmp_path: Path) -> None:
    assert run(*RENAME).code == 3, "nobody confirmed"
    plan = run(*RENAME, "--rate", 100, "--dry-run", "-o", "json").json()["plan"]
    assert plan["summary"] == f"rename {DOWN} to {NEW} in 2 ledgers"
    assert any("ledger 7 is skipped: it is open" in step for step in plan["steps"])
    assert not (tmp_path / "state").exists(), "a dry run leaves nothing behind"
    answer = run(*RENAME, "--move-cookie", "--yes", "-o", "json")
    assert answer.code == 1
    assert [(i["ledger_id"], i["segments"], i["error"] is None) for i in answer.json()["items"]] == [
        (3, 1, True),
        (5, 1, True),
        (7, 0, False),
    ]
    assert "its cookie stays" in answer.stderr
    kept = {path: path.stat().st_mode & 0o077 for path in (tmp_path / "state").rglob("*")}
    assert len(kept) > 1
    assert set(kept.values()) == {0}, "a journal is readable by its owner only"
    answer = run(*RENAME, "--move-cookie", "--open-too", "--yes", "-o", "json")
    assert (answer.code, [i["ledger_id"] for i in answer.json()["items"]]) == (0, [7])
    assert on(tree, lambda store: BookieRegistry(store, ROOT).known()) == {LIVE, OTHER, NEW}
    assert run(*RENAME, "--yes", "-o", "json").json()["items"] == []


def test_what_failed_before_an_interrupt_keeps_its_reason(run: Callable[..., Answer], tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    state = JobState("bookie rename", "memory:2181/ledgers", tuple(sorted((DOWN, NEW))), 0, cursor=3)
    state.failed[3] = "the store was away"
    file.write_bytes(state.encode())
    answer = run(*RENAME, "--state", file, "--yes", "-o", "json")
    errors = {item["ledger_id"]: item["error"] for item in answer.json()["items"]}
    assert (answer.code, errors[3], errors[5]) == (1, "the store was away", None)
    assert run(*RENAME, "--state", file, "--open-too", "--yes").code == 0, "the next run looks at all of them"


def test_what_rename_refuses(run: Callable[..., Answer]) -> None:
    assert run("bookie", "rename", "--from", LIVE, "--to", NEW, "--yes").code == 3, "it is registered"
    assert run("bookie", "rename", "--from", DOWN, "--to", DOWN, "--yes").code == 2
    assert run("bookie", "rename", "--from", DOWN, "--to", "no name", "--yes").code == 2


def test_a_name_that_nothing_knows_is_not_found(run: Callable[..., Answer]) -> None:
    unknown = ("bookie", "rename", "--from", "10.9.9.9:3181", "--to", NEW)
    for mode in ("--yes", "--dry-run"):
        answer = run(*unknown, mode, "-o", "json")
        assert (answer.code, answer.error()["kind"]) == (4, "not_found")
    assert run(*RENAME, "--open-too", "--move-cookie", "--yes").code == 0
    again = run(*RENAME, "--yes", "-o", "json")
    assert (again.code, again.json()["items"], "already renamed at" in again.stderr) == (0, [], True)
    assert run(*RENAME, "--restart", "--yes").code == 4, "it is forgotten that it was done, and nothing knows the name"


def test_an_admin_port_on_the_loopback_address_of_another_machine_is_not_used(
    tree: MemoryTree, run: Callable[..., Answer]
) -> None:
    """A server of this machine would be made read-only instead."""

    async def register(store: MemoryStore) -> None:
        endpoints = [Endpoint("bookie", 1, "192.0.2.7", "bookie-rpc")]
        endpoints += [Endpoint(name, 1, "127.0.0.1", protocol) for name, protocol in (("a", "grpc"), ("h", "http"))]
        await BookieRegistry(store, ROOT).register(SERVING, BookieServiceInfo(tuple(endpoints)))

    on(tree, register)
    answer = run("bookie", "set", "read-only", SERVING, "--yes", "-o", "json")
    assert (answer.code, "adminGrpcAddress" in answer.error()["hint"]) == (3, True)

    async def drain(store: MemoryStore) -> None:
        await set_mode(BookieRegistry(store, ROOT), SERVING, read_only=True, who="x", why="y")

    with pytest.raises(NoWay, match="no admin port reachable from this machine"):
        on(tree, drain)


def test_a_bookie_that_is_drained_is_not_made_writable_by_the_way(tree: MemoryTree, run: Callable[..., Answer]) -> None:
    async def claim(store: MemoryStore) -> None:
        endpoints = (Endpoint("bookie", 1, "127.0.0.1", "bookie-rpc"), Endpoint("admin", 1, "127.0.0.1", "grpc"))
        await BookieRegistry(store, ROOT).register(SERVING, BookieServiceInfo(endpoints))
        await DrainClaims(store, ROOT).take(SERVING, DrainClaim("bob@b", 0))

    on(tree, claim)
    set_writable = ("bookie", "set", "writable", SERVING)
    answer = run(*set_writable, "-o", "json")
    assert (answer.code, "is being drained by bob@b" in answer.error()["message"]) == (3, True)
    assert "--cancel" in answer.error()["hint"]
    steps = run(*set_writable, "--dry-run", "-o", "json").json()["plan"]["steps"]
    assert any("is being drained by bob@b" in step for step in steps)
    assert run(*set_writable, "--yes").code == 6, "confirmed: the bookie itself is asked, and nobody listens there"
    assert run("bookie", "set", "read-only", SERVING, "--dry-run", "-o", "json").json()["plan"]["steps"] == [
        f"{SERVING}: read-only"
    ]


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (4, "not_found", ("bookie", "recover", "10.9.9.9:3181")),
        (4, "not_found", ("bookie", "recover", DOWN, "--to", "10.9.9.9:3181")),
        (6, "unavailable", ("bookie", "recover", LIVE, "--to", DOWN)),
        (2, "usage", ("bookie", "recover", DOWN, "--to", DOWN)),
        (4, "no_such_ledger", ("bookie", "recover", DOWN, "--ledger", 999)),
        (2, "usage", ("bookie", "recover", DOWN, "--rate", "-5")),
        (3, "refused", ("bookie", "recover", DOWN, "--state", "/dev/null/job.json")),
        (4, "not_found", ("bookie", "decommission", "10.9.9.9:3181")),
        (4, "not_found", ("bookie", "drain", "10.9.9.9:3181", "--cancel")),
        (4, "not_found", ("bookie", "set", "writable", "10.9.9.9:3181")),
        (
            4,
            "not_found",
            ("ledger", "recover", 7, "--declare-lost", "10.9.9.9:3181", "--confirm-lost", "10.9.9.9:3181"),
        ),
        (4, "not_found", ("ledger", "replicate", 3, "--to", "10.9.9.9:3181")),
        (2, "usage", ("ledger", "read", 3, "--from", 5, "--to", 3)),
        (4, "no_such_entry", ("ledger", "read", 3, "--from", 10)),
        (4, "no_such_entry", ("ledger", "read", 3, "--from", 5, "--to", 10)),
        (4, "no_such_ledger", ("autorecovery", "queue", "requeue", 999)),
        (2, "usage", ("autorecovery", "queue", "requeue", 3, "--missing", "no bookie")),
        (4, "no_such_ledger", ("ledger", "check", 999)),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_wrong_input_is_one_clear_error(
    run: Callable[..., Answer], code: int, kind: str, words: tuple[str | int, ...]
) -> None:
    yes = () if words[:2] in {("ledger", "read"), ("ledger", "check")} else ("--yes",)
    answer = run(*words, *yes, "-o", "json")
    assert (answer.code, answer.error()["kind"]) == (code, kind)
    assert "Traceback" not in answer.stderr
    assert "Errno" not in answer.stderr


def test_a_ledger_without_entries_is_read_to_its_end(tree: MemoryTree, run: Callable[..., Answer]) -> None:
    on(tree, lambda store: LedgerStore(store, ROOT).create(LEDGER.closed_at(-1, 0), 9))
    assert run("ledger", "read", 9, "--from", 1).code == 4
    for words in ((), ("--from", 0)):
        answer = run("ledger", "read", 9, *words, "-o", "json")
        assert (answer.code, answer.json()["items"]) == (0, [])


def test_a_closed_ledger_has_nothing_to_recover_and_nobody_was_asked(run: Callable[..., Answer]) -> None:
    answer = run("ledger", "recover", 3, "--explain", "-o", "json")
    assert (answer.code, {b["answer"] for b in answer.json()["bookies"]}) == (0, {"not asked"})
    found = run("ledger", "recover", 3, "--yes", "-o", "json").json()
    assert (found["state_before"], found["last_entry_id"], found["last_confirmed_found"]) == ("CLOSED", 9, None)


def test_a_ledger_that_is_none_beside_one_that_is(run: Callable[..., Answer]) -> None:
    answer = run("bookie", "recover", LIVE, "--ledger", 3, "--ledger", 999, "--yes", "-o", "json")
    assert (answer.code, [item["ledger_id"] for item in answer.json()["items"]]) == (1, [999])
    answer = run("autorecovery", "queue", "requeue", 3, 999, "--yes", "-o", "json")
    assert (answer.code, [item["ledger_id"] for item in answer.json()["items"]]) == (1, [3])
    assert any("999" in line for line in answer.json()["warnings"])


def test_a_bad_state_file_is_one_clear_error(run: Callable[..., Answer], tmp_path: Path) -> None:
    state = tmp_path / "job.json"
    state.write_text("{")
    answer = run(*RENAME, "--state", state, "--yes", "-o", "json")
    assert (answer.code, "is not a valid job state" in answer.error()["message"]) == (3, True)
    assert run(*RENAME, "--state", state, "--restart", "--yes").code == 1


def test_who_can_be_drained(tree: MemoryTree, run: Callable[..., Answer]) -> None:
    assert run("bookie", "drain", DOWN, "--yes").code == 6
    assert run("bookie", "drain", "10.9.9.9:3181", "--yes").code == 4
    assert run("bookie", "drain", LIVE).code == 3, "nobody confirmed"
    answer = run("bookie", "drain", LIVE, "--yes", "-o", "json")
    assert (answer.code, answer.error()["kind"]) == (3, "no_admin_port")
    assert "--leave-writable" in answer.error()["hint"]
    assert on(tree, lambda store: DrainClaims(store, ROOT).all()) == {}, "nothing was done, nothing is claimed"
    answer = run("bookie", "drain", LIVE, "--leave-writable", "--yes", "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])
    assert on(tree, lambda store: DrainClaims(store, ROOT).all())[LIVE].done
    answer = run("bookie", "drain", LIVE, "--cancel", "--yes", "-o", "json")
    assert answer.json()["items"][0]["made_writable"] is False, "it was writable all the time"
    assert on(tree, lambda store: DrainClaims(store, ROOT).all()) == {}


def test_a_cancel_that_cannot_make_the_bookie_writable_is_done_by_the_next(
    tree: MemoryTree, run: Callable[..., Answer]
) -> None:
    assert run("bookie", "drain", LIVE, "--leave-writable", "--yes").code == 0
    on(tree, lambda store: BookieRegistry(store, ROOT).register(LIVE, BookieServiceInfo(), read_only=True))
    cancel = ("bookie", "drain", LIVE, "--cancel", "--yes", "-o", "json")
    answer = run(*cancel)
    assert (answer.code, answer.error()["kind"]) == (3, "no_admin_port")
    assert list(on(tree, lambda store: DrainClaims(store, ROOT).all())) == [LIVE], "nothing is forgotten"
    on(tree, lambda store: store.delete_any(f"{ROOT}/available/readonly/{LIVE}"))  # its operator did it
    assert run(*cancel).json()["items"][0]["drained_by"] is not None
    assert on(tree, lambda store: DrainClaims(store, ROOT).all()) == {}


def test_a_cancel_of_a_bookie_that_is_down_is_done_once_it_is_back(
    tree: MemoryTree, run: Callable[..., Answer]
) -> None:
    """It may come back read-only: the claim stays, which knows that it was not; copies are not kept off it any more."""

    async def claim(store: MemoryStore) -> None:
        for bookie in (LIVE, OTHER):
            await DrainClaims(store, ROOT).take(bookie, DrainClaim("bob@b", 0))
            await DrainClaims(store, ROOT).leave(bookie, done=False)

    on(tree, claim)
    on(tree, lambda store: store.delete_any(f"{ROOT}/available/{LIVE}"))
    cancel = ("bookie", "drain", "--cancel", "-o", "json")
    plan = run(*cancel, LIVE, OTHER, "--dry-run").json()["plan"]["steps"]
    assert ["is down: its claim stays" in step for step in plan] == [True, False]
    answer = run(*cancel, LIVE, OTHER, "--yes")
    assert (answer.code, [row["bookie_id"] for row in answer.json()["items"]]) == (1, [OTHER])
    answer = run(*cancel, LIVE, "--yes")
    assert (answer.code, answer.error()["kind"]) == (6, "unavailable")
    assert "--cancel" in answer.error()["hint"]
    claims = on(tree, lambda store: DrainClaims(store, ROOT).all())
    assert (list(claims), claims[LIVE].was_read_only) == ([LIVE], False)
    refuse_drained(claims, [LIVE])
    assert drained(claims) == frozenset()
    assert drained({LIVE: replace(claims[LIVE], cancelled_by=None)}) == {LIVE}
    on(tree, lambda store: BookieRegistry(store, ROOT).register(LIVE, BookieServiceInfo(), read_only=True))
    assert run(*cancel, LIVE, "--yes").error()["kind"] == "no_admin_port", "it is told as soon as it is there"
    on(tree, lambda store: store.delete_any(f"{ROOT}/available/readonly/{LIVE}"))
    on(tree, lambda store: BookieRegistry(store, ROOT).register(LIVE, BookieServiceInfo()))
    assert run(*cancel, LIVE, "--yes").code == 0
    assert on(tree, lambda store: DrainClaims(store, ROOT).all()) == {}


def test_a_drain_of_two_that_cannot_begin_claims_neither(
    tree: MemoryTree, run: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DrainClaims.take, "__defaults__", (0.01,))

    async def main() -> Answer:
        bobs = DrainClaims(MemoryStore(tree), ROOT)
        await bobs.take(OTHER, DrainClaim("bob@b", 0))
        return await asyncio.to_thread(run, "bookie", "drain", LIVE, OTHER, "--leave-writable", "--yes", "-o", "json")

    answer = asyncio.run(main())
    assert (answer.code, "being drained by bob@b" in answer.error()["message"]) == (5, True)
    claims = on(tree, lambda store: DrainClaims(store, ROOT).all())
    assert {bookie: claim.by for bookie, claim in claims.items()} == {OTHER: "bob@b"}


class ComesBack(MemoryStore):
    """A store in which a bookie registers when its cookie is looked at, until now down."""

    async def get(self, path: str) -> Node:
        if path.endswith(f"/cookies/{BACK}"):
            await BookieRegistry(MemoryStore(self.tree), ROOT).register(BACK, BookieServiceInfo())
        return await super().get(path)


def test_a_bookie_that_runs_again_keeps_its_cookie(
    tree: MemoryTree, run: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    on(tree, lambda store: BookieRegistry(store, ROOT).create_cookie(Cookie(BACK, ("/j",), ("/l",))))
    with monkeypatch.context() as patch:
        patch.setattr("tests.command_line.MemoryStore", ComesBack)
        answer = run("bookie", "decommission", BACK, "--yes", "-o", "json")
    assert (answer.code, "is running again" in answer.stderr) == (1, True), answer.stderr
    assert BACK in on(tree, lambda store: BookieRegistry(store, ROOT).known())


def test_nothing_is_copied_to_a_bookie_that_is_drained(tree: MemoryTree, run: Callable[..., Answer]) -> None:
    on(tree, lambda store: DrainClaims(store, ROOT).take(LIVE, DrainClaim("bob@b", 0)))
    answer = run("bookie", "recover", DOWN, "--to", LIVE, "--yes", "-o", "json")
    assert (answer.code, "being drained by bob@b" in answer.error()["message"]) == (3, True)
    steps = run("bookie", "recover", DOWN, "--dry-run", "-o", "json").json()["plan"]["steps"]
    assert any("no other writable bookie" in step for step in steps)


def test_what_a_plan_says(run: Callable[..., Answer]) -> None:
    plan = run("bookie", "recover", DOWN, "--rate", "1kB", "--dry-run", "-o", "json").json()["plan"]
    assert plan["summary"].startswith(f"recover {DOWN}: copy the entries of 3 ledgers to other bookies, 1 of them open")
    words = "\n".join(plan["steps"])
    assert f"ledger 3: 1 fragments, about 10 entries: {DOWN} → {LIVE}" in words
    assert "ledger 7: fence and close it" in words
    assert f"read from {OTHER} (2.0 KiB)" in words
    assert f"copy to {LIVE} (2.0 KiB)" in words
    assert "about 2 s for the closed ledgers at 1000 B/s (--rate)" in words
    plan = run("bookie", "recover", DOWN, "--skip-open", "--dry-run", "-o", "json").json()["plan"]
    assert "ledger 7 is skipped: it is open" in plan["steps"]
    assert any("duration unknown" in step for step in plan["steps"])
    assert run("bookie", "decommission", LIVE, "--yes").code == 3, "it runs"


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50000000", 5e7), ("50MB", 5e7), ("64MiB/s", 64 * 2**20), ("1.5 kB", 1500.0), ("2G", 2e9)],
)
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "fast", "-5", "5XB", "1e9"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(UsageError):
        parse_rate(text)

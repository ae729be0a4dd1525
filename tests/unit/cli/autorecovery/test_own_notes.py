"""`bkctl autorecovery …` with what bkctl keeps beside Java's nodes: pauses, requests, results, workers, losses."""

from __future__ import annotations

import pytest
from bkrecovery.eta import bytes_to_copy, estimate
from bkrecovery.lost import next_note
from hypothesis import given
from hypothesis import strategies as st

from bkctl.cli.autorecovery._notes import parse_duration
from bkctl.codec.recovery_notes import AuditorNote, CheckName, CheckResult, Finding, LedgerNote, WorkerNote
from bkctl.errors import UsageError
from bkctl.meta.election import Election
from bkctl.meta.memory import MemoryTree
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.meta.recovery_switch import RecoverySwitch
from bkctl.meta.underreplication import Underreplication
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.model.placement import holds
from tests.command_line import bkctl
from tests.unit.cli.autorecovery.test_verbs import B, on
from tests.unit.cli.autorecovery.test_verbs import tree as tree

WORKER = WorkerNote("b9:3181", "host9", 9, 2_500_000, 7, 1, 2, (LedgerNote(5, "copying", 1_700_000_000_000),))


def a_worker(tree: MemoryTree) -> None:
    on(tree, lambda queue: RecoveryBoard(queue.store, queue.root).publish("w", WORKER))


def an_auditor(tree: MemoryTree, *, ours: bool) -> None:
    async def win(queue: Underreplication) -> None:
        await Election(queue.store, queue.root).win(BookieId("b9:3181"))
        if ours:
            await RecoveryBoard(queue.store, queue.root).announce(AuditorNote("b9:3181", 1))

    on(tree, win)


def json_of(tree: MemoryTree, *arguments: str | int, code: int = 0) -> dict[str, object]:
    answer = bkctl("autorecovery", *arguments, "-o", "json", tree=tree)
    assert answer.code == code, answer.stderr
    found: dict[str, object] = answer.json()
    return found


# -- the switch ----------------------------------------------------------------------------------------------------


def test_disable_and_enable_keep_a_reason(tree: MemoryTree) -> None:
    json_of(tree, "disable", "--reason", "new switches", "--yes")
    item = json_of(tree, "status")
    assert (item["enabled"], item["reason"], item["until"]) == (False, "new switches", None)
    assert str(item["by"]).startswith("unknown@")
    assert json_of(tree, "disable", "--reason", "me too", "--yes")["reason"] == "new switches"
    assert json_of(tree, "enable", "--reason", "done", "--yes")["changed"] is True
    assert json_of(tree, "status")["reason"] == "done"
    on(tree, lambda queue: queue.disable())  # Java's shell
    item = json_of(tree, "status")
    assert (item["enabled"], item["reason"], item["by"]) == (False, None, None)
    assert json_of(tree, "enable", "--yes")["changed"] is True


def test_a_pause_that_nobody_would_end_is_refused(tree: MemoryTree) -> None:
    pause = ("pause", "--for", "30m", "--reason", "restarts", "--yes")
    assert bkctl("autorecovery", *pause, tree=tree).code == 3
    a_worker(tree)
    item = json_of(tree, *pause)
    assert (item["enabled"], item["changed"], item["reason"]) == (False, True, "restarts")
    since, until = item["since_ms"], item["until_ms"]
    assert isinstance(since, int)
    assert isinstance(until, int)
    assert 1_700_000 < until - since <= 1_800_000
    assert json_of(tree, *pause)["changed"] is True  # with a new end
    assert json_of(tree, "resume", "--yes")["enabled"] is True
    assert json_of(tree, "resume", "--yes")["changed"] is False
    json_of(tree, "disable", "--yes")
    assert bkctl("autorecovery", "resume", "--yes", tree=tree).code == 3  # that is not a pause
    assert bkctl("autorecovery", *pause, tree=tree).code == 3


def test_pause_wait_ends_it(tree: MemoryTree) -> None:
    item = json_of(tree, "pause", "--for", "1s", "--reason", "a moment", "--wait", "--yes")
    assert (item["enabled"], item["reason"]) == (True, "the pause has expired: a moment")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1d12h", 129_600)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0m", "soon", "-5m", "5 m", "31d", "m5", "1m1h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="duration"):
        parse_duration(text)


# -- requests and results ------------------------------------------------------------------------------------------


def test_trigger_reaches_only_an_auditor_of_ours(tree: MemoryTree) -> None:
    trigger = ("trigger", "--check", "replicas", "--yes")
    assert bkctl("autorecovery", *trigger, tree=tree).code == 6  # there is none
    an_auditor(tree, ours=False)
    assert bkctl("autorecovery", *trigger, tree=tree).code == 3  # Java's cannot
    assert bkctl("autorecovery", "check", "all", "--wait", "--yes", tree=tree).code == 3
    assert json_of(tree, "trigger", "--yes")["request"] is None  # but this it can
    assert json_of(tree, "auditor")["takes_requests"] is False


def test_a_triggered_check_waits_for_the_auditor(tree: MemoryTree) -> None:
    an_auditor(tree, ours=True)
    item = json_of(tree, "trigger", "--check", "replicas", "--yes")
    pending = on(tree, lambda queue: RecoveryBoard(queue.store, queue.root).pending())
    assert [(name, request.check) for name, request in pending.items()] == [(item["request"], CheckName.REPLICAS)]
    assert json_of(tree, "auditor")["takes_requests"] is True
    assert bkctl("autorecovery", "trigger", "--check", "everything", tree=tree).code == 2
    json_of(tree, "disable", "--yes")
    assert bkctl("autorecovery", "trigger", "--check", "all", "--yes", tree=tree).code == 3


def test_check_here_keeps_its_result(tree: MemoryTree) -> None:
    assert bkctl("autorecovery", "check", "bookies", "--last", tree=tree).code == 4
    assert json_of(tree, "check", "bookies", "--yes", code=1)["marked"] == 1
    item = json_of(tree, "check", "bookies", "--last")
    assert (item["marked"], item["findings"]) == (1, [{"ledger_id": 6, "text": f"lost {B[0]}"}])
    assert "manual" in str(item["by"])
    json_of(tree, "check", "placement", "--yes")
    assert bkctl("autorecovery", "check", "--last", "-o", "name", tree=tree).stdout.split() == ["bookies", "placement"]
    checks = json_of(tree, "status")["checks"]
    assert isinstance(checks, list)
    assert [check["check"] for check in checks] == ["bookies", "placement"]
    assert bkctl("autorecovery", "check", "--yes", tree=tree).code == 2
    json_of(tree, "disable", "--yes")
    assert bkctl("autorecovery", "check", "all", "--yes", tree=tree).code == 3


def test_check_last_shows_what_was_found(tree: MemoryTree) -> None:
    result = CheckResult(
        CheckName.REPLICAS, "b1", 1, 2, {"no_replica": 1}, (Finding(6, "entry 3 is nowhere"),), 5, "why"
    )
    on(tree, lambda queue: RecoveryBoard(queue.store, queue.root).keep(result))
    item = json_of(tree, "check", "replicas", "--last")
    assert (item["figures"], item["findings_count"], item["error"]) == ({"no_replica": 1}, 5, "why")


# -- workers, lost entries, eta ------------------------------------------------------------------------------------


def test_workers_with_and_without_words_of_their_own(tree: MemoryTree) -> None:
    on(tree, lambda queue: queue.lock(2**33, "javahost"))

    async def ours(queue: Underreplication) -> None:
        await queue.lock(5, "host9")
        await RecoveryBoard(queue.store, queue.root).publish("w", WORKER)

    on(tree, ours)
    rows = bkctl("autorecovery", "workers", "-o", "jsonl", tree=tree).rows()
    assert [(r["owner"], r["worker"], r["mb_per_s"], r["ledgers"]) for r in rows] == [
        ("host9", "b9:3181", 2.5, [5]),
        ("javahost", None, None, [2**33]),
    ]
    assert rows[0]["states"][0]["state"] == "copying"
    assert rows[0]["since_ms"] == 1_700_000_000_000


def test_an_idle_worker_is_listed(tree: MemoryTree) -> None:
    a_worker(tree)
    (row,) = bkctl("autorecovery", "workers", "-o", "jsonl", tree=tree).rows()
    assert (row["owner"], row["worker"], row["count"]) == ("host9", "b9:3181", 0)


def test_lost_entries_are_listed_shown_and_forgotten(tree: MemoryTree) -> None:
    async def lose(queue: Underreplication) -> None:
        board = RecoveryBoard(queue.store, queue.root)
        await board.note_lost(next_note(None, 5, [7, 8], "b0: no_entry", "b9:3181", 1_700_000_000_123))

    on(tree, lose)
    (row,) = bkctl("autorecovery", "queue", "list", "--lost", "-o", "jsonl", tree=tree).rows()
    assert row["ledger_id"] == 5
    assert bkctl("autorecovery", "queue", "list", "--not-lost", "-o", "name", tree=tree).stdout == f"{2**33}\n"
    lost = json_of(tree, "queue", "show", 5)["lost"]
    assert isinstance(lost, dict)
    assert (lost["entries"], lost["reason"], lost["tries"]) == ([7, 8], "b0: no_entry", 1)
    assert lost["next_ms"] - lost["last_ms"] == 300_000
    assert json_of(tree, "status")["lost"] == 1
    bkctl("autorecovery", "queue", "requeue", 5, "--yes", tree=tree)
    assert json_of(tree, "queue", "show", 5)["lost"] is None
    on(tree, lose)
    bkctl("autorecovery", "queue", "purge", 5, "--yes", tree=tree)
    assert json_of(tree, "status")["lost"] == 0


def test_overdue_by_the_configuration(tree: MemoryTree, tmp_path_factory: pytest.TempPathFactory) -> None:
    conf = tmp_path_factory.mktemp("conf") / "bk.conf"
    conf.write_text("underreplicatedLedgerRecoveryGracePeriod=60\n")
    assert json_of(tree, "status")["overdue"] is None
    assert json_of(tree, "status", "-c", str(conf))["overdue"] == 2


def test_eta(tree: MemoryTree) -> None:
    item = json_of(tree, "eta", "--watch", 0)
    # ledger 5 lost one of three bookies, 2**33 two: 10 entries of 10 bytes, each on two of three bookies
    assert (item["queued"], item["bytes"], item["seconds"]) == (2, 200, None)
    a_worker(tree)
    assert json_of(tree, "eta")["seconds"] == 0.0  # 2.5 MB/s
    json_of(tree, "disable", "--yes")
    item = json_of(tree, "eta")
    assert (item["seconds"], item["reason"]) == (None, "auto recovery is disabled")


ESTIMATES = [
    # ledgers, bytes, unknown, bytes/s, ledgers/s, enabled → seconds, reason
    (0, 0, 0, 0.0, 0.0, True, 0.0, "the queue is empty"),
    (5, 1000, 0, 0.0, 0.0, False, None, "auto recovery is disabled"),
    (5, 1000, 0, 0.0, 0.0, True, None, "no worker is copying now"),
    (5, 1000, 0, 100.0, 0.0, True, 10.0, "by bytes"),
    (10, 1000, 5, 100.0, 0.0, True, 20.0, "by bytes; ledgers of unknown size with the average size"),
    (10, 0, 10, 100.0, 2.0, True, 5.0, "by ledgers"),
    (10, 1000, 0, 0.0, 2.0, True, 5.0, "by ledgers"),
]


@pytest.mark.parametrize(
    ("ledgers", "size", "unknown", "bytes_s", "ledgers_s", "enabled", "seconds", "reason"), ESTIMATES
)
def test_estimates(
    ledgers: int, size: int, unknown: int, bytes_s: float, ledgers_s: float, enabled: bool, seconds: float, reason: str
) -> None:
    found = estimate(ledgers, size, unknown, bytes_s, ledgers_s, enabled=enabled)
    assert (found.seconds, found.reason) == (seconds, reason)


@given(st.integers(1, 6), st.data())
def test_bytes_to_copy_are_those_that_the_lost_ones_stored(size: int, data: st.DataObject) -> None:
    quorum = data.draw(st.integers(1, size))
    rounds, entry_size = data.draw(st.integers(1, 5)), 10
    count = rounds * size  # whole rounds, where the estimate is exact
    bookies = tuple(BookieId(f"b{i}") for i in range(size))
    metadata = LedgerMetadata(size, quorum, 1, (Ensemble(EntryId(0), bookies),)).closed_at(
        count - 1, count * entry_size
    )
    missing = data.draw(st.sets(st.sampled_from(bookies), min_size=1))
    stored = sum(holds(e, i, size, quorum) for e in range(count) for i in range(size) if bookies[i] in missing)
    assert bytes_to_copy(metadata, missing) == stored * entry_size
    assert bytes_to_copy(metadata, ()) is None


def test_a_pause_shows_its_end_while_it_lasts(tree: MemoryTree) -> None:
    async def pause(queue: Underreplication) -> None:
        from bkctl.world import SystemClock

        clock = SystemClock()
        await RecoverySwitch(queue.store, queue.root, clock).turn_off("me", "old", clock.now_ms() - 5)

    on(tree, pause)
    item = json_of(tree, "status")
    assert (item["enabled"], item["reason"]) == (False, "old")  # a command that reads ends nothing
    assert item["until"] is not None

"""What the verbs of `bkctl autorecovery` share: durations, names of checks, the form of the switch and of results."""

from __future__ import annotations

import pytest

from bkctl.cli.autorecovery._notes import lost_item, parse_check, parse_duration, result_item, switch_item
from bkctl.codec.recovery_notes import CheckName, CheckResult, Finding, LostNote
from bkctl.errors import UsageError
from bkctl.meta.memory import MemoryTree
from bkctl.meta.recovery_switch import RecoverySwitch
from bkctl.meta.underreplication import Underreplication
from tests.unit.cli.autorecovery.recovery_tree import FixedClock, json_of, on


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), (" 90 ", 90), ("30m", 1800), ("2h", 7200), ("1d12h", 129_600), ("30d", 2_592_000)],
)
def test_a_duration_is_parsed_to_seconds(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0m", "soon", "-5m", "5 m", "31d", "m5", "1m1h"])
def test_a_text_that_is_not_a_duration_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="duration"):
        parse_duration(text)


def test_a_check_is_parsed_by_its_name() -> None:
    assert [parse_check(str(check)) for check in CheckName] == list(CheckName)
    with pytest.raises(UsageError, match="'everything' is not a valid check") as caught:
        parse_check("everything")
    assert caught.value.hint == ", ".join(CheckName)


def test_a_switch_turned_off_by_java_has_no_reason_and_no_user(tree: MemoryTree) -> None:
    on(tree, lambda queue: queue.disable())

    async def item(queue: Underreplication) -> dict[str, object]:
        return switch_item(await RecoverySwitch(queue.store, queue.root, FixedClock()).state())

    assert on(tree, item) == {
        "enabled": False, "until": None, "until_ms": None, "reason": None, "by": None, "since": None, "since_ms": None,
    }  # fmt: skip


def test_the_user_is_unknown_where_the_environment_has_none(tree: MemoryTree) -> None:
    json_of(tree, "disable", "--yes")
    assert json_of(tree, "status")["by"].startswith("unknown@")


def test_a_result_item_takes_its_fields_from_the_statistics() -> None:
    figures = {"marked": 2, "ledgers": 10, "lost_bookies": 1}
    result = CheckResult(CheckName.BOOKIES, "b1:3181", 1_000, 3_500, figures, (Finding(6, "lost b0"),), 1, None)
    item = result_item(result)
    assert (item["check"], item["by"], item["seconds"]) == ("bookies", "b1:3181", 2.5)
    assert (item["marked"], item["ledgers_checked"], item["lost_bookies"], item["broken_ledgers"]) == (2, 10, 1, 0)
    assert (item["started"], item["ended_ms"]) == ("1970-01-01T00:00:01.000Z", 3_500)
    assert item["findings"] == [{"ledger_id": 6, "text": "lost b0"}]


def test_a_check_that_does_not_count_lost_bookies_has_null() -> None:
    item = result_item(CheckResult(CheckName.REPLICAS, "b1", 1, 2, {}, (), 0, "why"))
    assert (item["lost_bookies"], item["marked"], item["error"]) == (None, 0, "why")


def test_a_lost_item_has_times_in_both_forms() -> None:
    note = LostNote(5, 0, 1_000, 1, 301_000, "w", "b0: no_entry", (7, 8), 2)
    item = lost_item(note)
    assert (item["entries"], item["entries_count"], item["reason"], item["tries"]) == ([7, 8], 2, "b0: no_entry", 1)
    assert (item["last"], item["next_ms"]) == ("1970-01-01T00:00:01.000Z", 301_000)

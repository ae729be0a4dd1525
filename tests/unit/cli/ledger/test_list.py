"""`ledger list`: the ledgers of a cluster, by id."""

from __future__ import annotations

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.unit.cli.ledger.metadata import break_ledger


def test_ledgers_are_listed_by_id_and_filtered(tree: MemoryTree) -> None:
    assert bkctl("ledger", "list", "-o", "name", tree=tree).stdout.split() == ["7", "12345", str(2**40)]
    assert [i["state"] for i in bkctl("ledger", "list", "-o", "jsonl", tree=tree).rows()] == ["CLOSED", "OPEN", "OPEN"]
    assert bkctl("ledger", "list", tree=tree).stdout.split()[0] == "ledger_id"
    assert bkctl("ledger", "list", "--state", "closed", "-o", "name", tree=tree).stdout == "7\n"
    assert bkctl("ledger", "list", "--bookie", "b3:3181", "-o", "name", tree=tree).stdout == "7\n"
    assert bkctl("ledger", "list", "--state", "shut", tree=tree).code == 2


def test_a_corrupt_record_is_a_warning_and_exit_1(tree: MemoryTree) -> None:
    break_ledger(tree, "/ledgers/00/0000/L0008")
    answer = bkctl("ledger", "list", "-o", "json", tree=tree)
    assert answer.code == 1
    assert [i["ledger_id"] for i in answer.json()["items"]] == [7, 12345, 2**40]
    assert len(answer.json()["warnings"]) == 1
    assert bkctl("ledger", "show", 8, tree=tree).code == 8


def test_a_store_without_a_cluster_is_not_found() -> None:
    for output in ("table", "json", "tsv", "name"):
        answer = bkctl("ledger", "list", "-o", output, tree=MemoryTree())
        assert (answer.code, answer.stdout) == (4, "")


def test_a_uri_that_contradicts_the_layout_is_a_usage_error(tree: MemoryTree) -> None:
    for manager, code in (("zk+flat", 2), ("zk+hierarchical", 0), ("zk+null", 0)):
        assert bkctl("-m", f"{manager}://h:1/ledgers", "ledger", "list", tree=tree).code == code
    assert bkctl("-m", "etcd://h:1/ledgers", "ledger", "list", tree=tree).code == 2

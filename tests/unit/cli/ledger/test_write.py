"""`ledger write`: lines and records of stdin become entries."""

from __future__ import annotations

from tests.unit.cli.topic.live import Live

SIZES = ("--ensemble-size", 2, "--write-quorum-size", 2, "--ack-quorum-size", 2)
NEW = ("ledger", "write", "--new", *SIZES)


def test_each_line_of_stdin_is_an_entry_and_the_ledger_is_closed(live: Live) -> None:
    done = live.bkctl(*NEW, "--yes", "-o", "json", stdin=b"one\n\nthree")
    assert done.code == 0, done.stderr
    item = done.json()
    ledger_id = item.pop("ledger_id")
    assert item == {
        "entries": 3, "first_entry_id": 0, "last_entry_id": 2, "length": 8, "state": "CLOSED", "closed": True,
    }  # fmt: skip
    assert f"ledger {ledger_id}: 3 entries, 8 bytes, closed" in done.stderr
    assert live.bkctl("ledger", "read", ledger_id, "--raw", "--length-prefixed").raw == (
        b"\0\0\0\x03one" + b"\0\0\0\0" + b"\0\0\0\x05three"
    )


def test_ids_of_entries_are_printed_as_they_are_confirmed(live: Live) -> None:
    rows = live.bkctl(*NEW, "--yes", "-o", "jsonl", stdin=b"a\nb\n").rows()
    assert [row["entry_id"] for row in rows] == [0, 1]
    assert len({row["ledger_id"] for row in rows}) == 1
    assert live.bkctl(*NEW, "--yes", "-o", "name", stdin=b"a\nb\n").stdout == "0\n1\n"
    assert live.bkctl(*NEW, "--yes", stdin=b"a\n").stdout.split()[:2] == ["ledger_id", "entry_id"]


def test_records_with_their_length_are_entries_and_a_torn_one_leaves_the_ledger_open(live: Live) -> None:
    whole = b"\0\0\0\x02ab" + b"\0\0\0\0"
    done = live.bkctl(*NEW, "--length-prefixed", "--yes", "-o", "json", stdin=whole).json()
    assert (done["entries"], done["length"], done["closed"]) == (2, 2, True)
    torn = live.bkctl(*NEW, "--length-prefixed", "--yes", "-o", "json", stdin=whole + b"\0\0\0\x09x")
    assert (torn.code, torn.stdout, torn.error()["kind"]) == (8, "", "torn_tail")
    (note,) = [line for line in torn.stderr.splitlines() if "stays open" in line]
    ledger_id = note.split()[1]
    assert live.bkctl("ledger", "show", ledger_id, "-o", "json").json()["state"] == "OPEN"


def test_a_ledger_is_left_open_on_request_and_gets_no_second_writer(live: Live) -> None:
    done = live.bkctl(*NEW, "--leave-open", "--yes", "-o", "json", stdin=b"a\n").json()
    assert (done["state"], done["closed"]) == ("OPEN", False)
    again = live.bkctl("ledger", "write", done["ledger_id"], "--yes", "-o", "json", stdin=b"b\n")
    assert (again.code, again.stdout, again.error()["kind"]) == (3, "", "refused")
    assert "use --new" in again.error()["hint"]


def test_the_first_writer_of_a_created_ledger_writes_it_with_its_password(live: Live) -> None:
    made = live.bkctl("ledger", "create", *SIZES, "--digest", "MAC", "--password", "p", "--yes", "-o", "json").json()
    assert "bkctl-unclaimed" in made["custom_metadata"]
    write = ("ledger", "write", made["ledger_id"], "--yes", "-o", "json")
    wrong = live.bkctl(*write, "--password", "wrong", stdin=b"a\n")
    assert (wrong.code, wrong.stdout) == (7, "")
    other = live.bkctl("ledger", "create", *SIZES, "--password", "p", "--yes", "-o", "json").json()["ledger_id"]
    done = live.bkctl("ledger", "write", other, "--password", "p", "--yes", "-o", "json", stdin=b"a\n")
    assert (done.code, done.json()["entries"]) == (0, 1), done.stderr
    assert live.bkctl("ledger", "show", other, "-o", "json").json()["custom_metadata"] == {}


def test_an_unused_id_becomes_a_new_ledger(live: Live) -> None:
    done = live.bkctl("ledger", "write", 70_001, *SIZES, "--yes", "-o", "json", stdin=b"a\n")
    assert (done.code, done.json()["ledger_id"]) == (0, 70_001), done.stderr


def test_nothing_is_written_without_confirmation_or_in_a_dry_run(live: Live) -> None:
    before = live.bkctl("ledger", "list", "-o", "name").stdout
    refused = live.bkctl(*NEW, stdin=b"a\n")
    assert (refused.code, refused.stdout) == (3, "")
    plan = live.bkctl(*NEW, "--dry-run", "-o", "json", stdin=b"a\n").json()["plan"]
    assert plan["summary"].startswith("write stdin to a new ledger (ensemble 2, write quorum 2, ack quorum 2")
    assert plan["steps"][-1] == "close it at the end of input"
    assert live.bkctl("ledger", "list", "-o", "name").stdout == before


def test_a_ledger_id_and_new_exclude_each_other(live: Live) -> None:
    for arguments in (("--new", 5), ()):
        wrong = live.bkctl("ledger", "write", *arguments, "--yes")
        assert (wrong.code, wrong.stdout) == (2, "")


def test_more_bookies_than_are_registered_are_unavailable(live: Live) -> None:
    answer = live.bkctl("ledger", "write", "--new", "--yes", "-o", "json", stdin=b"a\n")
    assert (answer.code, answer.stdout, answer.error()["retryable"]) == (6, "", True)

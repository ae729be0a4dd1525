"""`ledger read`: entries with their digests checked, without fencing."""

from __future__ import annotations

import base64

import pytest

from bkctl.model.ledger import DigestType
from tests.unit.cli.topic.live import Live

PAYLOADS = [b"zero", b"", b"two"]


@pytest.fixture(scope="module")
def ledger(live: Live) -> int:
    return live.ledger(PAYLOADS)


def test_an_entry_has_its_fields(live: Live, ledger: int) -> None:
    items = live.bkctl("ledger", "read", ledger, "-o", "json").json()["items"]
    assert [base64.b64decode(item.pop("payload")) for item in items] == PAYLOADS
    assert items[2] == {
        "ledger_id": ledger, "entry_id": 2, "last_confirmed": items[2]["last_confirmed"], "length": 7,
        "payload_size": 3, "digest_ok": True,
    }  # fmt: skip


def test_a_range_is_read_as_rows_names_and_bytes(live: Live, ledger: int) -> None:
    read = ("ledger", "read", f"{ledger:#x}", "--from", 1, "--to", 2)
    assert [row["entry_id"] for row in live.bkctl(*read, "-o", "jsonl").rows()] == [1, 2]
    assert live.bkctl(*read, "-o", "name").stdout == "1\n2\n"
    assert live.bkctl(*read, "--raw").raw == b"two"
    assert live.bkctl(*read, "--raw", "--length-prefixed").raw == b"\0\0\0\0" + b"\0\0\0\x03two"
    head, *lines = live.bkctl(*read).stdout.splitlines()
    assert head.split() == ["entry_id", "payload_size", "digest_ok", "payload"]
    assert [line.split()[0] for line in lines if line[0].isdigit()] == ["1", "2"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--from", 3), 4),
        (("--to", 3), 4),
        (("--from", 2, "--to", 1), 2),
        (("--length-prefixed",), 2),
        (("--password", "a", "--password-file", "b"), 2),
    ],
)
def test_a_wrong_range_prints_one_line_on_stderr(
    live: Live, ledger: int, options: tuple[str | int, ...], code: int
) -> None:
    answer = live.bkctl("ledger", "read", ledger, *options)
    assert (answer.code, answer.stdout) == (code, "")
    assert [line.partition(": ")[0] for line in answer.stderr.splitlines()] in (["error"], ["error", "hint"])


def test_a_ledger_that_does_not_exist_is_not_found(live: Live) -> None:
    answer = live.bkctl("ledger", "read", 999_999, "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (4, "", "no_such_ledger")


def test_an_open_ledger_is_read_to_its_last_confirmed_entry_and_stays_open(live: Live) -> None:
    ledger_id = live.ledger(PAYLOADS, close=False)
    assert live.bkctl("ledger", "read", ledger_id, "-o", "name").stdout == "0\n1\n2\n"
    after = live.bkctl("ledger", "read", ledger_id, "--from", 3, "-o", "json")
    assert (after.code, "bkctl ledger tail" in after.error()["hint"]) == (4, True)
    assert live.bkctl("ledger", "show", ledger_id, "-o", "json").json()["state"] == "OPEN"


def test_an_empty_ledger_has_no_rows(live: Live) -> None:
    ledger_id = live.ledger([])
    answer = live.bkctl("ledger", "read", ledger_id, "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])
    assert live.bkctl("ledger", "read", ledger_id, "--raw").raw == b""


def test_a_wrong_password_is_unauthorized(live: Live) -> None:
    ledger_id = live.ledger([b"x"], digest_type=DigestType.HMAC, password=b"p")
    read = ("ledger", "read", ledger_id, "-o", "json")
    wrong = live.bkctl(*read, "--password", "q")
    assert (wrong.code, wrong.stdout, wrong.error()["kind"]) == (7, "", "unauthorized")
    assert live.bkctl(*read, environ={"BKCTL_LEDGER_PASSWORD": "p"}).json()["items"][0]["digest_ok"] is True
    file = live.home / "password"
    file.write_bytes(b"p\r\n")
    assert live.bkctl(*read, "--password-file", file).code == 0

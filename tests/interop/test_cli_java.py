"""`bkctl ledger …` on a cluster of Java bookies; Java's client on what it leaves, and the reverse."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from tests.interop.java_cluster import JavaCluster, payload, running

pytestmark = [pytest.mark.java, pytest.mark.slow]
DIGESTS = ["CRC32C", "CRC32", "MAC", "DUMMY"]
QUORUMS = [(3, 2, 2), (5, 3, 2), (5, 3, 2), (3, 2, 2)]
"""One for each digest."""
SIZE = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    yield from running(5)


def records(ledger_id: int, count: int) -> bytes:
    """Length-prefixed payloads such as Java's client checks them."""
    return b"".join(SIZE.to_bytes(4, "big") + payload(ledger_id, n, SIZE) for n in range(count))


def sizes(e: int, qw: int, qa: int) -> list[object]:
    return ["--ensemble-size", e, "--write-quorum-size", qw, "--ack-quorum-size", qa]


@pytest.mark.parametrize(("digest", "quorums"), list(zip(DIGESTS, QUORUMS, strict=True)), ids=str)
def test_java_reads_what_we_wrote(cluster: JavaCluster, digest: str, quorums: tuple[int, int, int]) -> None:
    options = [*sizes(*quorums), "--digest", digest, "--password", "pw", "--yes"]
    ledger = cluster.bkctl_json("ledger", "create", *options)["ledger_id"]
    written = cluster.bkctl_json(
        "ledger", "write", ledger, "--length-prefixed", "--password", "pw", "--yes", stdin=records(ledger, 300)
    )
    assert (written["entries"], written["state"]) == (300, "CLOSED")
    read = cluster.client("read", f"--ledger={ledger}", f"--digest={digest}", "--password=pw", "--recover=false")
    assert (read["entries"], read["wrong"], read["closed"]) == (300, 0, True)


@pytest.mark.parametrize(("digest", "quorums"), list(zip(DIGESTS, QUORUMS, strict=True)), ids=str)
def test_we_read_what_java_wrote(cluster: JavaCluster, digest: str, quorums: tuple[int, int, int]) -> None:
    e, qw, qa = quorums
    wrote = cluster.client(
        *("write", "--entries=300", f"--size={SIZE}", f"--e={e}", f"--qw={qw}", f"--qa={qa}"),
        *(f"--digest={digest}", "--password=pw"),
    )
    ledger = wrote["ledger"]
    shown = cluster.bkctl_json("ledger", "show", ledger)
    names = ("ensemble_size", "write_quorum_size", "ack_quorum_size", "digest_type", "state", "last_entry_id", "length")
    assert [shown[n] for n in names] == [e, qw, qa, digest, "CLOSED", 299, 300 * SIZE]
    done = cluster.bkctl("ledger", "read", ledger, "--password", "pw", "-o", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [base64.b64decode(r["payload"]) for r in rows] == [payload(ledger, n, SIZE) for n in range(300)]
    assert cluster.bkctl("ledger", "read", ledger, "--password", "no").returncode == 7


def test_reading_leaves_a_java_writers_ledger_as_it_is_and_recovering_closes_it(cluster: JavaCluster) -> None:
    ledger = cluster.client(
        "write", "--entries=250", f"--size={SIZE}", "--e=3", "--qw=3", "--qa=2", "--password=pw", "--end=halt"
    )["ledger"]
    before = cluster.bkctl_json("ledger", "show", ledger)
    assert before["state"] == "OPEN"
    entries = cluster.bkctl_json("ledger", "read", ledger, "--password", "pw")["items"]
    assert [base64.b64decode(e["payload"]) for e in entries] == [payload(ledger, n, SIZE) for n in range(len(entries))]
    assert cluster.bkctl_json("ledger", "show", ledger) == before
    assert cluster.bkctl_json("ledger", "fence", ledger, "--yes")["state"] == "IN_RECOVERY"
    assert cluster.bkctl_json("ledger", "recover", ledger, "--yes")["last_entry_id"] == 249
    read = cluster.client("read", f"--ledger={ledger}", "--password=pw", "--recover=false")
    assert (read["entries"], read["wrong"], read["closed"]) == (250, 0, True)


@pytest.mark.parametrize("end", ["close", "halt"])
def test_java_reads_a_ledger_that_was_deleted_and_restored(cluster: JavaCluster, end: str) -> None:
    written = ("write", "--entries=250", f"--size={SIZE}", "--e=3", "--qw=2", "--qa=2", "--password=pw")
    ledger = cluster.client(*written, *(() if end == "close" else ("--end=halt",)))["ledger"]
    before = cluster.bkctl_json("ledger", "show", ledger)
    backup = cluster.bkctl_json("ledger", "delete", ledger, "--yes")["backup"]
    assert cluster.bkctl("ledger", "show", ledger).returncode == 4
    assert cluster.bkctl_json("ledger", "undelete", backup, "--yes")["restored"]
    after = cluster.bkctl_json("ledger", "show", ledger)
    fresh = {name: after[name] for name in ("ctime", "ctime_ms", "metadata_version")}  # the node's
    assert after == before | fresh
    recover = "false" if end == "close" else "true"
    read = cluster.client("read", f"--ledger={ledger}", "--password=pw", f"--recover={recover}")
    assert (read["entries"], read["wrong"]) == (250, 0)


def test_the_list_is_javas_list(cluster: JavaCluster) -> None:
    ours = cluster.bkctl("ledger", "list", "-o", "name").stdout.decode().split()
    javas = [word for line in cluster.shell("listledgers").splitlines() for word in line.split() if word.isdigit()]
    assert ours
    assert [int(name) for name in ours] == sorted(int(name) for name in javas)

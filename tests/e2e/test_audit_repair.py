"""Audit, repair, audit again: a running cluster of ours, bytes changed, index rows gone, a bookie lost; then clean."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from bkinspect.audit.schemas import INDEX
from bkinspect.audit.sources.index import IndexReader
from rocksdict import Options, Rdict

from bkctl.codec.ledger_index import location_key
from tests.e2e.local import Local, end
from tests.interop.auto_recovery import wait_for

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]
ENTRIES = 200
SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss2m",
}
CHECKS = ("missing-copies", "digests", "lost-bookies")
AUDIT_S = 600
"""Most of it is Spark's own start; on a machine that does ten things at once it has taken three minutes."""
QUEUE_S = 120


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    local = Local(tmp_path)
    local.run("dev", "up", "--bookies", 4, "--dir", local.home / "cluster")
    try:
        yield local
    finally:
        local.run("dev", "down", "--delete", "--yes")


def audit(local: Local, name: str, code: int) -> list[dict[str, Any]]:
    """Runs the audit; its exit code has to be this one."""
    settings = [word for key, value in SETTINGS.items() for word in ("--spark-conf", f"{key}={value}")]
    checks = [word for check in CHECKS for word in ("--check", check)]
    done = subprocess.run(
        local.command("audit", "run", "--to", local.home / name, *settings, *checks, "-o", "jsonl"),
        capture_output=True,
        timeout=AUDIT_S,
        env=dict(local.environ),
    )
    assert done.returncode == code, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def damage(home: Path, ledger_id: int) -> None:
    """Of a stopped bookie: turns a byte of entry 7's payload, and takes the rows of 20 to 22 out of the index."""
    reader = IndexReader(INDEX, {"paths": str(home), "ledgers": str(ledger_id)})
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    places = {row["entry_id"]: row for row in rows}
    assert len(places) == ENTRIES
    with Path(places[7]["file"]).open("r+b") as log:
        log.seek(places[7]["offset"] + 40)
        byte = log.read(1)
        log.seek(places[7]["offset"] + 40)
        log.write(bytes((byte[0] ^ 1,)))
    database = Rdict(places[7]["index"], Options(raw_mode=True))
    for entry_id in (20, 21, 22):
        del database[location_key(ledger_id, entry_id)]
    database.close()


def test_what_an_audit_finds_is_repaired_and_the_next_one_finds_nothing(local: Local) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(ENTRIES))
    options = ("ledger", "write", "--new", "--yes", "--ensemble-size", 3, "--write-quorum-size", 3)
    ledger_id = int(local.json(*options, stdin=lines)["ledger_id"])
    bookies = local.json("ledger", "show", ledger_id)["ensembles"][0]["bookies"]
    hurt, _, lost = bookies
    numbers = {row["bookie_id"]: row["number"] for row in local.json("dev", "status")}
    local.run("dev", "stop", "bookie", numbers[hurt])
    damage(local.home / "cluster" / f"bookie-{numbers[hurt]}", ledger_id)
    local.run("dev", "start", "bookie", numbers[hurt])
    local.run("dev", "stop", "bookie", numbers[lost])
    wait_for(lambda: states(local)[lost] == "down" and states(local)[hurt] == "rw", 60, "one bookie is down")

    found = audit(local, "first", 1)
    keys = {(row["code"], row["ledger_id"], row["entry_id"], row["bookie_id"]) for row in found}
    assert keys == {("BKC405", ledger_id, 7, hurt), ("BKC401", ledger_id, 20, hurt), ("BKC403", None, None, lost)}

    dry = local.json("audit", "repair", local.home / "first", "--dry-run", code=1)
    assert dry["plan"]
    copied = local.json("audit", "repair", local.home / "first", "--yes", code=1)
    by_action = {(row["action"], row["code"]): row for row in copied}
    assert by_action.keys() == {("copy", "BKC405"), ("copy", "BKC401"), ("left", "BKC403")}
    assert (by_action["copy", "BKC405"]["copied"], by_action["copy", "BKC401"]["copied"]) == (1, 3)
    assert "--mark" in by_action["left", "BKC403"]["next"]

    marked = local.json("audit", "repair", local.home / "first", "--mark", "--code", "BKC403", "--yes")
    assert [(row["action"], row["ledger_id"], row["bookie_id"]) for row in marked] == [("mark", ledger_id, lost)]
    worker = local.start("autorecovery", "start", "-c", configured(local))
    try:
        wait_for(lambda: lost not in members(local, ledger_id), QUEUE_S, f"{lost} is replaced")
        wait_for(lambda: local.json("autorecovery", "queue", "list") == [], QUEUE_S, "the queue is empty")
    finally:
        code, _, log = end(worker)
    assert code == 0, log.decode()

    assert audit(local, "second", 0) == []
    gone = local.json("audit", "diff", local.home / "first", local.home / "second")
    assert {row["change"] for row in gone} == {"gone"}
    assert local.run("ledger", "read", ledger_id, "--raw").stdout == lines.replace(b"\n", b"")


def states(local: Local) -> dict[str, str]:
    return {row["bookie_id"]: row["state"] for row in local.json("bookie", "list")}


def members(local: Local, ledger_id: int) -> set[str]:
    return {b for ensemble in local.json("ledger", "show", ledger_id)["ensembles"] for b in ensemble["bookies"]}


def configured(local: Local) -> Path:
    path = local.home / "worker.conf"
    uri = local.json("cluster", "info")["metadata_uri"]
    path.write_text(f"metadataServiceUri={uri}\nadvertisedAddress=127.0.0.1\nallowLoopback=true\nbookieId=worker:1\n")
    return path

"""Metrics of a run in Prometheus's text format, in a file and at a Pushgateway."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as parquet
from bkinspect.audit import metrics
from bkinspect.audit.coverage import Coverage, Part, coverage
from bkinspect.audit.metrics import (
    CONTENT_TYPE,
    Metric,
    check_file,
    end_metrics,
    exposition,
    push,
    push_url,
    run_metrics,
    write_file,
)
from bkinspect.audit.results import opened
from bkinspect.audit.schemas import BOOKIES, ENTRIES, FRAGMENTS, KEPT_FINDINGS, Table, arrow_schema

from bkctl.errors import Refused, Unavailable, UsageError
from tests.unit.cli.audit.test_runs import ABOUT, FINDING, made

AS_OF_MS = int(ABOUT["as_of_ms"])


def table(folder: Path, what: Table, *rows: dict[str, object], name: str = "") -> None:
    """Parquet of a table; columns that a row does not name are null."""
    (folder / (name or what.name)).mkdir(parents=True, exist_ok=True)
    full = [{column: row.get(column) for column in what.names} for row in rows]
    parquet.write_table(pa.Table.from_pylist(full, arrow_schema(what)), folder / (name or what.name) / "part.parquet")


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """A run over running bookies: b1 was read, b2 was not; a copy of ledger 5 has a digest of unknown type."""
    run = made(tmp_path / "run", FINDING, live_copies=True, instance_id="1-2", contract={"failing": {"BKC401": 1}})
    facts = run / "facts-1"
    copy = {"ledger_id": 5, "bookie_id": "b1:3181", "size": 100, "source": "live", "kind": "entry"}
    rows = [{**copy, "entry_id": i, "digest_ok": ok} for i, ok in enumerate((True, True, False, None))]
    table(facts, ENTRIES, *rows, name="copies")
    fragment = {"ledger_id": 5, "first_entry_id": 0, "last_entry_id": 3, "bookies": ["b1:3181", "b2:3181"]}
    table(facts, FRAGMENTS, {**fragment, "ensemble_size": 2, "write_quorum_size": 2, "ack_quorum_size": 2})
    table(facts, BOOKIES, {"bookie_id": "b1:3181", "scanned": True}, {"bookie_id": "b2:3181", "scanned": False})
    table(run, KEPT_FINDINGS, FINDING, FINDING | {"suppressed": "OPS-1"}, name="findings-1")
    return run


def test_coverage_counts_verified_unchecked_and_unread_copies(live: Path) -> None:
    with opened(live) as results:
        read = coverage(results)
    assert read == Coverage([Part(AS_OF_MS, 3, 300)], unchecked=1, oldest_unchecked_ms=None, unread=4)
    assert read.copies == 8


def test_a_run_that_reads_no_entries_covers_nothing(tmp_path: Path) -> None:
    with opened(made(tmp_path / "run", FINDING)) as results:
        assert coverage(results) == Coverage()


def test_metrics_of_a_run(live: Path) -> None:
    with opened(live) as results:
        text = exposition(run_metrics(results), "zk://h1")
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert samples == [
        'bkctl_audit_findings{cluster="zk://h1",code="BKC401",severity="error",suppressed="false"} 1',
        'bkctl_audit_findings{cluster="zk://h1",code="BKC401",severity="error",suppressed="true"} 1',
        'bkctl_audit_failing_findings{cluster="zk://h1"} 1',
        'bkctl_audit_verified_entries{cluster="zk://h1",by="this_run"} 3',
        'bkctl_audit_verified_entries{cluster="zk://h1",by="earlier_run"} 0',
        'bkctl_audit_verified_bytes{cluster="zk://h1",by="this_run"} 300',
        'bkctl_audit_verified_bytes{cluster="zk://h1",by="earlier_run"} 0',
        'bkctl_audit_unverified_entries{cluster="zk://h1"} 5',
        'bkctl_audit_oldest_verification_age_seconds{cluster="zk://h1"} 0',
        'bkctl_audit_cluster_info{cluster="zk://h1",instance_id="1-2"} 1',
        'bkctl_audit_duration_seconds{cluster="zk://h1"} 1.5',
        'bkctl_audit_timestamp_seconds{cluster="zk://h1"} 1795000000',
        'bkctl_audit_success{cluster="zk://h1"} 1',
    ]
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)), "one group a metric, as the format requires"


def test_labels_are_escaped() -> None:
    text = exposition([Metric("findings", "Findings.", (({"code": 'a"b\\c\nd'}, 1.0),))], "c")
    assert text.splitlines()[-1] == r'bkctl_audit_findings{cluster="c",code="a\"b\\c\nd"} 1'


def test_a_failed_run_has_no_success() -> None:
    text = exposition(end_metrics(5000, 2.5, success=False), "c")
    assert 'bkctl_audit_success{cluster="c"} 0' in text.splitlines()
    assert "findings" not in text


def test_a_metrics_file_is_replaced_and_readable_by_all(tmp_path: Path) -> None:
    path = tmp_path / "audit.prom"
    path.write_text("old")
    path.chmod(0o600)
    with path.open() as reader:
        write_file(check_file(path), "new\n")
        assert reader.read() == "old", "who reads the old file reads all of it"
    assert path.read_text() == "new\n"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in tmp_path.iterdir()] == ["audit.prom"]


def test_a_metrics_file_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        check_file(tmp_path)
    with pytest.raises(UsageError, match="there is no directory"):
        check_file(tmp_path / "none/audit.prom")
    with pytest.raises(Unavailable, match="cannot write metrics"):
        write_file(tmp_path / "none/audit.prom", "new\n")
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    with pytest.raises(Refused, match="not writable"):
        check_file(tmp_path / "audit.prom")


class Received(NamedTuple):
    """A request that the gateway has answered."""

    method: str
    path: str
    type: str
    body: bytes


class Gateway(HTTPServer):
    """Answers a PUT with `status`, and keeps it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.received: list[Received] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Of Gateway."""

    server: Gateway

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(Received("PUT", self.path, self.headers["Content-Type"], body))
        self.send_response(self.server.status)
        if 300 <= self.server.status < 400:
            self.send_header("Location", "/other")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: stderr is the test's."""


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_metrics_are_put_into_the_group_of_job_and_cluster(gateway: Gateway) -> None:
    push(push_url(gateway.url, "zk://h1/ledgers"), "text\n")
    path = "/metrics/job/bkctl_audit/cluster@base64/ems6Ly9oMS9sZWRnZXJz"
    assert gateway.received == [Received("PUT", path, CONTENT_TYPE, b"text\n")]


def test_a_push_that_fails_says_why(gateway: Gateway) -> None:
    for status in (400, 500, 302):
        gateway.status = status
        with pytest.raises(Unavailable, match=f"HTTP {status}"):
            push(push_url(gateway.url, "c"), "text\n")
    assert len(gateway.received) == 3, "no redirect is followed"
    with pytest.raises(Unavailable, match=r"cannot push metrics to http://127\.0\.0\.1:1/"):
        push(push_url("http://127.0.0.1:1", "c"), "text\n")


def test_a_gateway_that_does_not_answer_ends_the_push(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PUSH_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Unavailable, match=r"timed out|no answer"):
        push(push_url(f"http://127.0.0.1:{silent.getsockname()[1]}", "c"), "text\n")


def test_a_gateway_that_answers_byte_by_byte_ends_the_push(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes within the timeout of a step, the answer never ends."""
    monkeypatch.setattr(metrics, "PUSH_TIMEOUT_S", 0.5)
    ended = threading.Event()

    def trickle(server: socket.socket) -> None:
        client, _ = server.accept()
        with client, contextlib.suppress(OSError):
            client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not ended.wait(0.05):
                client.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=trickle, args=(server,))
        thread.start()
        try:
            with pytest.raises(Unavailable, match=r"no answer within 0\.5 s"):
                push(push_url(f"http://127.0.0.1:{server.getsockname()[1]}", "c"), "text\n")
        finally:
            ended.set()
            thread.join()


def test_a_url_with_a_job_is_used_as_it_is() -> None:
    url = "https://h/prefix/metrics/job/nightly/instance/a"
    assert push_url(url, "c") == url
    assert push_url("http://h:9091/", "c") == "http://h:9091/metrics/job/bkctl_audit/cluster@base64/Yw=="


@pytest.mark.parametrize(
    "text",
    [
        *("ftp://h", "file:///etc/passwd", "h:9091", "", "http://", "http://h:port", "http://user:pass@h"),
        *("http://h/?a=b", "http://h/#a", "http://h/a b", "http://h/\na"),
    ],
)
def test_another_url_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--metrics-push") as caught:
        push_url(text, "c")
    assert "pass@" not in caught.value.message

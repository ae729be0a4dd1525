"""Exports a run as Prometheus metrics: to a file for node exporter's textfile collector, or to a Pushgateway.

Every sample has the label `cluster`: the metadata that the run reads, or `directories`. A run that fails exports
`bkctl_audit_success 0` with its start and duration, and no other metric.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final
from urllib.parse import urlsplit

from bkctl.client import http
from bkctl.errors import Refused, Unavailable, UsageError
from bkinspect.audit.coverage import coverage
from bkinspect.audit.results import Results

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FILE_MODE: Final = 0o644
"""The mode of a file of metrics: node exporter reads it as another user."""
PUSH_TIMEOUT_S: Final = 10.0
RESPONSE_BYTES_MAX: Final = 64 * 1024
JOB_PATH: Final = "/metrics/job/"
JOB: Final = "bkctl_audit"
_COUNTS_SQL: Final = (
    "SELECT code, severity, suppressed IS NOT NULL AS suppressed, count(*) AS n FROM findings GROUP BY ALL ORDER BY ALL"
)


@dataclass(frozen=True, slots=True)
class Metric:
    """A gauge.

    name: without the prefix bkctl_audit_; help: its help text; samples: (labels, value) of each.
    """

    name: str
    help: str
    samples: tuple[tuple[Mapping[str, object], float], ...]


def cluster_name(metadata: str | None) -> str:
    """Returns the value of the label `cluster`."""
    return metadata or "directories"


def run_metrics(results: Results) -> Iterator[Metric]:
    """Yields the metrics of a complete run, from its tables by DuckDB."""
    about = results.about
    rows = list(results.query(_COUNTS_SQL))
    words = ("code", "severity", "suppressed")
    counted = [({word: _word(row[word]) for word in words}, float(str(row["n"]))) for row in rows]
    yield Metric("findings", "Findings by code and severity.", tuple(counted))
    failing = sum((about.get("contract") or {}).get("failing", {}).values())
    yield _one("failing_findings", "Findings that fail the run, neither suppressed nor within a budget.", failing)
    read = coverage(results)
    now = [part for part in read.parts if part.at_ms == about["as_of_ms"]]
    of_now, of_all = {"by": "this_run"}, {"by": "earlier_run"}
    copies, size = sum(part.copies for part in now), sum(part.bytes for part in now)
    earlier = sum(part.copies for part in read.parts) - copies, sum(part.bytes for part in read.parts) - size
    verified = "whose digests were checked, by the run that read them."
    yield Metric("verified_entries", f"Copies of entries {verified}", ((of_now, copies), (of_all, earlier[0])))
    yield Metric("verified_bytes", f"Bytes of entries {verified}", ((of_now, size), (of_all, earlier[1])))
    unverified = read.unchecked + read.unread
    yield _one("unverified_entries", "Copies that no digest proves, or on bookies that were not read.", unverified)
    if read.oldest_unchecked_ms is not None:
        age_s = max(about["as_of_ms"] - read.oldest_unchecked_ms, 0) / 1000
        yield _one("oldest_unverified_entry_age_seconds", "Age of the oldest ledger with such a copy.", age_s)
    if read.parts:
        age_s = (about["as_of_ms"] - min(part.at_ms for part in read.parts)) / 1000
        yield _one("oldest_verification_age_seconds", "Age of the oldest verification that the run uses.", age_s)
    labels = {"instance_id": about.get("instance_id") or ""}
    yield Metric("cluster_info", "The instance id of the cluster.", ((labels, 1),))
    yield from end_metrics(about["as_of_ms"], about["seconds"], success=True)


def end_metrics(as_of_ms: int, seconds: float, *, success: bool) -> Iterator[Metric]:
    """Yields the metrics of every run.

    Args:
        seconds: the duration of the run.
    """
    yield _one("duration_seconds", "Duration of the run.", seconds)
    yield _one("timestamp_seconds", "Time when the run began, in seconds since 1970.", as_of_ms / 1000)
    yield _one("success", "1 if the run came to its end, whatever it found; 0 if it failed.", float(success))


def _one(name: str, text: str, value: float) -> Metric:
    return Metric(name, text, (({}, value),))


def exposition(metrics: Iterable[Metric], cluster: str) -> str:
    """Returns the metrics in Prometheus's text format."""
    lines = []
    for metric in metrics:
        name = f"bkctl_audit_{metric.name}"
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} gauge"]
        for labels, value in metric.samples:
            pairs = {"cluster": cluster, **labels}.items()
            shown = ",".join(f'{key}="{_escaped(str(text))}"' for key, text in pairs)
            lines.append(f"{name}{{{shown}}} {value:.15g}")
    return "\n".join(lines) + "\n"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def check_file(path: Path) -> Path:
    """Checks that a file of metrics can be written, and returns its path.

    Raises:
        UsageError: the path is a directory, or its directory does not exist. Refused: its directory is not writable.
    """
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        reason = "is a directory" if path.is_dir() else f"there is no directory {folder}"
        raise UsageError(f"--metrics-file {path}: {reason}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Refused(f"--metrics-file {path}: {folder} is not writable")
    return path


def write_file(path: Path, text: str) -> None:
    """Replaces a file of metrics atomically, with mode 0644: node exporter never reads a part of it.

    Raises:
        Unavailable: the file cannot be written.
    """
    temporary: Path | None = None
    try:
        with NamedTemporaryFile("w", dir=path.absolute().parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), FILE_MODE)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise Unavailable(f"cannot write metrics to {path}: {error}") from error


def push_url(text: str, cluster: str) -> str:
    """Returns the URL to which metrics are sent: the given one with /metrics/job/…, else with job and cluster added.

    Raises:
        UsageError: the text is not an http or https URL, or the URL has a user, a password, a query or a fragment.
    """
    try:
        url = urlsplit(text)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid or any(one.isspace() or not one.isprintable() for one in text):
        raise UsageError(f"--metrics-push {text}: expected an http or https URL", hint="http://pushgateway:9091")
    if "@" in url.netloc:
        raise UsageError("--metrics-push: a user or password in the URL is not supported", hint="http://HOST:9091")
    if url.query or url.fragment:
        raise UsageError(f"--metrics-push {text}: a query or fragment is not supported", hint="http://HOST:9091")
    group = base64.urlsafe_b64encode(cluster.encode()).decode()
    return text if JOB_PATH in url.path else f"{text.rstrip('/')}{JOB_PATH}{JOB}/cluster@base64/{group}"


def push(url: str, text: str) -> None:
    """Replaces the job's metrics in a Pushgateway, by PUT, within PUSH_TIMEOUT_S seconds in total.

    A socket's timeout applies to each operation, so a gateway that sends its response in small pieces could exceed the
    total, and the resolver has no timeout. So a thread sends the request; a thread that is late ends with this process.

    Raises:
        Unavailable: the gateway does not answer in time, or rejects the metrics.
    """
    failures: list[Unavailable] = []

    def put() -> None:
        try:
            _put(url, text)
        except Unavailable as error:
            failures.append(error)

    thread = threading.Thread(target=put, name="metrics push", daemon=True)
    thread.start()
    thread.join(PUSH_TIMEOUT_S)
    if failures:
        raise failures[0]
    if thread.is_alive():
        raise Unavailable(f"cannot push metrics to {url}: no answer within {PUSH_TIMEOUT_S:g} s")


def _put(url: str, text: str) -> None:
    headers = {"Content-Type": CONTENT_TYPE}
    try:
        response = http.send(
            "PUT", url, text.encode(), headers, timeout_s=PUSH_TIMEOUT_S, body_bytes_max=RESPONSE_BYTES_MAX
        )
    except Unavailable as error:
        raise Unavailable(f"cannot push metrics to {error.message}", url=url) from None
    if response.status // 100 != 2:
        raise Unavailable(f"cannot push metrics to {url}: HTTP {response.status}", url=url)

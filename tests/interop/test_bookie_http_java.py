"""The HTTP port of a bookie: ours answers what Java's does, the code, and the text or JSON, on the same cluster."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator

import pytest

from tests.interop.java_cluster import JavaCluster, running

pytestmark = [pytest.mark.java, pytest.mark.slow]

TIMEOUT_S = 60
MARKS = "/autorecovery/list_under_replicated_ledger"
SUSPEND, RESUME, READ_ONLY = "/bookie/gc/suspend_compaction", "/bookie/gc/resume_compaction", "/bookie/state/readonly"
DELAY = "/autorecovery/lost_bookie_recovery_delay"
REQUESTS: tuple[tuple[str, str, str], ...] = (
    *(("GET", path, "") for path in ("/bookie/gc", "/bookie/gc_details", SUSPEND, RESUME, "/bookie/state", READ_ONLY)),
    *(("GET", path, "") for path in ("/bookie/is_ready", "/bookie/info", "/bookie/cluster_info", "/ledger/list")),
    *(("GET", f"/bookie/list_bookies{query}", "") for query in ("", "?type=ro", "?print_hostnames=true")),
    *(("GET", f"/bookie/list_disk_file{query}", "") for query in ("", "?file_type=journal", "?file_type=other")),
    *(("GET", f"/ledger/list?print_metadata=true{more}", "") for more in ("", "&decode_meta=true", "&page=1")),
    *(("GET", f"/ledger/metadata{query}", "") for query in ("?ledger_id=0", "?ledger_id=77", "?ledger_id=x", "")),
    *(("GET", f"/ledger/read?ledger_id=0{more}", "") for more in ("", "&page=1", "&page=2", "&end_entry_id=0")),
    *(("GET", f"/ledger/read?ledger_id={query}", "") for query in ("1", "77", "x", "0&start_entry_id=1")),
    *(("GET", f"/ledger/read?ledger_id=0&{more}", "") for more in ("start_entry_id=-1", "page=x", "start_entry_id=9")),
    ("GET", "/ledger/read?ledger_id=0&start_entry_id=2&end_entry_id=1", ""),
    ("GET", "/ledger/read", ""),
    *(("GET", f"/autorecovery/{name}", "") for name in ("status", "who_is_auditor", "lost_bookie_recovery_delay")),
    *(("GET", f"{MARKS}{query}", "") for query in ("", "?missingreplica=a:1", "?printmissingreplica=true")),
    ("PUT", "/bookie/gc", ""),
    *(("PUT", "/bookie/gc", body) for body in ('{"forceMajor": false, "forceMinor": true}', "x", "[]")),
    *(("PUT", SUSPEND, body) for body in ('{"suspendMajor": true, "suspendMinor": true}', "{}", "", "x")),
    *(("PUT", SUSPEND, body) for body in ('{"suspendMinor": "x"}', '{"suspendMinor": true, "other": 1}')),
    ("GET", SUSPEND, ""),
    *(("PUT", RESUME, body) for body in ('{"resumeMajor": true}', '{"resumeMinor": true, "resumeMajor": false}')),
    ("GET", SUSPEND, ""),
    *(("PUT", READ_ONLY, body) for body in ('{"readOnly": true}', '{"readOnly": "False"}', '{"readOnly": 1}', "{}")),
    *(("PUT", READ_ONLY, body) for body in ('{"readOnly": 1, "x": 2}', "", '{"readOnly": "no"}', '{"readOnly": null}')),
    *(("PUT", f"/autorecovery/status{query}", "") for query in ("?enabled=false", "", "?a=b&enable=c")),
    ("PUT", "/autorecovery/trigger_audit", ""),
    ("PUT", "/autorecovery/status?enabled=TRUE", ""),
    ("PUT", "/autorecovery/trigger_audit", ""),
    *(("PUT", DELAY, body) for body in ('{"delay_seconds": 5}', "", "{}", "x", '{"delay_seconds": "5"}')),
    ("GET", DELAY, ""),
    *((method, path, "") for method in ("POST", "DELETE") for path in ("/bookie/gc", "/bookie/state", READ_ONLY)),
    *(("POST", path, "") for path in ("/bookie/gc_details", SUSPEND, RESUME, "/bookie/is_ready", "/bookie/info")),
    *(("POST", path, "") for path in ("/bookie/cluster_info", "/bookie/list_bookies", "/ledger/list", MARKS, DELAY)),
    *(("POST", f"/autorecovery/{name}", "") for name in ("status", "who_is_auditor", "trigger_audit")),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    yield from running(2)


def ask(port: int, method: str, path: str, body: str) -> tuple[int, str]:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        head = f"{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, text = answer.decode("utf-8").partition("\r\n\r\n")
    return int(head.split(" ")[1]), text


def plain(answer: tuple[int, str], own_id: str) -> tuple[int, str]:
    """Without what is each bookie's own: its id, its file names, times, and bytes free on the disk at that moment."""
    text = re.sub(rf"{re.escape(own_id)}(?=[\" ,]|$)", "OWN", answer[1])
    text = re.sub(r"[0-9a-f]+\.(txn|log)", r"0.\1", text)
    return answer[0], re.sub(r'("last\w+Time"|"freeSpace") : [0-9]+', r"\1 : 0", text)


def parsed(answer: tuple[int, str]) -> tuple[int, object]:
    """With the text as a client parses it: JSON whatever its spaces and order, and other text as it is.

    Bytes that are not UTF-8 are replaced by one mark or by several.
    """
    text = re.sub("\ufffd+", "\ufffd", answer[1])
    try:
        return answer[0], json.loads(text)
    except ValueError:
        return answer[0], text


def test_ours_answers_as_javas(cluster: JavaCluster) -> None:
    cluster.start_ours(0)
    java, ours = cluster.bookie_port + 100, cluster.bookie_port + 50 + 60
    quorums = ("--ensemble-size", 2, "--write-quorum-size", 2, "--ack-quorum-size", 2)
    lines = b'one\ntwo\n\xff\x00"\n'
    cluster.bkctl_json("ledger", "write", "--new", "--yes", "--password", "pw", *quorums, stdin=lines)
    cluster.bkctl_json("ledger", "create", "--yes", "--digest", "MAC", "--custom-metadata", "app=test", *quorums)
    cluster.bkctl_json("autorecovery", "queue", "requeue", 0, "--missing", "127.0.0.1:9", "--yes")
    different = []
    for method, path, body in REQUESTS:
        theirs, found = ask(java, method, path, body), ask(ours, method, path, body)
        if not path.startswith(("/bookie/list_bookies", "/ledger")):  # there all ids are the same in both
            theirs, found = plain(theirs, cluster.java_id(0)), plain(found, cluster.our_id(0))
        if path.startswith("/bookie/list_disk_file"):  # other directories, other numbers of files
            theirs, found = ((code, re.sub(r"(0\.(txn|log)\\t)+", "", text)) for code, text in (theirs, found))
        if parsed(theirs) != parsed(found):
            different.append((method, path, body, theirs, found))
    assert different == []

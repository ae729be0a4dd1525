"""bk_server.conf: BookKeeper's keys, its defaults, and what is said of a bad value."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from bkdaemon.bookie.config import BookieConfig, config_from, load_config
from bkdaemon.properties import parse_properties

from bkctl.errors import UsageError

TEXT = """
# a comment
! another
bookiePort=3999
advertisedAddress : 10.0.0.1
journalDirectories=/j0, /j1
journalDirectory=/not/this
ledgerDirectories=/l0,\\
    /l1
indexDirectories=
allowLoopback=TRUE
diskUsageThreshold=0.97
zkServers=h1:2181,h2:2181
useTargetEntryLogSizeForGc=true
bookiePort=3182
"""


def config(text: str) -> BookieConfig:
    return config_from(parse_properties(text), source="test.conf")


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "bk_server.conf"
    path.write_text(TEXT)
    found = load_config(path, gc_wait_ms=5)
    assert found.bookie_port == 3182, "the last one counts"
    assert found.advertised_address == "10.0.0.1"
    assert found.journal_dirs == ("/j0", "/j1")
    assert found.ledger_dirs == ("/l0", "/l1")
    assert found.index_dirs == ("/l0", "/l1"), "an empty value is the default"
    assert found.allow_loopback is True
    assert found.gc_wait_ms == 5
    assert found.uri == "zk+hierarchical://h1:2181;h2:2181/ledgers"
    assert found.unknown == {"useTargetEntryLogSizeForGc": "true"}


def test_defaults_are_bookkeepers() -> None:
    found = config("")
    assert (found.bookie_port, found.journal_dirs, found.ledger_dirs) == (3181, ("/tmp/bk-txn",), ("/tmp/bk-data",))
    assert (found.journal_max_size_mb, found.journal_max_backups, found.flush_interval_ms) == (2048, 5, 10_000)
    assert (found.gc_wait_ms, found.disk_usage_threshold, found.zk_timeout_ms) == (600_000, 0.95, 10_000)
    assert found.low_mark == 0.95
    assert found.high_priority_bytes == 1 << 30
    assert len({f.metadata["key"] for f in fields(found) if f.metadata}) == len(fields(found)) - 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\nbookiePort=many", r"test.conf:2: bookiePort=many"),
        ("\nbookiePort=-1", "test.conf:2: .*: not a port"),
        ("\n\nbookiePort=65536", "test.conf:3: .*: not a port"),
        ("\nzkTimeout=0", "test.conf:2: zkTimeout=0 is below 1"),
        ("allowLoopback=perhaps", "not true or false"),
        ("diskUsageThreshold=1.5", "disk thresholds"),
        ("diskUsageWarnThreshold=0.99", "disk thresholds"),
        ("journalFormatVersionToWrite=4", "only 6"),
        ("journalAlignmentSize=1000", "not a multiple"),
        ("logSizeLimit=2147483648", "above"),
        ("dbStorage_rocksDB_format_version=6", "must be 2 or 5"),
        ("ledgerDirectories=/a,/b\nindexDirectories=/c", "the same number of directories"),
        ("bookieId=readonly", None),
        ("ledgerDirectories=,", "names no directory"),
    ],
)
def test_values_that_are_not_valid_are_refused_with_file_and_line(text: str, says: str | None) -> None:
    with pytest.raises(UsageError, match=says):
        _ = config(text).bookie_id


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_config(tmp_path / "nothing")
    with pytest.raises(UsageError, match="neither"):
        _ = config("").uri


INSECURE = "bookiePort=3182\ntlsKeyStore=/missing/key.jks\nauthorizedRoles=a\nhttpServerKeyStorePassword=hidden\n"


def test_keys_of_protection_that_is_not_supported_refuse_the_start(tmp_path: Path) -> None:
    path = tmp_path / "bk_server.conf"
    path.write_text(INSECURE)
    with pytest.raises(UsageError) as error:
        load_config(path)
    for line, key in enumerate(("tlsKeyStore", "authorizedRoles", "httpServerKeyStorePassword"), 2):
        assert f"bk_server.conf:{line}: {key}=" in error.value.message
    assert "hidden" not in error.value.message


def test_the_override_warns_of_each_key_of_protection_and_ignores_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "bk_server.conf"
    path.write_text(f"{INSECURE}bkctlAllowInsecure=true\nuseTargetEntryLogSizeForGc=true\n")
    found = load_config(path)
    assert found.unknown == {"useTargetEntryLogSizeForGc": "true"}
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    for key in ("tlsKeyStore", "authorizedRoles", "httpServerKeyStorePassword"):
        assert f"{key}=" in caplog.text
    assert "hidden" not in caplog.text


def test_a_bound_of_unfinished_frames_below_one_frame_is_refused() -> None:
    assert config("").unfinished_frame_bytes_max == 256 << 20
    assert config("").unfinished_frame_timeout_ms == 60_000
    text = "nettyMaxFrameSizeBytes=2000000\nbkctlUnfinishedFrameBytesMax="
    assert config(f"{text}2000000").unfinished_frame_bytes_max == 2_000_000
    with pytest.raises(UsageError, match="bkctlUnfinishedFrameBytesMax is below nettyMaxFrameSizeBytes"):
        config(f"{text}1999999")

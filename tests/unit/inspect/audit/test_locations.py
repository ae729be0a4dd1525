"""Arguments that name a place: paths and file URIs are local; a run can be kept on Hadoop's file systems too."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkinspect.audit.locations import local_path, metadata_place, run_place

from bkctl.errors import UsageError

REFUSED = (
    *("s3a://bucket/x", "s3://bucket", "hdfs://nn:8020/x", "hdfs:/x", "gs://bucket/x", "viewfs://c/x", "http://h/x"),
    *("abfss://container@account.dfs.core.windows.net/x", "S3A://bucket/x", "unknown://", "file://host/x", "file://"),
)


@pytest.mark.parametrize("text", REFUSED)
def test_a_uri_of_another_file_system_is_refused(text: str) -> None:
    for place in (local_path, metadata_place):
        with pytest.raises(UsageError, match="is not supported") as error:
            place("--to", text)
        assert f"--to {text}" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        *("s3a://bucket/x", "hdfs://nn:8020/x", "hdfs:/x", "gs://bucket/x", "viewfs://c/x", "S3A://bucket/x"),
        "abfss://container@account.dfs.core.windows.net/x",
    ],
)
def test_a_run_can_be_kept_on_a_file_system_of_hadoop(text: str) -> None:
    assert run_place("--to", text) == text


@pytest.mark.parametrize(
    "text", ["s3://bucket", "http://h/x", "unknown://", "file://host/x", "s3a://b/*", "hdfs://n/[a]"]
)
def test_a_place_of_a_run_that_spark_cannot_take_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not supported"):
        run_place("--to", text)


def test_a_path_of_a_run_is_a_local_path() -> None:
    assert run_place("--to", "file:///a") == Path("/a")
    assert run_place("--to", "a[1]") == Path("a[1]")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        *(("a/b", "a/b"), ("/a", "/a"), ("a:b", "a:b"), ("./s3a://x", "s3a:/x"), ("c:/x", "c:/x")),
        *(("file:///a/b", "/a/b"), ("file:/a", "/a"), ("file://localhost/a", "/a"), ("FILE:////a", "/a")),
        ("file:///a%20b", "/a%20b"),
    ],
)
def test_plain_paths_and_file_uris_are_local_paths(text: str, path: str) -> None:
    assert local_path("--to", text) == Path(path)
    assert metadata_place("--metadata", text) == path


def test_metadata_can_be_a_store_or_two_folders(tmp_path: Path) -> None:
    assert metadata_place("--metadata", "zk+hierarchical://h:2181/ledgers") == "zk+hierarchical://h:2181/ledgers"
    assert metadata_place("--metadata", "file:///snapshots,/logs") == "/snapshots,/logs"
    (tmp_path / "a,b").touch()
    assert metadata_place("--metadata", str(tmp_path / "a,b")) == str(tmp_path / "a,b")
    for text in ("zk://h:2181", "zk+other://h/ledgers", "etcd://h/ledgers", "/snapshots,s3a://bucket/logs"):
        with pytest.raises(UsageError):
            metadata_place("--metadata", text)

"""Audits that end in the middle: no Spark at all, a driver that is killed, a worker that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from bkinspect.audit.facts import Sources
from bkinspect.audit.incremental import INVENTORY
from bkinspect.audit.job import Request, run
from bkinspect.audit.results import find_run, opened
from bkinspect.audit.sources.scan import ScanReader, ScanSource

from bkctl.errors import NotFound, Unavailable
from tests.golden import FOLDER, Golden
from tests.interop.auto_recovery import wait_for
from tests.unit.inspect.audit.test_job import change_a_byte
from tests.unit.inspect.audit.test_two_workers import SETTINGS

ZK_TREE = str(FOLDER / "zk_tree.json")
LIMIT_S = 300
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def damaged(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bookie's directories with one changed byte: ledger 3, found by `digests`."""
    bookie = golden.unpack("bookie0", tmp_path_factory.mktemp("dirs") / "bookie0")
    change_a_byte(bookie / "ledgers/current/0.log")
    return bookie


def codes(to: Path) -> list[tuple[str, int]]:
    with opened(to) as results:
        return [(item["code"], item["ledger_id"]) for item in results.findings()]


def test_without_spark_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyspark'] = None\n")
    done = subprocess.run(
        [sys.executable, "-m", "bkctl", "audit", "run", "--offline", str(tmp_path), "--to", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
    )
    assert done.returncode == 2
    assert "an audit needs pyspark" in done.stderr
    assert "pip install 'bkctl[spark]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_an_interrupted_audit_says_how_it_goes_on(damaged: Path, tmp_path: Path) -> None:
    to = tmp_path / "run"
    command = [sys.executable, "-m", "bkctl", "audit", "run", "--offline", str(damaged), "--to", str(to)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "BKCTL_STATE_DIR": str(tmp_path)},
    )
    try:
        wait_for(lambda: [*to.glob("facts-*")] or process.poll() is not None, LIMIT_S, "its facts")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)
    assert process.returncode == 130, said
    assert f"bkctl audit run --to {to} continues" in said
    assert "Traceback" not in said
    assert [line for line in said.splitlines() if line.startswith(("\tat ", "spark:", "java."))] == []
    with pytest.raises(NotFound):
        find_run(to)


def test_a_killed_driver_leaves_no_results_and_the_next_run_goes_on(spark: Any, damaged: Path, tmp_path: Path) -> None:
    to = tmp_path / "run"
    settings = [word for name, value in SETTINGS.items() for word in ("--spark-conf", f"{name}={value}")]
    command = [sys.executable, "-m", "bkctl", "audit", "run", *settings, "--offline", str(damaged)]
    process = subprocess.Popen(
        [*command, "--metadata", ZK_TREE, "--check", "digests", "--to", str(to)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "BKCTL_STATE_DIR": str(tmp_path)},
    )
    try:
        wait_for(lambda: [*to.glob(f"facts-*/scan*/{INVENTORY}")] or process.poll() is not None, LIMIT_S, "a scan")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
    if (to / "run.json").exists():
        pytest.fail("it was done before it could be killed")
    with pytest.raises(NotFound):
        find_run(to)
    (half,) = to.glob("facts-*")
    outcome = run(spark, Request(Sources(ZK_TREE, (damaged,)), to, ("digests",)))
    assert codes(to) == [("BKC107", 3)]
    assert (outcome.files_read, outcome.files_kept) == (0, 7), "what had been read counts"
    assert half in to.glob("facts-*"), "its scan is used"


def dying(flag: str) -> type[ScanSource]:
    """`bookkeeper.scan` whose first reader takes its process with it while the file `flag` is there."""

    class DyingReader(ScanReader):
        def read(self, partition: Any) -> Iterator[Any]:
            if os.path.exists(flag):
                os.unlink(flag)
                os.kill(os.getpid(), signal.SIGKILL)
            yield from super().read(partition)

    class DyingSource(ScanSource):
        reader_class = DyingReader

    return DyingSource


def test_a_killed_worker_leaves_no_results(spark: Any, damaged: Path, tmp_path: Path) -> None:
    flag = tmp_path / "die"
    flag.touch()
    to = tmp_path / "run"
    request = Request(Sources(ZK_TREE, (damaged,), full=True), to, ("digests",))
    try:
        spark.dataSource.register(dying(str(flag)))
        with pytest.raises(Unavailable, match="a worker's process ended"):
            run(spark, request)
        assert not flag.exists(), "a worker was killed"
        with pytest.raises(NotFound):
            find_run(to)
    finally:
        spark.dataSource.register(ScanSource)
    outcome = run(spark, request)
    assert codes(to) == [("BKC107", 3)]
    assert outcome.files_read == 7

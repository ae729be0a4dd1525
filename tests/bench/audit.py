"""How fast an audit reads: entry logs inside Spark on one core and two, and metadata of many ledgers.

    python -m tests.bench.audit logs --gib 2                   # 1 KB entries, CRC32C: MB/s on one core and on two
    python -m tests.bench.audit metadata 100000 300000 1000000 # seconds and memory of the metadata checks
    python -m tests.bench.audit copies --gib 2                 # all checks of three bookies, beside one reading of them
    python -m tests.bench.audit export FILE.parquet 1000000    # only makes the metadata

Each Spark runs in a process of its own, so that memory and warm-up are its own. With local[1] the JVM works beside its
one task, so one core is measured with driver, JVM and workers all held on one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bkctl.codec.checksum import digest_for
from bkctl.codec.data_dir import encode_cookie
from bkctl.codec.entry import encode_entry
from bkctl.codec.entry_log import encode_header, encode_ledgers_map, encode_map_fields
from bkctl.codec.layout import LedgerManager
from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.codec.managed_ledger import LedgerInfo, ManagedLedgerInfo, encode_ledger_info
from bkctl.meta.paths import ledger_path
from bkctl.model.bookie import Cookie
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata, LedgerState

BOOKIES: Final = tuple(f"10.0.0.{i}:3181" for i in range(1, 31))
LEDGERS_A_TOPIC: Final = 10
ROW_GROUP: Final = 50_000
LOG_SIZE: Final = 1 << 30
METADATA_CHECKS: Final = ("nodes", "missing-ledgers", "orphan-ledgers", "open-ledgers", "lost-bookies", "placement")
START_MS: Final = 1_700_000_000_000
CHILD_TIMEOUT_S: Final = 900
LOG_ROWS: Final = (
    ("one core, local[1]", "1", "1"),
    ("two cores, local[2]", "2", "2"),
    ("two cores, local[1]", "1", "2"),
)
"""Name, Spark's tasks at a time, cores that driver, JVM and workers are held on."""


# -- metadata ---------------------------------------------------------------------------------------------------------


def nodes(count: int) -> Iterator[tuple[str, bytes, int]]:
    """(path, data, ctime) of a cluster: 30 bookies, topics of ten ledgers each, one of 1000 ledgers open."""
    for index, bookie in enumerate(BOOKIES):
        yield f"/ledgers/available/{bookie}", b"", START_MS
        cookie = Cookie(BookieId(bookie), ("/j",), ("/l",), None, "bench")
        yield f"/ledgers/cookies/{bookie}", encode_cookie(cookie), START_MS + index
    racks = {bookie: {"rack": f"/region-{i % 2}/rack-{i % 6}"} for i, bookie in enumerate(BOOKIES)}
    yield "/bookies", json.dumps({"default": racks}).encode(), START_MS
    topic: list[LedgerInfo] = []
    for ledger_id in range(count):
        name = f"public/default/persistent/t{ledger_id // LEDGERS_A_TOPIC}"
        yield ledger_path("/ledgers", LedgerManager.HIERARCHICAL, ledger_id), _metadata(ledger_id, name), START_MS
        topic.append(LedgerInfo(ledger_id, 50_000, 50_000_000, START_MS))
        if len(topic) == LEDGERS_A_TOPIC or ledger_id == count - 1:
            yield f"/managed-ledgers/{name}", encode_ledger_info(ManagedLedgerInfo(tuple(topic))), START_MS
            topic = []


def _metadata(ledger_id: int, topic: str) -> bytes:
    first = ledger_id * 7 % len(BOOKIES)
    bookies = [BookieId(BOOKIES[(first + i) % len(BOOKIES)]) for i in range(4)]
    ensembles = [Ensemble(EntryId(0), tuple(bookies[:3]))]
    if ledger_id % 10 == 0:
        ensembles.append(Ensemble(EntryId(20_000), tuple(bookies[1:])))
    is_open = ledger_id % 1000 == 999
    custom = {"application": b"pulsar", "component": b"managed-ledger", "pulsar/managed-ledger": topic.encode()}
    return encode_metadata(
        LedgerMetadata(
            3, 2, 2, tuple(ensembles),
            LedgerState.OPEN if is_open else LedgerState.CLOSED,
            0 if is_open else 50_000_000, EntryId(-1 if is_open else 49_999),
            DigestType.CRC32C, b"", START_MS + ledger_id, custom,
        )
    )  # fmt: skip


def make_export(path: Path, count: int) -> None:
    """Writes the metadata of count ledgers."""
    write_export(path, nodes(count))


def write_export(path: Path, found: Iterator[tuple[str, bytes, int]]) -> None:
    """Writes (path, data, ctime) as Parquet, a row group at a time."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    schema = pa.schema(
        [("path", pa.string()), ("data", pa.binary()), ("version", pa.int64()), ("ctime_ms", pa.int64()),
         ("mtime_ms", pa.int64()), ("ephemeral", pa.bool_())]
    )  # fmt: skip
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        rows: list[dict[str, Any]] = []
        for name, data, ctime in found:
            short = name.startswith("/ledgers/available/")
            rows.append(
                {"path": name, "data": data, "version": 1, "ctime_ms": ctime, "mtime_ms": ctime, "ephemeral": short}
            )
            if len(rows) == ROW_GROUP:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows = []
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))


# -- entry logs -------------------------------------------------------------------------------------------------------


def make_logs(folder: Path, size: int, entry_size: int = 1024, bookie: str = BOOKIES[0]) -> int:
    """Writes a bookie's ledger directory with closed logs of 1 GiB; returns the bytes of its entries."""
    current = folder / "ledgers/current"
    current.mkdir(parents=True)
    cookie = Cookie(BookieId(bookie), (str(folder / "journal"),), (str(folder / "ledgers"),), None, "bench")
    (current / "VERSION").write_bytes(encode_cookie(cookie))
    payload, digest, total = random.Random(1).randbytes(entry_size - 36), digest_for(DigestType.CRC32C), 0
    for log_id in range(max(size // LOG_SIZE, 1)):
        path = current / f"{log_id:x}.log"
        with path.open("wb") as file:
            file.write(encode_header())
            sizes: dict[int, int] = {}
            for number in range(min(size, LOG_SIZE) // (entry_size + 4)):
                ledger_id, entry_id = log_id * 100 + number % 100, number // 100
                body = encode_entry(ledger_id, entry_id, entry_id - 1, (entry_id + 1) * len(payload), payload, digest)
                file.write(len(body).to_bytes(4, "big") + body)
                sizes[ledger_id] = sizes.get(ledger_id, 0) + len(body) + 4
            end = file.tell()
            file.write(b"".join(encode_ledgers_map(sizes)))
            file.seek(8)
            file.write(encode_map_fields(end, len(sizes)))
            total += sum(sizes.values())
    return total


def make_cluster(folder: Path, size: int, entry_size: int = 1024) -> Path:
    """Writes three bookies with the same entries, their indexes, and the metadata; returns the export."""
    names = BOOKIES[:3]
    for name in names:
        home = folder / name.partition(":")[0]
        make_logs(home, size, entry_size, name)
        (home / "journal/current").mkdir(parents=True)
        conf = home / "bookie.conf"
        conf.write_text(
            f"ledgerDirectories={home}/ledgers\njournalDirectories={home}/journal\n"
            "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage\n"
        )
        subprocess.run([sys.executable, "-m", "bkctl", "index", "rebuild", "-c", str(conf), "--yes", "-q"], check=True)
    export = folder / "export.parquet"
    number = min(size, LOG_SIZE) // (entry_size + 4)
    payload_size = entry_size - 36
    rows: list[tuple[str, bytes, int]] = [(f"/ledgers/available/{name}", b"", START_MS) for name in names]
    for ledger_id in range(max(size // LOG_SIZE, 1) * 100):
        entries = len(range(ledger_id % 100, number, 100))
        metadata = LedgerMetadata(
            3, 3, 2, (Ensemble(EntryId(0), tuple(BookieId(name) for name in names)),), LedgerState.CLOSED,
            entries * payload_size, EntryId(entries - 1), DigestType.CRC32C, b"", START_MS, {},
        )  # fmt: skip
        path = ledger_path("/ledgers", LedgerManager.HIERARCHICAL, ledger_id)
        rows.append((path, encode_metadata(metadata), START_MS))
    write_export(export, iter(rows))
    return export


# -- measuring --------------------------------------------------------------------------------------------------------


def process_tree(pid: int) -> Iterator[int]:
    """A process and all below it."""
    pending = [pid]
    while pending:
        at = pending.pop()
        yield at
        try:
            for task in Path(f"/proc/{at}/task").iterdir():
                pending += map(int, (task / "children").read_text().split())
        except (OSError, ValueError):
            continue


def _memory_mb(pid: int) -> float:
    """Resident memory of a process and all below it, what they share not counted."""
    total = 0.0
    for at in process_tree(pid):
        try:
            _, resident, shared, *_ = map(int, Path(f"/proc/{at}/statm").read_text().split())
            total += (resident - shared) * os.sysconf("SC_PAGE_SIZE") / 1e6
        except (OSError, ValueError):
            continue
    return total


def _processor_s(pid: int) -> float:
    """Processor seconds that a process and all below it have used, those of ended children included."""
    total = 0
    for at in process_tree(pid):
        try:
            total += sum(map(int, Path(f"/proc/{at}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except (OSError, ValueError):
            continue
    return total / os.sysconf("SC_CLK_TCK")


def child(*arguments: str) -> dict[str, Any]:
    """Runs this module again and takes its last line; adds the greatest memory it was seen with, and its processor
    seconds with those of every process that ended under way (Spark ends its Python workers, and nobody waits for them).
    """
    process = subprocess.Popen([sys.executable, "-m", __spec__.name, *arguments], stdout=subprocess.PIPE, text=True)
    peak = [0.0]
    used: dict[int, float] = {}
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.5):
            peak[0] = max(peak[0], _memory_mb(process.pid))
            for pid in process_tree(process.pid):
                used[pid] = max(used.get(pid, 0), _own_processor_s(pid))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        out, _ = process.communicate(timeout=CHILD_TIMEOUT_S)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        done.set()
    watcher.join()
    assert process.returncode == 0, out
    return {"processor_s": sum(used.values()), **json.loads(out.splitlines()[-1]), "memory_mb": round(peak[0])}


def _own_processor_s(pid: int) -> float:
    """Processor seconds of one process, without its children's."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return 0.0
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def read_logs(folder: str, cores: str, held: str) -> None:
    """Reads all entries with digests inside Spark, three times; the best counts. held: cores for all of it, 0 all."""
    if int(held):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(held)])
    from bkinspect.audit.session import session

    spark = session(f"local[{cores}]")
    columns = "size bigint, digest_ok boolean, content_digest bigint"
    entries = spark.read.format("bookkeeper.entries").options(paths=folder).schema(columns)
    rows: list[dict[str, Any]] = []
    for _ in range(3):
        started, used = time.perf_counter(), _processor_s(os.getpid())
        row = entries.load().selectExpr(
            "count(*) AS n", "count_if(digest_ok) AS good", "sum(size + 4) AS bytes", "bit_xor(content_digest) AS x"
        ).first()  # fmt: skip
        seconds, used = time.perf_counter() - started, _processor_s(os.getpid()) - used
        assert row is not None
        assert row["n"] == row["good"]
        rates = {"mb_s": row["bytes"] / seconds / 1e6, "mb_processor_s": row["bytes"] / used / 1e6}
        rows.append({"entries": row["n"], "seconds": seconds, **rates})
    print(json.dumps(min(rows, key=lambda one: float(one["seconds"]))))


def run_metadata(export: str, to: str) -> None:
    """The metadata checks of an export, on two cores."""
    from bkinspect.audit.facts import Sources
    from bkinspect.audit.job import Request, run
    from bkinspect.audit.session import session

    spark = session("local[2]")
    started = time.perf_counter()
    outcome = run(spark, Request(Sources(export), Path(to), METADATA_CHECKS))
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "counts": dict(outcome.counts)}))


def run_copies(folder: str, to: str) -> None:
    """All checks of a cluster of make_cluster, on two cores, after one reading of its entries."""
    from bkinspect.audit.facts import Sources
    from bkinspect.audit.job import Request, run
    from bkinspect.audit.session import session

    spark = session("local[2]")
    columns = "size bigint, digest_ok boolean, content_digest bigint"
    entries = spark.read.format("bookkeeper.entries").options(paths=folder).schema(columns)
    read_s = []
    for _ in range(2):
        started = time.perf_counter()
        entries.load().selectExpr("sum(size)", "count_if(digest_ok)", "bit_xor(content_digest)").first()
        read_s.append(time.perf_counter() - started)
    steps: list[tuple[str, float]] = []

    def progress(step: str, _done: int, _known: int) -> None:
        if not steps or steps[-1][0] != step:
            steps.append((step, time.perf_counter()))

    started = time.perf_counter()
    outcome = run(spark, Request(Sources(f"{folder}/export.parquet", (Path(folder),)), Path(to)), progress)
    seconds, ended = time.perf_counter() - started, time.perf_counter()
    ends = [at for _, at in steps[1:]] + [ended]
    spent = {name: round(end - at, 1) for (name, at), end in zip(steps, ends, strict=True)}
    row = {"seconds": seconds, "read_s": min(read_s), "counts": dict(outcome.counts), "steps": spent}
    print(json.dumps(row))


def main() -> None:
    """Parses, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["logs", "metadata", "copies", "export", "_logs", "_metadata", "_copies"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--gib", type=int, default=2)
    args = parser.parse_args()
    if args.what == "_logs":
        return read_logs(*args.rest)
    if args.what == "_metadata":
        return run_metadata(*args.rest)
    if args.what == "_copies":
        return run_copies(*args.rest)
    if args.what == "export":
        return make_export(Path(args.rest[0]), int(args.rest[1]))
    scratch = Path(tempfile.mkdtemp(prefix="bkctl-bench-audit-"))
    try:
        if args.what == "logs":
            total = make_logs(scratch / "bookie", args.gib << 30)
            print(f"{total / 1e6:.0f} MB in {args.gib} logs")
            rows = {}
            for name, cores, held in LOG_ROWS:
                row = rows[name] = child("_logs", str(scratch / "bookie"), cores, held)
                rates = f"{row['mb_s']:.0f} MB/s, {row['entries'] / row['seconds']:,.0f} entries/s"
                per = f"{row['mb_processor_s']:.0f} MB per processor second, {row['memory_mb']} MB"
                print(f"{name}: {rates}, {per}", flush=True)
            one, two, free = (rows[name]["mb_s"] for name, *_ in LOG_ROWS)
            print(f"two cores are {two / one:.2f} x one core, local[2] is {two / free:.2f} x local[1] on two cores")
            return None
        if args.what == "copies":
            make_cluster(scratch / "cluster", args.gib << 30)
            row = child("_copies", str(scratch / "cluster"), str(scratch / "run"))
            ratio = (
                f"{row['seconds']:.1f} s, {row['seconds'] / row['read_s']:.2f} x reading once ({row['read_s']:.1f} s)"
            )
            print(f"3 x {args.gib} GiB, all checks: {ratio}, {row['memory_mb']} MB, {row['counts']}")
            print(f"steps: {row['steps']}")
            return None
        for count in map(int, args.rest or ["100000"]):
            make_export(scratch / f"{count}.parquet", count)
            row = child("_metadata", str(scratch / f"{count}.parquet"), str(scratch / f"run-{count}"))
            times = f"{row['seconds']:.1f} s, {row['processor_s']:.0f} processor seconds with Spark's start"
            print(f"{count:,} ledgers: {times}, {row['memory_mb']} MB, {row['counts']}", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return None


if __name__ == "__main__":
    main()

"""How fast our broker is beside Java's, with the official Python client: `python -m tests.bench.broker`.

One ZooKeeper, three bookies (ours, or Java's, or first the one and then the other), and on them both brokers as
processes, each with metadata of its own. Every row is run on Java's, then on ours, as often as --repetitions says; the
best of each counts, and the ratio of the two. E, Qw, Qa are 2, 2, 2 for both, journals are synced. Beside each figure
stands the processor time that the broker took for a message, which is steadier than the clock on a busy machine.
Catch-up Shared is read once more by a client on one core, where its four threads cannot contend for their GIL.
Needs java and mvn (jars are fetched once). ^C stops every process by its pid. Exit code 1: a row is below its bar.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.interop.java_broker import JavaBroker
from tests.interop.java_cluster import JavaCluster, free_ports, why_not

BOOKIES: Final = 3
STARTS: Final = 2
ROW_TIMEOUT_S: Final = 300
START_TIMEOUT_S: Final = 120
SIDES: Final = ("java", "ours")
SETTINGS: Final = {  # of both brokers: what is written stays to be read
    "brokerDeleteInactiveTopicsEnabled": "false",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what load, what figure of it, and the bar of the issue (ours on its own or on Java's).

    A bar of 0 is none: the row explains another one.
    """

    load: str
    figures: tuple[str, ...]
    messages: int = 0
    options: tuple[str, ...] = ()
    of: str = ""  # the row that fills the topic which is read
    bar: float = 1.0
    bar_on_java: float | None = None

    @property
    def size(self) -> int:
        """Bytes of a message."""
        return int(self.options[self.options.index("--size") + 1]) if "--size" in self.options else 1024


_SMALL: Final = ("--size", "100")
ROWS: Final = {
    "produce batched 1 KB": Row("produce", ("per_s",), 200_000, ("--batched",)),
    "produce batched 100 B": Row("produce", ("per_s",), 300_000, ("--batched", *_SMALL)),
    "produce unbatched 1 KB": Row("produce", ("per_s",), 60_000),
    "produce unbatched 100 B": Row("produce", ("per_s",), 60_000, _SMALL),
    "one at a time": Row("sync", ("p50", "p99"), 1_000, bar=0.7, bar_on_java=1.0),
    "1,000 msg/s": Row("paced", ("p50", "p99"), 8_000, bar=0.8),
    "catch-up Exclusive 1 KB": Row("consume", ("per_s",), of="produce batched 1 KB"),
    "catch-up Exclusive 100 B": Row("consume", ("per_s",), of="produce batched 100 B"),
    "catch-up Shared 1 KB": Row("consume", ("per_s",), 0, ("--consumers", "4"), "produce batched 1 KB"),
    "catch-up Shared 100 B": Row("consume", ("per_s",), 0, ("--consumers", "4"), "produce batched 100 B"),
    "Shared 100 B on one core": Row(
        "consume", ("per_s",), 0, ("--consumers", "4", "--one-core"), "produce batched 100 B", bar=0
    ),
    "tail 1 KB": Row("tail", ("per_s",), 150_000),
    "100 topics": Row("topics", ("seconds",), 100, bar=0.5),
}
START, MEMORY, PEAK = "start", "memory after the load", "memory at its peak"
SETTLE_S: Final = 10
"""Between the last row and the look at memory."""
START_S_MAX: Final = 1.2
RSS_MB_MAX: Final = 160
LESS_IS_BETTER: Final = ("p50", "p99", "seconds", "mb")
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, all its threads."""
    text = Path(f"/proc/{pid}/stat").read_text()
    user, system = text[text.rindex(")") + 2 :].split()[11:13]
    return (int(user) + int(system)) * TICK_S


def rss_mb(pid: int, line: str = "VmRSS") -> float:
    """Its resident size now, or (VmHWM) at its highest."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(one.split()[1]) for one in lines if one.startswith(line)) / 1024


def listening(port: int) -> bool:
    """Whether somebody accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class OurBroker:
    """`bkctl broker start` as a process."""

    def __init__(self, cluster: JavaCluster, settings: list[str]) -> None:
        self.port, self.web_port, self.pid = free_ports(), free_ports(), 0
        self.log = cluster.home / "our-broker.log"
        self._conf = cluster.home / "our-broker.conf"
        self._process: subprocess.Popen[bytes] | None = None
        lines = {
            "clusterName": "ours",
            "metadataStoreUrl": f"zk:127.0.0.1:{cluster.zookeeper_port}",
            "advertisedAddress": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "brokerServicePort": self.port,
            "webServicePort": self.web_port,
            **SETTINGS,
            **dict(one.split("=", 1) for one in settings),
        }
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"pulsar://127.0.0.1:{self.port}"

    def up(self) -> float:
        """Starts it; seconds until both of its ports listen and it says `ready`."""
        began = time.perf_counter()
        command = [sys.executable, "-m", "bkctl", "broker", "start", "-c", str(self._conf)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith(b"ready "), f"our broker did not come up: {self.log.read_text()[-3000:]}"
        assert listening(self.port)
        assert listening(self.web_port)
        return time.perf_counter() - began

    def down(self) -> None:
        """SIGTERM, and SIGKILL if it does not end."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


class TheirBroker:
    """Java's, with Pulsar's metadata below a path of its own and BookKeeper's where ours has it too."""

    def __init__(self, cluster: JavaCluster) -> None:
        self.java, self.pid = JavaBroker(cluster), 0
        self.url = self.java.url
        self._cluster = cluster
        self._store = f"zk:127.0.0.1:{cluster.zookeeper_port}/java"
        self._made = False

    def _make_metadata(self) -> None:
        from kazoo.client import KazooClient

        zookeeper = KazooClient(f"127.0.0.1:{self._cluster.zookeeper_port}")
        zookeeper.start()
        zookeeper.ensure_path("/java")
        zookeeper.stop()
        zookeeper.close()
        words = ["--cluster", "lab", "--metadata-store", self._store, "--configuration-metadata-store", self._store]
        words += ["--existing-bk-metadata-service-uri", self._cluster.uri]
        words += ["--web-service-url", self.java.web_url, "--broker-service-url", self.java.url]
        self.java._run("java", "org.apache.pulsar.PulsarClusterMetadataSetup", *words, timeout=START_TIMEOUT_S)
        (self._cluster.home / "conf" / "pulsar-lab.initialised").write_text("")
        self._made = True

    def up(self) -> float:
        """Starts it; seconds from the start of its process until both of its ports listen."""
        if not self._made:
            self._make_metadata()
        settings = {
            "metadataStoreUrl": self._store,
            "configurationMetadataStoreUrl": self._store,
            "bookkeeperMetadataServiceUri": self._cluster.uri,
            **SETTINGS,
        }
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        answer = self.java._run("up", *sets, timeout=2 * START_TIMEOUT_S)
        words = answer.split()
        self.pid = int(words[words.index("pid") + 1])
        return float(words[words.index("in") + 1])

    def down(self) -> None:
        """Stops it by its pid."""
        self.java.down(kill=True)


Broker = OurBroker | TheirBroker


def tell(words: str) -> None:
    """Progress, on stderr."""
    print(words, file=sys.stderr, flush=True)


def load(broker: Broker, row: Row, topic: str, messages: int) -> dict[str, Any]:
    """One row on one broker; its figures, and `cpu_us` of the broker for a message."""
    command = [sys.executable, "-m", "tests.bench.broker_load", "--url", broker.url, "--row", row.load]
    command += ["--topic", topic, "--messages", str(messages), *row.options]
    before = cpu_s(broker.pid)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True)
    out = b""
    try:
        out, _ = process.communicate(timeout=ROW_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        tell(f"    {topic}: not done after {ROW_TIMEOUT_S} s")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # it, and the producer beside it
            process.wait()
    answer: dict[str, Any] = json.loads(out) if out.strip() else {"messages": 0, "errors": messages}
    answer["cpu_us"] = (cpu_s(broker.pid) - before) * 1e6 / max(1, answer["messages"])
    return answer


class Figures:
    """The best of each row, by figure and side."""

    def __init__(self) -> None:
        self.best: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        self.cpu_us: dict[tuple[str, str], float] = {}
        self.wrong: dict[str, int] = defaultdict(int)

    def add(self, name: str, side: str, figures: tuple[str, ...], answer: dict[str, Any]) -> None:
        """Counts an answer; one with errors has no figure."""
        tell(f"    {name}, {side}: {json.dumps({k: round(v, 3) for k, v in answer.items()})}")
        if answer.get("errors"):
            self.wrong[f"{name}, {side}"] += answer["errors"]
            return
        for figure in figures:
            known = self.best[name, figure].get(side)
            pick = min if figure in LESS_IS_BETTER else max
            self.best[name, figure][side] = answer[figure] if known is None else pick(known, answer[figure])
        if "cpu_us" in answer:
            self.cpu_us[name, side] = min(self.cpu_us.get((name, side), float("inf")), answer["cpu_us"])


@contextmanager
def bookies(cluster: JavaCluster, who: str) -> Iterator[None]:
    """Three bookies of one kind."""
    try:
        for index in range(BOOKIES):
            if who == "java":
                cluster.start_java(index)
            else:
                cluster.start_ours(index)
        yield
    finally:
        for index in range(BOOKIES):
            if who == "java":
                cluster.stop_java(index, kill=True)
            elif index in cluster.ours:
                cluster.stop_ours(index, kill=True)


def measure(cluster: JavaCluster, chosen: argparse.Namespace, names: list[str]) -> Figures:
    """All rows on the bookies that are up."""
    brokers: dict[str, Broker] = {}
    figures = Figures()
    try:
        for side in (chosen.only,) if chosen.only else SIDES:
            broker = brokers[side] = TheirBroker(cluster) if side == "java" else OurBroker(cluster, chosen.set)
            seconds = broker.up()
            for _ in range(STARTS - 1 if START in names else 0):
                broker.down()
                seconds = min(seconds, broker.up())
            figures.add(START, side, ("seconds",), {"seconds": seconds})
        for repetition in range(chosen.repetitions):
            tell(f"  {repetition + 1} of {chosen.repetitions}")
            for name in names:
                if name in ROWS:
                    for side, broker in brokers.items():
                        one_row(figures, broker, side, name, repetition, chosen.scale)
        time.sleep(SETTLE_S)
        for side, broker in brokers.items():
            figures.add(MEMORY, side, ("mb",), {"mb": rss_mb(broker.pid)})
            figures.add(PEAK, side, ("mb",), {"mb": rss_mb(broker.pid, "VmHWM")})
            if chosen.keep_logs and isinstance(broker, OurBroker):
                Path(chosen.keep_logs).write_bytes(broker.log.read_bytes())
    finally:
        for broker in brokers.values():
            broker.down()
    return figures


def one_row(figures: Figures, broker: Broker, side: str, name: str, repetition: int, scale: float) -> None:
    """One measurement; a row that reads reads what another has written in this repetition."""
    row = ROWS[name]
    filled = row.of or name
    topic = f"bench-{list(ROWS).index(filled)}-{repetition}"
    messages = max(100, int(ROWS[filled].messages * scale))
    if row.of:
        wanted = messages + 1  # and the one before the clock
        options = (*row.options, "--size", str(ROWS[filled].size))
        row = Row(row.load, row.figures, wanted, options)
        messages = wanted
    figures.add(name, side, row.figures, load(broker, row, topic, messages))


def report(figures: Figures, who: str) -> int:
    """Prints the table; how many figures are below their bars, or could not be had."""
    print(f"\non {'our' if who == 'ours' else 'Java'}{'' if who == 'ours' else chr(39) + 's'} bookies, best of each")
    print(f"{'':<26} {'':>8} {'java':>10} {'ours':>10} {'ratio':>6}  {'bar':<10} {'CPU µs a message':>18}  ")
    low = 0
    for (name, figure), sides in figures.best.items():
        java, ours = sides.get("java"), sides.get("ours")
        ratio = ours / java if java and ours else None
        bar, held = judge(name, figure, who, ratio, ours)
        low += not held
        cpu = [figures.cpu_us.get((name, side)) for side in SIDES]
        shown = " / ".join("-" if one is None else f"{one:,.1f}" for one in cpu)
        numbers = [("-" if one is None else f"{one:,.0f}" if one >= 100 else f"{one:.2f}") for one in (java, ours)]
        quotient = "-" if ratio is None else f"{ratio:.2f}"
        unit = {"per_s": "msg/s", "p50": "p50 ms", "p99": "p99 ms", "seconds": "s", "mb": "MB RSS"}[figure]
        verdict = "" if held else "MISSED"
        print(f"{name:<26} {unit:>8} {numbers[0]:>10} {numbers[1]:>10} {quotient:>6}  {bar:<10} {shown:>18}  {verdict}")
    for what, count in figures.wrong.items():
        print(f"{what}: {count} messages failed or are missing")
    return low + len(figures.wrong)


def judge(name: str, figure: str, who: str, ratio: float | None, ours: float | None) -> tuple[str, bool]:
    """A figure's bar, and whether it is held; one of a single side is held."""
    if name == START:
        return f"≤ {START_S_MAX} s", ours is None or ours <= START_S_MAX
    if name == MEMORY:
        return f"≤ {RSS_MB_MAX} MB", ours is None or ours <= RSS_MB_MAX
    if name == PEAK:
        return "", True
    row = ROWS[name]
    if not row.bar:
        return "", True
    bar = row.bar_on_java if who == "java" and row.bar_on_java is not None else row.bar
    if figure in LESS_IS_BETTER:
        return f"≤ {bar:g} ×", ratio is None or ratio <= bar
    return f"≥ {bar:g} ×", ratio is None or ratio >= bar


def across(kept: dict[str, dict[str, Any]]) -> None:
    """Prints what is had by going over from Java's broker on Java's bookies to ours on ours."""
    if len(kept) < len(SIDES):
        return
    print("\nour broker on our bookies, by Java's on Java's")
    for what, sides in kept["ours"]["best"].items():
        java, ours = kept["java"]["best"].get(what, {}).get("java"), sides.get("ours")
        if java and ours:
            print(f"{what:<36} {ours / java:.2f}")


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bookies", choices=("ours", "java", "both"), default="ours")
    every = [START, *ROWS]
    parser.add_argument("--rows", default=",".join(every).replace("1,000", "1000"), help="default all: %(default)s")
    parser.add_argument("--repetitions", type=int, default=3, help="of the whole sequence; the best counts")
    parser.add_argument("--only", choices=SIDES, help="one of the two brokers")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the messages of each row")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for our broker.conf")
    parser.add_argument("--keep-logs", metavar="FILE", help="our broker's log")
    parser.add_argument("--json", metavar="FILE", help="the figures as JSON")
    chosen = parser.parse_args()
    wanted = [name.strip().replace("1000", "1,000") for name in chosen.rows.split(",")]
    unknown = [name for name in wanted if name not in every]
    if unknown or why_not():
        parser.error(f"no such row: {', '.join(unknown)}" if unknown else str(why_not()))
    needed = {ROWS[name].of for name in wanted if name in ROWS} - {""}
    chosen.names = [name for name in every if name in needed or name in wanted]
    return chosen


def main() -> int:
    """Measures and prints the tables; 1 where a figure is below its bar."""
    chosen = arguments()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored in the background
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the way of ^C: everything is stopped
    low, kept = 0, {}
    for who in ("ours", "java") if chosen.bookies == "both" else (chosen.bookies,):
        cluster = JavaCluster(0)
        tell(f"{who} bookies, in {cluster.home}")
        try:
            with bookies(cluster, who):
                figures = measure(cluster, chosen, chosen.names)
        finally:
            cluster.down()
        low += report(figures, who)
        kept[who] = {
            "best": {f"{name}: {figure}": sides for (name, figure), sides in figures.best.items()},
            "cpu_us": {f"{name}: {side}": value for (name, side), value in figures.cpu_us.items()},
        }
    across(kept)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(kept, indent=1))
    return 1 if low else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; every process of the bench is gone")

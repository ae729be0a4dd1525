"""How fast our broker is beside Java's, with the official Python client: `python -m tests.bench.broker`.

Two clusters, one of our bookies and one of Java's, three each; on both of them both brokers as processes, each with
metadata of its own. E, Qw, Qa are 2, 2, 2 for all, journals are synced. A repetition runs every row on all of them, one
after the other, the next repetition in the reverse order; `broker_figures` says how they are compared. Beside each
figure stands the processor time that the broker took for a message, which is steadier than the clock on a busy machine.
Catch-up Shared is read once more by a client on one core, where its four threads cannot contend for their GIL.
Needs java and mvn (jars are fetched once). ^C stops every process by its pid. Exit code 1: a row is below its bar.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.broker_figures import Figures, alone, compare, head, line, tell
from tests.bench.broker_places import SIDES, Broker, OurBroker, Place, cpu_s, rss_mb
from tests.interop.java_cluster import why_not

STARTS: Final = 2
ROW_TIMEOUT_S: Final = 300


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what load, what figure of it, and the bars. A bar of 0 is none.

    Attributes:
        bar: for ours by Java's, on the same bookies.
        bar_on_java: where those are Java's, if it is another.
        bar_across: for ours on our bookies by Java's on Java's.
    """

    load: str
    figures: tuple[str, ...]
    messages: int = 0
    options: tuple[str, ...] = ()
    of: str = ""  # the row that fills the topic which is read
    bar: float = 1.0
    bar_on_java: float | None = None
    bar_across: float = 0

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
    "one at a time": Row("sync", ("p50", "p99"), 1_000, bar=0, bar_on_java=1.0, bar_across=0.7),
    "1,000 msg/s": Row("paced", ("p50", "p99"), 8_000, bar=0, bar_across=0.8),
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
MOST: Final = {START: START_S_MAX, MEMORY: RSS_MB_MAX}
"""For the best of ours: its first start makes the cluster's metadata too, which Java has a command for."""


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


def starts(figures: Figures, places: list[Place], names: list[str]) -> None:
    """Starts every broker, twice where that is a row."""
    for place in places:
        for side, broker in place.brokers.items():
            for left in reversed(range(STARTS if START in names else 1)):
                figures.add(place.who, side, START, ("seconds",), {"seconds": broker.up()})
                if left:
                    broker.down()


def measure(figures: Figures, places: list[Place], chosen: argparse.Namespace) -> None:
    """All rows on all that is up."""
    starts(figures, places, chosen.names)
    every = [(place.who, side, broker) for place in places for side, broker in place.brokers.items()]
    for repetition in range(chosen.repetitions):
        tell(f"  {repetition + 1} of {chosen.repetitions}")
        for name in chosen.names:
            if name in ROWS:
                for who, side, broker in every if repetition % 2 == 0 else reversed(every):
                    one_row(figures, who, side, broker, name, repetition, chosen.scale)
    time.sleep(SETTLE_S)
    for who, side, broker in every:
        figures.add(who, side, MEMORY, ("mb",), {"mb": rss_mb(broker.pid)})
        figures.add(who, side, PEAK, ("mb",), {"mb": rss_mb(broker.pid, "VmHWM")})
        if chosen.keep_logs and isinstance(broker, OurBroker):
            Path(f"{chosen.keep_logs}.{who}").write_bytes(broker.log.read_bytes())


def one_row(figures: Figures, who: str, side: str, broker: Broker, name: str, repetition: int, scale: float) -> None:
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
    figures.add(who, side, name, row.figures, load(broker, row, topic, messages))


def report(figures: Figures, who: str) -> int:
    """Prints the table of one kind of bookies; how many figures are below their bars."""
    head(f"on {'our' if who == 'ours' else 'Java' + chr(39) + 's'} bookies")
    low = 0
    for place, name, figure in list(figures.found):
        if place != who:
            continue
        row = ROWS.get(name)
        bar = 0.0 if row is None else row.bar
        if row is not None and who == "java" and row.bar_on_java is not None:
            bar = row.bar_on_java
        java, ours = figures.pairs(name, figure, who, who)
        if java:
            verdict = compare(java, ours, figure, bar)
            low += verdict.word == "MISSED"
            line(name, figure, verdict, figures.cpu(who, name))
        else:
            for values in figures.found[who, name, figure].values():
                if measured := [one for one in values if one is not None]:
                    alone(name, figure, measured, figures.cpu(who, name))
        measured = [one for one in figures.found[who, name, figure].get("ours", []) if one]
        if measured and name in MOST and min(measured) > MOST[name]:
            low += 1
            print(f"  MISSED: {min(measured):.2f}, at most {MOST[name]}")
    return low


def across(figures: Figures) -> int:
    """Prints what is had by going over from Java's broker on Java's bookies to ours on ours."""
    head("our broker on our bookies, by Java's on Java's")
    low = 0
    for place, name, figure in list(figures.found):
        java, ours = figures.pairs(name, figure, "java", "ours")
        if place == "ours" and java:
            verdict = compare(java, ours, figure, ROWS[name].bar_across if name in ROWS else 0)
            low += verdict.word == "MISSED"
            line(name, figure, verdict, "")
    return low


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bookies", choices=("ours", "java", "both"), default="ours")
    every = [START, *ROWS]
    parser.add_argument("--rows", default=",".join(every).replace("1,000", "1000"), help="default all: %(default)s")
    parser.add_argument("--repetitions", type=int, default=5, help="of the whole sequence; medians count")
    parser.add_argument("--only", choices=SIDES, help="one of the two brokers")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the messages of each row")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for our broker.conf")
    parser.add_argument("--keep-logs", metavar="FILE", help="our brokers' logs, as FILE.ours and FILE.java")
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
    figures = Figures()
    wanted = [chosen.only] if chosen.only else list(SIDES)
    kinds = ["ours", "java"] if chosen.bookies == "both" else [chosen.bookies]
    with ExitStack() as stack:
        places = [stack.enter_context(Place(who, wanted, chosen.set).up()) for who in kinds]
        measure(figures, places, chosen)
    low = sum(report(figures, who) for who in kinds)
    if len(kinds) == len(SIDES):
        low += across(figures)
    for what, count in figures.wrong.items():
        print(f"{what}: {count} messages failed or are missing")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(figures.as_json(), indent=1))
    return 1 if low or figures.wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; every process of the bench is gone")

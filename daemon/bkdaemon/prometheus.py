"""Samples in Prometheus' text format, and those of every process."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4"


class Sample(NamedTuple):
    """One line of the text format. kind is counter or gauge; a counter never decreases."""

    name: str
    kind: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


def render(samples: Iterator[Sample]) -> str:
    """Returns samples in the text format."""
    lines: list[str] = []
    typed: set[str] = set()
    for name, kind, value, labels in samples:
        if name not in typed:
            typed.add(name)
            lines.append(f"# TYPE {name} {kind}")
        text = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels)
        lines.append(f"{name}{{{text}}} {value:.15g}" if text else f"{name} {value:.15g}")
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def process_samples() -> Iterator[Sample]:
    """Yields the metrics of this process, by the names that Prometheus' clients use."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield Sample("process_cpu_seconds_total", "counter", used.ru_utime + used.ru_stime)
    unit = 1 if sys.platform == "darwin" else 1024
    yield Sample("process_max_resident_memory_bytes", "gauge", used.ru_maxrss * unit)
    if os.path.isdir("/proc/self/fd"):
        yield Sample("process_open_fds", "gauge", len(os.listdir("/proc/self/fd")))

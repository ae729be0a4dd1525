"""The allocator keeps what a cache gave back."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys

import pytest
from bkdaemon.memory import keep_memory

FILL_TWICE = """
import resource, sys
from bkdaemon.memory import keep_memory
if "keep" in sys.argv:
    keep_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    cache = [bytes([n % 256]) * 1056 for n in range(60_000)]
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    del cache
print(faults)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_cache_that_is_filled_again_costs_no_page_faults() -> None:
    faults = {
        how: int(subprocess.run([sys.executable, "-c", FILL_TWICE, how], capture_output=True, check=True).stdout)
        for how in ("keep", "leave")
    }
    pages = 60_000 * 1056 // resource.getpagesize()
    assert faults["keep"] < pages / 10 < faults["leave"]


def test_keep_memory_reports_whether_the_allocator_supports_it() -> None:
    script = "from bkdaemon.memory import keep_memory; print(keep_memory())"  # in a process of its own: it lasts
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout.strip()
    assert said == str(platform.libc_ver()[0] == "glibc")
    assert callable(keep_memory)


FRAGMENTED = """
from bkdaemon.memory import Slack, resident_bytes
kept = [bytes([n % 256]) * 70_000 for n in range(1000)]
low = kept[::50]
slack = Slack(10_000_000)
print(slack.give_back())  # all of it is used
before = resident_bytes()
del kept  # but every fiftieth
given, after = slack.give_back(), resident_bytes()
print(given, before - after > 40_000_000)
print(slack.give_back())  # nothing has grown since
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_free_memory_between_used_pieces_is_returned_once() -> None:
    said = subprocess.run([sys.executable, "-c", FRAGMENTED], capture_output=True, check=True, text=True).stdout
    assert said.split() == ["False", "True", "True", "False"]

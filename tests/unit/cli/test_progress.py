from __future__ import annotations

import io

import pytest

from bkctl.cli.progress import Progress, size_words


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (1 << 62, "4096.0 PiB")]
)
def test_sizes(size: int, words: str) -> None:
    assert size_words(size) == words


def test_counts_rate_and_time_left() -> None:
    progress = Progress(None, "entries", terminal=False, total=400)
    progress.add(100, 4096)
    assert progress.text(2.0) == "100 of 400 entries, 4.0 KiB, 2.0 KiB/s, 50 entries/s, 6 s left"
    assert Progress(None, "ledgers", terminal=False).text(1.0) == "0 ledgers, 0 ledgers/s"


def test_a_terminal_sees_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkctl.cli.progress.MOVE_S", 0.0)
    out = io.StringIO()
    progress = Progress(out, "entries", terminal=True)
    progress.add(1)
    progress.add(1)
    assert "\n" not in out.getvalue()
    progress.end()
    assert out.getvalue().endswith(" \r")


def test_elsewhere_there_are_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    progress = Progress(out, "entries", terminal=False)
    progress.add(1)
    assert out.getvalue() == ""
    monkeypatch.setattr("bkctl.cli.progress.LINE_S", 0.0)
    progress.add(1)
    progress.end()
    assert out.getvalue().startswith("2 entries, ")
    assert out.getvalue().endswith("\n")

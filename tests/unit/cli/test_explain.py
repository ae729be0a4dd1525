"""`bkctl explain`: one code, all codes, no such code."""

from __future__ import annotations

from bkinspect.finding import CODES

from tests.command_line import bkctl


def test_explain() -> None:
    one = bkctl("explain", "bkc103", "-o", "json").json()
    assert one["code"] == "BKC103"
    assert one["severity"] == "error"
    assert one["text"]
    several = bkctl("explain", "BKC103", "BKC201", "-o", "json").json()["items"]
    assert [item["code"] for item in several] == ["BKC103", "BKC201"]
    assert len(bkctl("explain", "-o", "jsonl").rows()) == len(CODES)
    assert bkctl("explain", "BKC999").code == 4

"""Properties files: their syntax, the parsers of values, and the errors with file and line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.properties import (
    check_bounds,
    config_of,
    flag,
    java_flag,
    java_int,
    java_long,
    key,
    limit,
    long_limit,
    number,
    one_of,
    parse_properties,
    port,
    read_properties,
    words,
)

from bkctl.errors import UsageError


@dataclass(frozen=True)
class Config:
    """A configuration of two keys."""

    port: int = key("somePort", port, 3181, least=1)
    share: float = key("share", number, 0.5, least=0, most=1)
    unknown: Mapping[str, str] = field(default_factory=dict)


def config(text: str, **overrides: object) -> Config:
    return config_of(Config, parse_properties(text), source="a.conf", **overrides)


def test_comments_separators_and_continued_lines_are_read_with_the_line_of_their_start() -> None:
    text = "# a\n! b\n\na=1\n b : 2 \nc=x,\\\n   y\na=3\nd\ne=p=q\n"
    assert parse_properties(text) == {"a": ("3", 8), "b": ("2", 5), "c": ("x,y", 6), "d": ("", 9), "e": ("p=q", 10)}


def test_an_unfinished_continuation_at_the_end_is_dropped() -> None:
    assert parse_properties("a=1\nb=2\\") == {"a": ("1", 1)}


def test_fields_take_their_keys_and_other_keys_are_kept_as_unknown() -> None:
    assert config("") == Config()
    assert config("somePort=\nshare=") == Config(), "an empty value is the default"
    found = config("somePort=80\nother=x", share=0.25)
    assert found == Config(80, 0.25, {"other": "x"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nsomePort=many", r"a\.conf:2: somePort=many: "),
        ("somePort=0", r"a\.conf:1: somePort=0 is below 1"),
        ("\n\nshare=1.5", r"a\.conf:3: share=1.5 is above 1"),
    ],
)
def test_a_bad_value_is_reported_with_file_line_and_key(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config(text)


def test_bounds_are_checked_on_values_without_a_file() -> None:
    check_bounds(Config())
    with pytest.raises(UsageError, match="share=nan is below 0"):
        check_bounds(Config(share=float("nan")))


@pytest.mark.parametrize(
    ("parse", "good", "bad"),
    [
        (flag, {"TRUE": True, "yes": True, "on": True, "No": False, "off": False}, ["1", "", "truth"]),
        (java_flag, {"True": True, "false": False}, ["yes", "on", "0"]),
        (java_int, {"-2147483648": -(2**31), "+7": 7, "2147483647": 2**31 - 1}, ["2147483648", "1.0", "1_000", " 1"]),
        (java_long, {"9223372036854775807": 2**63 - 1}, ["9223372036854775808", "x"]),
        (limit, {"-1": 0, "0": 0, "5": 5}, ["5000000000"]),
        (long_limit, {"-1": 0, "5000000000": 5_000_000_000}, ["five"]),
        (number, {"1": 1.0, ".5": 0.5, "2.": 2.0, "1e3": 1000.0}, ["nan", "inf", "1e999", "0x10", ""]),
        (port, {"0": 0, "65535": 65535}, ["65536", "-1", "+1", "http"]),
        (one_of("A", "B"), {"A": "A", "B": "B"}, ["a", "C", ""]),
    ],
)
def test_values_are_read_as_java_reads_them(
    parse: Callable[[str], Any], good: Mapping[str, object], bad: list[str]
) -> None:
    assert {text: parse(text) for text in good} == good
    for text in bad:
        with pytest.raises(ValueError, match=r"."):
            parse(text)


def test_lists_are_split_at_commas_and_empty_items_dropped() -> None:
    assert words(" a, b ,,c,") == ("a", "b", "c")
    assert words(",") == ()


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "latin1.conf").write_bytes(b"a=\xe4\n")
    for name in ("missing.conf", "latin1.conf"):
        with pytest.raises(UsageError, match=f"cannot read .*{name}"):
            read_properties(tmp_path / name)

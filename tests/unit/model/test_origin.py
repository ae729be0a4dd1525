from __future__ import annotations

import pytest

from bkctl.model.origin import origin, origins


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://b:8080/admin/v2?x=y", "http://b:8080"),
        ("HTTP://B:8080", "http://b:8080"),
        ("http://b", "http://b:80"),
        ("https://b/", "https://b:443"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
        ("ftp://b/x", None),
        ("file:///etc/passwd", None),
        ("data:,x", None),
        ("b:8080", None),
        ("//b:8080/x", None),
        ("http:///x", None),
        ("http://a@b:8080/", None),
        ("http://b:x/", None),
        ("http://b:99999/", None),
        ("http://b:8080/\r\nX: y", None),
        ("", None),
    ],
)
def test_origin(url: str, expected: str | None) -> None:
    assert origin(url) == expected


def test_origins_leave_out_what_has_none() -> None:
    assert origins(["http://b:8080", "pulsar://b:6650", None, 5]) == {"http://b:8080"}

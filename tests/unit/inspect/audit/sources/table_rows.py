"""The rows of a reader in a comparable form."""

from __future__ import annotations

from typing import Any


def rows_of(reader: Any) -> list[str]:
    """Each row as text, sorted."""
    return sorted(repr(row) for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist())

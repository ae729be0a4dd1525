"""Parses the locations of an audit: local paths, file: URIs, and for a run's folder URIs of Hadoop's file systems."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bkctl.errors import UsageError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""Matches a URI scheme as Hadoop does, also in s3a:/x; a single letter before the colon is not a scheme."""
_FILE: Final = re.compile(r"file:(?://(?:localhost)?/|/(?!/))(.*)", re.IGNORECASE | re.DOTALL)
HADOOP_SCHEMES: Final = ("s3a", "hdfs", "abfs", "abfss", "gs", "viewfs")
"""Schemes of a run's folder; Spark's jars support hdfs and viewfs, the other schemes need additional jars."""
FACTS_SCHEMES: Final = (*HADOOP_SCHEMES, "s3", "s3n", "gcs")
"""Schemes that collectors support; the file system that Spark uses for s3 depends on its Hadoop settings."""
_PATTERN: Final = frozenset("*?[]{}\\")
_DRIVER: Final = "zk"
_HINT: Final = "a path, or file:///PATH"
_INPUT_HINT: Final = f"{_HINT}: bookies' files and metadata are read from mounted file systems only"


def run_place(option: str, text: str, schemes: Sequence[str] = HADOOP_SCHEMES) -> Path | str:
    """Returns the location of a run's folder, for storage_of: a local path, or the URI of another file system.

    Args:
        option: the option's name, for the message; schemes: the supported schemes of URIs.

    Raises:
        UsageError: the scheme is not supported, or the URI has characters that Spark takes for a pattern.
    """
    scheme = _scheme(text)
    if scheme not in schemes:
        return local_path(option, text, f"{_HINT}, or a URI of {', '.join(schemes)}")
    if strange := sorted(_PATTERN.intersection(text)):
        raise UsageError(f"{option} {text}: {' '.join(strange)} is not supported in a URI")
    return text


def local_path(option: str, text: str, hint: str = _INPUT_HINT) -> Path:
    """Returns the local path that an option names, as a path or as file:///PATH.

    Characters of a URI are taken literally, without percent-decoding, as Hadoop does.

    Args:
        option: the option's name, for the message; hint: the supported locations.

    Raises:
        UsageError: the text is a URI of another scheme or another host.
    """
    scheme = _scheme(text)
    if scheme is None:
        return Path(text)
    if scheme != "file":
        raise UsageError(f"{option} {text}: scheme {scheme} is not supported", hint=hint)
    match = _FILE.fullmatch(text)
    if match is None:
        raise UsageError(f"{option} {text}: a file URI of another host is not supported", hint=hint)
    return Path("/" + match[1].lstrip("/"))


def metadata_place(option: str, text: str) -> str:
    """Returns the URI of a metadata store unchanged, or local paths separated by commas.

    Raises:
        UsageError: the URI has another scheme or is not valid.
    """
    from bkctl.meta.uri import parse_uri

    if (_scheme(text) or "").partition("+")[0] == _DRIVER:
        parse_uri(text)
        return text
    if _scheme(text) is None and Path(text).exists():
        return str(Path(text))
    return ",".join(str(local_path(option, part)) for part in text.split(","))


def _scheme(text: str) -> str | None:
    match = _SCHEME.match(text)
    return None if match is None else match[1].lower()

"""Where an audit reads and writes: paths and file: URIs of this machine, and for a run's folder URIs of Hadoop's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bkctl.errors import UsageError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""What Hadoop takes for a scheme, s3a:/x too; one letter before the colon is a name."""
_FILE: Final = re.compile(r"file:(?://(?:localhost)?/|/(?!/))(.*)", re.IGNORECASE | re.DOTALL)
HADOOP_SCHEMES: Final = ("s3a", "hdfs", "abfs", "abfss", "gs", "viewfs")
"""File systems that a run can be kept on; Spark's jars have those of hdfs and viewfs, the others need their own."""
FACTS_SCHEMES: Final = (*HADOOP_SCHEMES, "s3", "s3n", "gcs")
"""Those that collectors write to; what Spark reads under s3 depends on its Hadoop settings."""
_PATTERN: Final = frozenset("*?[]{}\\")
_DRIVER: Final = "zk"
_HINT: Final = "a path, or file:///PATH"
_INPUT_HINT: Final = f"{_HINT}: bookies' files and metadata are read from mounted file systems only"


def run_place(option: str, text: str, schemes: Sequence[str] = HADOOP_SCHEMES) -> Path | str:
    """Where a run is kept: a path of this machine, or the URI of another file system, as storage_of takes it.

    Args:
        option: the argument's name, for the message; schemes: of the URIs that it takes.

    Raises:
        UsageError: a URI of a scheme that is not supported, or with characters that Spark takes for a pattern.
    """
    scheme = _scheme(text)
    if scheme not in schemes:
        return local_path(option, text, f"{_HINT}, or a URI of {', '.join(schemes)}")
    if strange := sorted(_PATTERN.intersection(text)):
        raise UsageError(f"{option} {text}: {' '.join(strange)} is not supported in a URI")
    return text


def local_path(option: str, text: str, hint: str = _INPUT_HINT) -> Path:
    """The path of a plain argument, or of file:///PATH, whose characters are taken literally, as Hadoop does.

    Args:
        option: the argument's name, for the message; hint: the locations that it takes.

    Raises:
        UsageError: a URI of another scheme, or of another host.
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
    """The URI of a metadata store as it is, or local paths separated by commas.

    Raises:
        UsageError: a URI of another scheme, or one that is not valid.
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

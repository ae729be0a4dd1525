"""Where settings come from besides the command line: properties files, profiles, the local cluster's state file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from bkctl.errors import NotFound, UsageError

CONFIG_FILE = "config.toml"
LOCAL_CLUSTER_FILE = "local-cluster.json"


def config_dir(environ: Mapping[str, str]) -> Path:
    """The directory of the user's settings."""
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else _home(environ) / ".config") / "bkctl"


def state_dir(environ: Mapping[str, str]) -> Path:
    """The directory of state between two commands."""
    own = environ.get("BKCTL_STATE_DIR")
    if own:
        return Path(own)
    base = environ.get("XDG_STATE_HOME")
    return (Path(base) if base else _home(environ) / ".local" / "state") / "bkctl"


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or os.path.expanduser("~"))


def read_properties(path: Path) -> dict[str, str]:
    """A properties file such as bk_server.conf, or a bkenv.sh; unknown keys are kept, the last of a key wins."""
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        raise NotFound(f"configuration file does not exist: {path}") from None
    found: dict[str, str] = {}
    for line in text.replace("\\\n", "").splitlines():
        line = line.strip().removeprefix("export ")
        if not line or line[0] in "#!":
            continue
        key, separator, value = line.partition("=")
        if not separator:
            key, _, value = line.partition(":")
        found[key.strip()] = value.strip().strip("\"'")
    return found


def metadata_uri_of(properties: Mapping[str, str]) -> str | None:
    """The metadata store that a BookKeeper configuration names, by its new key or by its old ones."""
    uri = properties.get("metadataServiceUri") or properties.get("BK_metadataServiceUri")
    if uri and uri != "null":
        return uri
    servers = properties.get("zkServers") or properties.get("BK_zkServers")
    if not servers:
        return None
    root = properties.get("zkLedgersRootPath") or properties.get("BK_zkLedgersRootPath") or "/ledgers"
    return f"zk+null://{servers.replace(',', ';')}{root}"


def read_profile(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of `[profile.NAME]` in config.toml, by option name (`metadata-uri`, `output` …)."""
    import tomllib

    path = config_dir(environ) / CONFIG_FILE
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("profile", {})
    except FileNotFoundError:
        raise NotFound(f"profile is not defined: {name!r}: {path} does not exist") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from None
    profile = tables.get(name) if isinstance(tables, dict) else None
    if not isinstance(profile, dict):
        known = ", ".join(sorted(tables)) if isinstance(tables, dict) else ""
        raise NotFound(f"[profile.{name}] is missing in {path}", hint=f"known profiles: {known}" if known else None)
    return {str(key).replace("_", "-"): str(value) for key, value in profile.items()}


def local_cluster_uri(environ: Mapping[str, str]) -> str | None:
    """The metadata URI of the running local cluster, or None."""
    try:
        state = json.loads((state_dir(environ) / LOCAL_CLUSTER_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    uri = state.get("metadata_uri") if isinstance(state, dict) else None
    return uri if isinstance(uri, str) else None

"""The environment of a command: streams, options, settings, the terminal. Tests supply their own."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

from bkctl.cli import config, confirm, names
from bkctl.cli.command import Command, Effect
from bkctl.cli.render import Format, Item, Listing, Renderer, rfc3339
from bkctl.errors import BkctlError, Exit, NotFound, Refused, UsageError
from bkctl.model.ids import LedgerId
from bkctl.model.text import escape_controls

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from bkctl.cli.access import ClusterAccess, StoreOpener
    from bkctl.cli.progress import Progress

CONNECT_TIMEOUT_S: Final = 15.0
CONNECT_SHARE: Final = 0.75
"""Of the time for the whole command."""
NO_TIMEOUT: Final = 0.0
"""`--timeout 0`: no limit."""


@dataclass(frozen=True, slots=True)
class Options:
    """The global options as one level of the command line gives them; None or False where it does not."""

    metadata_uri: str | None = None
    conf: str | None = None
    profile: str | None = None
    output: str | None = None
    timeout: float | None = None
    quiet: bool = False
    verbose: int = 0
    yes: bool = False
    dry_run: bool = False
    no_color: bool = False

    def over(self, below: Options) -> Options:
        """These options where they are given, those of the level before elsewhere."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return replace(below, **given)


@dataclass(slots=True)
class Env:
    """The environment of one command. Streams are binary, so that `--raw` and tables share one stdout."""

    stdin: BinaryIO
    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]
    options: Options = field(default_factory=Options)
    command: Command = field(default_factory=lambda: Command(Effect.READS, ()))
    exit: Exit = Exit.OK
    """The exit code of a completed command: FINDINGS means "no", or "some of many failed"."""
    store_opener: StoreOpener | None = None
    """Opens the metadata store; None takes the one the URI names. Tests supply a store in memory."""
    warnings: list[str] = field(default_factory=list)
    arguments: tuple[str, ...] = ()
    """The command line without the program's name."""
    _confirmed: bool = False
    _settings: dict[str, str] | None = None
    _properties: dict[str, str] | None = None
    _noted_local: bool = False

    # -- settings: flags > environment > profile > configuration file > default > local cluster

    def setting(self, name: str) -> str | None:
        """A setting by its long option's name, from environment or profile; None if neither has it."""
        from_environment = self.environ.get("BKCTL_" + name.upper().replace("-", "_"))
        if from_environment:
            return from_environment
        if self._settings is None:
            profile = self.options.profile or self.environ.get("BKCTL_PROFILE")
            self._settings = config.read_profile(profile, self.environ) if profile else {}
        return self._settings.get(name)

    @property
    def conf_path(self) -> Path | None:
        """The properties file of -c, or None."""
        path = self.options.conf or self.setting("conf")
        return Path(path) if path else None

    def server_conf(self, example: str) -> Path:
        """The properties file of -c, without which a server does not start.

        Raises:
            UsageError: none is given; example is the hint. NotFound: it does not exist.
        """
        path = self.conf_path
        if path is None:
            raise UsageError("no configuration is given", hint=example)
        if not path.exists():
            raise NotFound(f"configuration file does not exist: {path}")
        return path

    @property
    def properties(self) -> Mapping[str, str]:
        """The keys of the properties file; empty without one."""
        if self._properties is None:
            path = self.conf_path
            self._properties = config.read_properties(path) if path else {}
        return self._properties

    @property
    def format(self) -> Format:
        """The output format."""
        text = self.options.output or self.setting("output") or Format.TABLE
        try:
            return Format(text)
        except ValueError:
            raise UsageError(f"{text!r} is not a valid output format", hint="one of " + ", ".join(Format)) from None

    @property
    def timeout_s(self) -> float | None:
        """For the whole command; None: no limit."""
        value: float | None = self.options.timeout
        if value is None and (text := self.setting("timeout")) is not None:
            try:
                value = float(text)
            except ValueError:
                raise UsageError(f"timeout {text!r} is not a number of seconds") from None
        if value is None:
            return self.command.timeout_s
        if value < 0:
            raise UsageError(f"timeout {value} is negative")
        return None if value == NO_TIMEOUT else value

    @property
    def connect_timeout_s(self) -> float:
        """For the first answer of a server: CONNECT_TIMEOUT_S, or less than the command's own timeout.

        Shorter than the command's timeout, so that the error names the server that does not answer.
        """
        limit = self.timeout_s
        return CONNECT_TIMEOUT_S if limit is None else min(limit * CONNECT_SHARE, CONNECT_TIMEOUT_S)

    @property
    def metadata_uri(self) -> str:
        """Where the metadata store is.

        Raises:
            UsageError: no setting names it.
        """
        uri = self.options.metadata_uri or self.setting("metadata-uri") or config.metadata_uri_of(self.properties)
        if uri:
            return uri
        uri = config.local_cluster_uri(self.environ)
        if uri is None:
            raise UsageError(
                "no metadata store is given",
                hint="-m zk+hierarchical://HOST:2181/ledgers, or BKCTL_METADATA_URI; `bkctl dev up` starts a cluster",
            )
        if not self._noted_local:
            self._noted_local = True
            self.note(f"using the local cluster at {uri}")
        return uri

    @property
    def state_dir(self) -> Path:
        """The directory of state between two commands."""
        return config.state_dir(self.environ)

    # -- arguments

    def names(self, given: Iterable[str]) -> Iterator[str]:
        """Names with `-` and `@file` expanded."""
        return names.expand(given, self.stdin)

    def ledger_ids(self, given: Iterable[str]) -> Iterator[LedgerId]:
        """Ledger ids with `-` and `@file` expanded."""
        return names.ledger_ids(given, self.stdin)

    # -- messages to the user

    def note(self, text: str) -> None:
        """Writes a message to stderr, on one line without control characters, unless --quiet."""
        if not self.options.quiet:
            self.stderr.write(escape_controls(text) + "\n")
            self.stderr.flush()

    def warn(self, text: str) -> None:
        """Adds a warning, which is written to stderr and to the warnings of a list."""
        self.warnings.append(text)
        self.note(f"warning: {text}")

    def detail(self, text: str) -> None:
        """Writes a message to stderr, with -v only."""
        if self.options.verbose:
            self.note(text)

    def progress(self, unit: str, total: int | None = None) -> Progress:
        """Shows the progress of long work on stderr; silent with --quiet, or if rows go to the same terminal."""
        from bkctl.cli.progress import Progress

        terminal = _is_terminal(self.stderr)
        silent = self.options.quiet or (terminal and _is_terminal(self.stdout))
        return Progress(None if silent else self.stderr, unit, terminal=terminal, total=total)

    @property
    def color(self) -> bool:
        """False if colors are disabled."""
        return not (self.options.no_color or self.environ.get("NO_COLOR"))

    @property
    def raw_stdout(self) -> BinaryIO:
        """Stdout for bytes as they are."""
        self.stdout.flush()
        return self.stdout.buffer

    # -- effects

    @property
    def may_write(self) -> bool:
        """True if the command may change data: its effect permits it, and the plan is confirmed if required."""
        if self.command.effect is Effect.READS or self.options.dry_run:
            return False
        return self._confirmed or not self.command.asks or self.command.effect is Effect.PROBES

    def check_may_write(self, what: str) -> None:
        """Guards a change.

        Raises:
            Refused: the command only reads, or its plan is not confirmed.
        """
        if not self.may_write:
            raise Refused(f"{what}: refused, because this command's effect is only {self.command.effect}")

    def confirm(self, plan: confirm.Plan) -> None:
        """Shows the plan and returns once it is confirmed; see bkctl.cli.confirm.

        Raises:
            Refused: the plan was not confirmed. DryRun: ends the command with exit 0.
        """
        if self.command.effect is Effect.READS:
            raise AssertionError("a command that reads has nothing to confirm")
        terminal = _is_terminal(self.stdin) and _is_terminal(self.stderr)
        answers = sys.stdin if terminal else None
        confirm.confirm(
            plan,
            self.command.effect,
            yes=self.options.yes,
            dry_run=self.options.dry_run,
            answers=answers,
            messages=self.stderr,
        )
        self._confirmed = True

    # -- the answer

    def renderer(self) -> Renderer:
        """Writes the answer to stdout in the format that was asked for."""
        return Renderer(self.stdout, self.format, self.command, terminal=_is_terminal(self.stdout), color=self.color)

    def show(self, answer: Item) -> None:
        """Renders what a command returned: an item, a list or iterator of items, a Listing; None is silence."""
        if answer is None:
            return
        if isinstance(answer, Listing):
            self.renderer().items(answer)
        elif isinstance(answer, Iterator) or (isinstance(answer, list | tuple) and not hasattr(answer, "_asdict")):
            self.renderer().items(self.listing(answer))
        else:
            self.renderer().item(answer)

    def listing(self, items: Iterable[Item]) -> Listing:
        """A list as of now, with the warnings of this command."""
        return Listing(items, as_of=rfc3339(time.time_ns() // 1_000_000), warnings=self.warnings)

    # -- the cluster

    def cluster(self) -> AbstractAsyncContextManager[ClusterAccess]:
        """Opens the metadata store: `async with env.cluster() as cluster`."""
        from bkctl.cli.access import open_cluster

        return open_cluster(self)


class PatientStream(io.TextIOWrapper):
    """A stream for messages that may be lost: if writing fails, the command continues without them.

    A closed pipe (`2>&1 | head`) or a full disk under a log must not interrupt a job.
    """

    def write(self, text: str) -> int:
        """Writes; after a failure drops all output."""
        try:
            return super().write(text)
        except OSError:
            return self._give_up(len(text))

    def flush(self) -> None:
        """Flushes; after a failure drops all output."""
        try:
            super().flush()
        except OSError:
            self._give_up(0)

    def _give_up(self, size: int) -> int:
        import os

        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # For other writers of the stream, too.
            super().flush()
        except (OSError, ValueError):
            pass  # The error cannot be reported anywhere.
        return size


def system_env() -> Env:
    """The Env of this process. Output is UTF-8 whatever the locale; a closed stream is replaced by /dev/null."""
    import os

    stdin = sys.stdin.buffer if sys.stdin is not None else open(os.devnull, "rb")  # noqa: SIM115 - lives as long as we do
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if hasattr(sys.stderr, "buffer"):
        sys.stderr = PatientStream(sys.stderr.buffer, "utf-8", "backslashreplace", line_buffering=True)
    return Env(stdin, sys.stdout, sys.stderr, os.environ)


def _is_terminal(stream: BinaryIO | TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def error_record(error: BkctlError) -> dict[str, Item]:
    """The error as cli.md's one JSON object."""
    return {
        "error": {
            "kind": error.kind,
            "exit_code": int(error.exit),
            "message": error.message,
            "retryable": error.retriable,
            "hint": error.hint,
            "details": error.details,
        }
    }

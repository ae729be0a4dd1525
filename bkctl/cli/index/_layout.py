"""The directories of `index check` and `index rebuild`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.env import Env
from bkctl.cli.offline import INDEX_KEYS, JOURNAL_KEYS, LEDGER_KEYS, configured
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkinspect.layout import Layout

IndexDirectory = Annotated[
    Path | None,
    typer.Argument(metavar="[DIR]", help="one index directory, whose cookie names the others; default: all of -c"),
]


def layout(env: Env, directory: Path | None) -> Layout:
    """The directories of the bookie that DIR or -c mean.

    Raises:
        UsageError: neither names a directory. NotFound: a directory is missing.
    """
    from bkinspect.layout import layout_of, layout_of_index

    journals, ledgers = configured(env, JOURNAL_KEYS), configured(env, LEDGER_KEYS)
    if directory is None:
        if not ledgers:
            raise UsageError(
                "no index directory is given", hint="use DIR, or -c CONF with journalDirectories and ledgerDirectories"
            )
        return layout_of(journals, ledgers, configured(env, INDEX_KEYS))
    if not ledgers:
        return layout_of_index(directory)
    whole = layout_of(journals, ledgers, configured(env, INDEX_KEYS))
    return whole.only(directory)

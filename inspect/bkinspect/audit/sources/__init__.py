"""The Spark data sources `bookkeeper.*`; `bkinspect.audit.register` registers them in a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkinspect.audit.sources.base import Source


def all_sources() -> list[type[Source]]:
    """Returns all data sources, for `spark.dataSource.register`."""
    from bkinspect.audit.sources import ends, file_list, index, live, metadata, scan

    own = [scan.RecordsSource, scan.EntriesSource, scan.ScanSource, index.IndexSource, index.BookieLedgersSource]
    return [*own, file_list.FilesSource, live.CopiesSource, ends.EndsSource, *metadata.ALL]

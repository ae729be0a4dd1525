"""SQL of the tables that are derived from other tables, in the dialect that Spark and DuckDB share unless noted.

A run stores the rows of its scans; entries, and the tables about files, are queries over them.
"""

from __future__ import annotations

from typing import Final

from bkinspect.audit.schemas import RECORDS

_NAMES: Final = ", ".join(f"s.{name}" for name in RECORDS.names)
_CRC32C_BODY: Final = 36

RECORDS_SQL: Final = f"SELECT {_NAMES} FROM scan s WHERE s.kind >= 'a'"
"""The records of logs and journals; kinds of other rows begin with an underscore, which sorts before letters."""

_SETTLED: Final = {
    "digest_ok": "CASE WHEN l.digest_type = 'CRC32C' THEN false ELSE s.digest_ok END",
    "payload_size": f"CASE WHEN l.digest_type = 'CRC32C' THEN s.size - {_CRC32C_BODY} ELSE s.payload_size END",
}
_SETTLED_NAMES: Final = ", ".join(
    f"{_SETTLED[name]} AS {name}" if name in _SETTLED else f"s.{name}" for name in RECORDS.names
)

ENTRIES_SQL: Final = (
    f"SELECT {_NAMES} FROM scan s WHERE s.kind = 'entry' AND s.digest_ok IS NOT NULL "
    f"UNION ALL SELECT {_SETTLED_NAMES} FROM scan s LEFT JOIN ledgers l ON s.ledger_id = l.ledger_id "
    "WHERE s.kind = 'entry' AND s.digest_ok IS NULL"
)
"""The entries. If the digest of an entry could not be checked when it was read, and metadata says that its ledger uses
CRC32C, the entry is broken, because CRC32C was tried on every entry. Only unchecked entries are joined."""

LOG_FILES_SQL: Final = """
SELECT f.bookie_id, f.file, regexp_replace(f.file, '/[^/]*$', '') AS directory, f.source,
  CAST(get_json_object(f.note, '$.log_id') AS bigint) AS log_id, f.size, c.data_end,
  CAST(get_json_object(f.note, '$.modified_ms') AS bigint) AS modified_ms,
  get_json_object(f.note, '$.state') AS state,
  CAST(get_json_object(f.note, '$.format') AS int) AS format,
  CAST(get_json_object(f.note, '$.map_offset') AS bigint) AS map_offset,
  CAST(get_json_object(f.note, '$.newest') AS boolean) AS newest,
  coalesce(c.records, 0) AS records, coalesce(c.entries, 0) AS entries, coalesce(c.entry_bytes, 0) AS entry_bytes,
  CAST(get_json_object(f.note, '$.mark[0]') AS bigint) AS mark_journal_id,
  CAST(get_json_object(f.note, '$.mark[1]') AS bigint) AS mark_offset
FROM (SELECT * FROM about_files WHERE kind = '_file') f LEFT JOIN (
  SELECT file, max(offset + size) AS data_end, count(*) AS records, count_if(kind = 'entry') AS entries,
    sum(CASE WHEN kind = 'entry' THEN size + 4 ELSE 0 END) AS entry_bytes
  FROM scan WHERE kind >= 'a' GROUP BY file) c ON f.file = c.file
"""
"""In Spark's dialect; a run stores the rows. Shuffles by file. `about_files`: rows of a scan that are not records."""

LOG_MAPS_SQL: Final = "SELECT bookie_id, file, ledger_id, size FROM about_files WHERE kind = '_map'"

DAMAGE_SQL: Final = """
SELECT bookie_id, file, source, get_json_object(note, '$.code') AS code, offset,
  CAST(get_json_object(note, '$.resumed_at') AS bigint) AS resumed_at, get_json_object(note, '$.message') AS message,
  get_json_object(note, '$.evidence') AS evidence, ledger_id, entry_id
FROM about_files WHERE kind = '_damage'
"""
"""In Spark's dialect; a run stores the rows."""

FRAGMENTS_SQL: Final = """
SELECT l.ledger_id, p.pos AS fragment_index, p.col.first_entry_id AS first_entry_id,
  CASE WHEN p.pos + 1 < size(l.ensembles) THEN l.ensembles[p.pos + 1].first_entry_id - 1 ELSE l.last_entry_id END
    AS last_entry_id,
  p.col.bookies AS bookies, l.ensemble_size, l.write_quorum_size, l.ack_quorum_size, l.state
FROM ledgers l LATERAL VIEW posexplode(l.ensembles) p AS pos, col
"""
"""In Spark's dialect; a run stores the rows. Does not shuffle."""

SEAMS_SQL: Final = """
SELECT file FROM (
  SELECT file, aggregate(array_sort(collect_list(struct(start, `end`, first, next))),
    struct(CAST(NULL AS bigint) AS expected, true AS ok),
    (s, x) -> struct(
      CASE WHEN x.start = 0 THEN x.next
           WHEN s.expected IS NULL OR s.expected >= x.`end` THEN s.expected ELSE x.next END AS expected,
      s.ok AND (x.start = 0 OR CASE WHEN s.expected IS NULL OR s.expected >= x.`end` THEN x.first IS NULL
                                    ELSE coalesce(x.first = s.expected, false) END) AS ok)).ok AS ok
  FROM (SELECT file, CAST(get_json_object(note, '$.start') AS bigint) AS start,
          CAST(get_json_object(note, '$.end') AS bigint) AS `end`,
          CAST(get_json_object(note, '$.first') AS bigint) AS first,
          CAST(get_json_object(note, '$.next') AS bigint) AS next
        FROM about_files WHERE kind = '_part')
  GROUP BY file) WHERE NOT ok
"""
"""Files with two ranges that do not fit together: the next one began elsewhere than the first one ended. Shuffles one
row per range."""

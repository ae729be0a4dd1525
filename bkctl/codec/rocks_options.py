"""Options of a bookie's RocksDB databases: tables in a format that RocksDB of every supported Java bookie reads."""

from __future__ import annotations

from typing import Any, Final

from bkctl.codec.ledger_index import LOCATIONS

FORMAT_VERSION: Final = 5


def database_options(name: str, *, format_version: int = FORMAT_VERSION, lz4: bool = True) -> tuple[Any, Any]:
    """rocksdict's Options and BlockBasedOptions for the database of this name; the caller puts the second into it."""
    from rocksdict import BlockBasedOptions, ChecksumType, DBCompressionType, Options

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    if name == LOCATIONS:
        options.set_compression_type(DBCompressionType.lz4() if lz4 else DBCompressionType.none())
    else:
        options.set_compression_type(DBCompressionType.snappy())
    tables = BlockBasedOptions()
    tables.set_format_version(format_version)
    tables.set_checksum_type(ChecksumType.xxhash())
    return options, tables

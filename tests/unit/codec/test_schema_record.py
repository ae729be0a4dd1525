"""Records of Pulsar's schema registry: those of a Java broker, and damaged ones."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.managed_ledger import (
    decode_schema_entry,
)
from bkctl.codec.protobuf import Message, bytes_field, text_field
from bkctl.codec.schema_record import SchemaRecord, decode_schema, encode_schema
from bkctl.errors import BadBytes
from tests import pulsar_golden as golden


def test_schema_records_of_a_java_broker_are_encoded_to_the_same_bytes() -> None:
    seen = 0
    for row in golden.entries():
        if row["kind"] == "schema":
            data = decode_schema_entry(row["payload"], source="entry")
            record = decode_schema(data, source="entry")
            assert encode_schema(record) == data
            assert record.schema_id.count("/") == 2
            assert record.timestamp_ms > 1_700_000_000_000
            seen += 1
    assert seen >= 5


RECORD = SchemaRecord("t/n/topic", 1, b"definition", 1_700_000_000_000, {"k": "v", "empty": ""}, "user", deleted=True)


@pytest.mark.parametrize("record", [RECORD, SchemaRecord("t/n/topic", 0, b"", 0)], ids=["all fields", "defaults"])
def test_an_encoded_record_is_decoded_to_the_same_value(record: SchemaRecord) -> None:
    assert decode_schema(encode_schema(record), source="entry") == record


def test_the_type_is_stored_as_the_wire_number_plus_one() -> None:
    assert Message(encode_schema(RECORD), source="entry").integer(3) == RECORD.type + 1


@given(st.integers(0, len(encode_schema(RECORD)) - 1))
def test_a_truncated_record_is_bad_bytes_or_has_fewer_properties(size: int) -> None:
    with contextlib.suppress(BadBytes):
        assert decode_schema(encode_schema(RECORD)[:size], source="entry").properties != RECORD.properties


def test_a_property_without_a_value_is_bad_bytes() -> None:
    data = encode_schema(RECORD) + bytes_field(7, text_field(1, "key"))
    with pytest.raises(BadBytes):
        decode_schema(data, source="entry")

"""Each pitfall of Pulsar's protocol and of managed ledgers has tests, named here.

The numbers are those of "Pitfalls, condensed" in the two specifications. A test that is renamed or lost fails here.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

UNIT_TESTS = Path(__file__).resolve().parents[2]
PROTOCOL = {
    1: (
        "presence matters more than value",
        "test_required_fields_are_present_even_with_their_default_values",
    ),
    2: (
        "uint64 fields hold -1",
        "test_positions_before_the_first_and_after_the_last_entry_are_accepted",
    ),
    3: ("two request-id spaces", "test_requests_of_different_kinds_may_share_a_request_id"),
    4: (
        "errors of lookups inside the response",
        "test_lookups_and_partitions_are_answered_as_by_java",
        "test_errors_of_schema_requests_are_in_their_own_response",
    ),
    5: ("receipts in order", "test_receipts_are_sent_in_order_with_errors_in_their_place"),
    6: ("bodies untouched", "test_entries_are_delivered_byte_for_byte"),
    7: ("permits count messages", "test_permits_count_messages_and_a_batch_is_not_split"),
    8: ("ack_set bit 1: unacknowledged", "test_messages_of_a_batch_are_acknowledged_one_by_one_with_a_receipt"),
    9: ("no type 27 to C++", "test_a_terminated_topic_refuses_producers_and_reports_its_end"),
    10: ("only CONNECTED answers CONNECT", "test_connect_is_answered_by_connected_alone"),
    11: ("PONG under load", "test_a_ping_is_answered_under_load"),
    12: ("whole batches again", "test_a_batch_is_redelivered_whole"),
    13: ("SEEK closes consumers first", "test_seek_closes_the_consumers_before_its_reply"),
    14: (
        "chunks share a sequence_id",
        "test_chunks_of_a_message_share_a_sequence_id_and_are_not_duplicates",
    ),
    15: ("patterns looked up", "test_a_pattern_is_looked_up_like_a_topic_and_creates_none"),
    16: (
        "the non-persistent list",
        "test_non_persistent_topics_are_listed_on_request",
    ),
    17: (
        "receipts of duplicates and of non-persistent topics",
        "test_deduplication_survives_a_reload_of_the_topic",
        "test_receipts_have_ledger_and_entry_0",
    ),
    18: ("consumer_epoch echoed", "test_consumer_epochs_are_echoed"),
    19: ("a fenced producer's connection is closed", "test_exclusive_producers_raise_the_epoch_and_fence_others"),
    20: (
        "a second of silence in Failover",
        "test_failover_reports_the_active_consumer_as_java_does",
        "test_a_change_of_a_failover_group_takes_effect_after_a_second",
    ),
    21: ("PING both ways", "test_pings_of_both_sides_at_the_same_moment_are_answered"),
    22: ("ZLIB without an end", "test_a_zlib_stream_without_an_end_is_read"),
}
SECTION_13 = {
    "closes the connection": (
        "test_invalid_commands_close_the_connection",
        "test_invalid_frames_close_only_their_own_connection",
    ),
    "ignored": ("test_commands_of_unknown_consumers_are_ignored",),
    "answered": (
        "test_requests_with_unknown_ids_are_answered",
        "test_requests_to_a_transaction_coordinator_are_refused",
    ),
    "the minimum set": ("test_a_captured_client_gets_the_commands_and_fields_that_java_sent",),
}
LOG = {
    1: (
        "a conflict means fenced",
        "test_an_owner_that_was_deposed_confirms_nothing_more",
        "test_an_ack_of_a_deposed_owner_is_refused_before_it_has_written_anything",
        "test_a_write_with_an_old_version_is_a_conflict",
    ),
    2: (
        "recovery before creation",
        "test_the_last_ledger_is_recovered_before_the_next_is_created",
        "test_two_that_open_at_the_same_time",
    ),
    3: (
        "order of node and ledger",
        "test_a_failed_node_write_keeps_named_ledgers_and_deletes_others",
    ),
    4: (
        "lower ends excluded",
        "test_the_lower_bound_of_an_acknowledged_range_is_exclusive",
    ),
    5: (
        "deleteSet: bits of unacknowledged messages",
        "test_a_set_bit_is_an_unacknowledged_message",
        "test_a_crash_loses_nothing_that_was_confirmed",
    ),
    6: ("the closing time", "test_the_timestamp_of_a_ledger_is_that_of_its_close"),
    7: (
        "ten bytes, unpacked",
        "test_negative_numbers_have_ten_bytes",
        "test_protobuf_reads_what_we_write_and_we_read_what_it_writes",
    ),
    8: (
        "unknown fields kept",
        "test_unknown_fields_are_kept_over_a_rollover",
        "test_what_is_not_known_is_kept",
    ),
    9: ("form-encoding", "test_names_in_paths_are_encoded_as_java_does"),
    10: (
        "three checksums",
        "test_bundles_use_crc32_and_entries_crc32c",
        "test_a_topic_is_in_the_bundle_that_the_java_broker_reported",
        "test_every_captured_entry_is_decoded_and_encoded_to_the_same_bytes",
    ),
    11: ("custom metadata: raw bytes", "test_ledgers_have_the_custom_metadata_of_pulsar"),
    12: (
        "only the last one un-sized",
        "test_entries_are_confirmed_in_order_over_rollovers_and_read_again_by_the_next_owner",
    ),
    13: (
        "the last entry is the state",
        "test_the_last_entry_of_its_ledger_is_a_cursor_s_state",
        "test_a_lost_ledger_brings_messages_again_but_loses_none",
    ),
    14: ("policies stay childless", "test_the_policies_of_a_namespace_have_no_children"),
}
EVERY = [
    (f"{name} {number}", test)
    for name, table in (("protocol", PROTOCOL), ("log", LOG))
    for number, (_, *tests) in table.items()
    for test in tests
] + [(f"section 13 {name}", test) for name, tests in SECTION_13.items() for test in tests]


@cache
def unit_tests() -> frozenset[str]:
    """Returns the names of all unit tests."""
    texts = (path.read_text() for path in UNIT_TESTS.rglob("test_*.py"))
    return frozenset(name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE))


def test_the_numbers_are_those_of_the_specifications() -> None:
    assert list(PROTOCOL) == list(range(1, 23))
    assert list(LOG) == list(range(1, 15))


@pytest.mark.parametrize(("pitfall", "test"), EVERY, ids=[f"{pitfall}: {test}" for pitfall, test in EVERY])
def test_every_pitfall_has_its_test(pitfall: str, test: str) -> None:
    assert test in unit_tests()

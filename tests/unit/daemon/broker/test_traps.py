"""Every trap of Pulsar's protocol and of managed ledgers, with the tests that spring it.

The numbers are those of "Pitfalls, condensed" in the two specifications; a test that is renamed or lost is missed here.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HERE = "daemon/broker"
PROTOCOL = {
    1: (
        "presence matters more than value",
        "traps_protocol:test_01_what_must_be_present_is_present_though_it_is_the_default",
    ),
    2: (
        "uint64 fields hold -1",
        "traps_protocol:test_02_places_before_the_first_entry_and_behind_the_last_travel_unsigned",
    ),
    3: ("two request-id spaces", "traps_protocol:test_03_requests_of_two_counters_may_have_one_number"),
    4: (
        "errors of lookups inside the response",
        "server:test_lookups_and_partitions_say_what_java_says",
        "traps_protocol:test_04_an_error_is_where_the_client_looks_for_it",
    ),
    5: ("receipts in order", "server:test_receipts_come_in_order_with_errors_in_their_place"),
    6: ("bodies untouched", "traps_protocol:test_06_what_a_producer_sent_is_delivered_to_the_last_byte"),
    7: ("permits count messages", "server:test_permits_count_messages_and_a_batch_is_never_split"),
    8: ("ack_set bit 1: unacknowledged", "server:test_bits_of_a_batch_and_a_receipt"),
    9: ("no type 27 to C++", "server:test_a_terminated_topic_takes_no_more_and_tells_its_end"),
    10: ("only CONNECTED answers CONNECT", "traps_protocol:test_10_nothing_but_connected_answers_connect"),
    11: ("PONG under load", "traps_protocol:test_11_a_ping_is_answered_under_load"),
    12: ("whole batches again", "traps_protocol:test_12_a_batch_is_delivered_again_whole"),
    13: ("SEEK closes consumers first", "server:test_seek_closes_consumers_then_answers"),
    14: (
        "chunks share a sequence_id",
        "traps_protocol:test_14_chunks_of_a_message_share_a_sequence_id_and_are_no_duplicates",
    ),
    15: ("patterns looked up", "traps_protocol:test_15_a_pattern_is_looked_up_as_if_it_were_a_topic"),
    16: (
        "the non-persistent list",
        "traps_protocol:test_16_topics_that_keep_nothing_are_listed_where_they_are_asked_for",
    ),
    17: (
        "receipts of duplicates and of topics that keep nothing",
        "server:test_deduplication_survives_the_topic",
        "traps_protocol:test_17_the_receipt_of_a_topic_that_keeps_nothing_says_nought",
    ),
    18: ("consumer_epoch echoed", "server:test_consumer_epochs_are_echoed"),
    19: ("a fenced producer is cut off", "server:test_exclusive_producers_epochs_and_the_fenced_one"),
    20: (
        "a second of silence in Failover",
        "server:test_failover_tells_who_is_active_as_java_does",
        "traps_protocol:test_20_a_failover_group_that_changes_waits_a_second",
    ),
    21: ("PING both ways", "traps_protocol:test_21_both_sides_ping_at_the_same_moment"),
    22: ("ZLIB without an end", "traps_log:test_22_of_the_protocol_a_stream_without_an_end_is_read"),
}
SECTION_13 = {
    "ends the link": (
        "traps_protocol:test_13_commands_that_end_the_link",
        "server:test_garbage_ends_its_own_connection_only",
    ),
    "ignored": ("traps_protocol:test_13_commands_that_are_ignored",),
    "answered": ("traps_protocol:test_13_commands_that_are_answered", "server:test_transactions_are_refused_cleanly"),
    "the minimum set": ("golden_replay:test_the_same_commands_and_fields_come_back",),
}
LOG = {
    1: (
        "a conflict means fenced",
        "log/managed_ledger:test_an_owner_that_was_deposed_confirms_nothing_more",
        "log/managed_ledger:test_an_ack_of_a_deposed_owner_is_refused_before_it_has_written_anything",
        "meta/pulsar:test_every_write_names_the_version_it_replaces",
    ),
    2: (
        "recovery before creation",
        "traps_log:test_02_the_last_ledger_is_recovered_before_the_next_is_created",
        "log/managed_ledger:test_two_that_open_at_the_same_time",
    ),
    3: (
        "order of node and ledger",
        "traps_log:test_03_a_node_that_cannot_be_written_keeps_every_ledger_it_names_and_leaves_no_other",
    ),
    4: (
        "lower ends excluded",
        "traps_log:test_04_the_lower_end_of_a_range_is_excluded_and_may_be_before_a_ledgers_first_entry",
    ),
    5: (
        "deleteSet: what remains",
        "traps_log:test_05_a_bit_that_is_set_is_a_message_that_is_left",
        "log/managed_ledger:test_a_crash_loses_nothing_that_was_confirmed",
    ),
    6: ("the closing time", "traps_log:test_06_the_time_of_a_ledger_is_that_of_its_end"),
    7: (
        "ten bytes, unpacked",
        "traps_log:test_07_negative_numbers_have_ten_bytes",
        "codec/managed_ledger:test_protobuf_reads_what_we_write_and_we_read_what_it_writes",
    ),
    8: (
        "unknown fields kept",
        "traps_log:test_08_what_is_not_known_outlives_a_rollover",
        "codec/managed_ledger:test_what_is_not_known_is_kept",
    ),
    9: ("form-encoding", "model/topic:test_names_in_paths_are_encoded_as_java_does"),
    10: (
        "three checksums",
        "traps_log:test_10_every_checksum_is_the_one_of_its_place",
        "meta/pulsar:test_bundles_are_where_the_java_broker_found_its_topics",
        "codec/pulsar:test_every_captured_entry_is_proved_taken_apart_and_put_together",
    ),
    11: ("custom metadata: raw bytes", "log/managed_ledger:test_ledgers_carry_pulsars_marks"),
    12: (
        "only the last one un-sized",
        "log/managed_ledger:test_entries_are_confirmed_in_order_over_rollovers_and_read_again_by_the_next_owner",
    ),
    13: (
        "the last entry is the state",
        "traps_log:test_13_the_last_entry_of_its_ledger_is_a_cursors_state",
        "log/cursor:test_a_lost_ledger_brings_messages_again_but_loses_none",
    ),
    14: ("policies stay childless", "traps_log:test_14_the_policies_of_a_namespace_have_no_children"),
}
EVERY = [
    (f"{name} {number}", test)
    for name, table in (("protocol", PROTOCOL), ("log", LOG))
    for number, (_, *tests) in table.items()
    for test in tests
] + [(f"section 13 {name}", test) for name, tests in SECTION_13.items() for test in tests]


@cache
def names_in(module: str) -> frozenset[str]:
    """Names of the tests of a module, `server` or `codec/pulsar`."""
    folder, _, name = module.rpartition("/")
    place = ROOT / "unit" / (folder or HERE)
    exact = place / f"test_{name}.py"
    (found,) = [exact] if exact.exists() else place.rglob(f"test_{name}.py")
    text = found.read_text()
    return frozenset(re.findall(r"^def (test_\w+)", text, re.MULTILINE))


def test_the_numbers_are_those_of_the_specifications() -> None:
    assert list(PROTOCOL) == list(range(1, 23))
    assert list(LOG) == list(range(1, 15))


@pytest.mark.parametrize(("trap", "test"), EVERY, ids=[f"{trap}: {test}" for trap, test in EVERY])
def test_every_trap_has_its_test(trap: str, test: str) -> None:
    module, _, name = test.partition(":")
    assert name in names_in(module)

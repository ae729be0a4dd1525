"""One entry's copies, each in its state, and what is wrong with them: SQL expressions, row by row, without a shuffle.

Input: `rows` (all that was found of the entry) beside the entry's part of its ledger, null where metadata has none.
See `_copies` for what the states mean.
"""

from __future__ import annotations

from typing import Final

_DIFFER: Final = (
    "not (a.length <=> b.length) or not (a.size <=> b.size) or "
    "(a.last_confirmed <=> b.last_confirmed and not (a.content_digest <=> b.content_digest))"
)
"""Java's recovery and replication seal an entry again with another last confirmed: only equal ones compare by bytes."""

_FAULT: Final = (
    "named_struct('kind', '{kind}', 'bookie_id', {b}, 'file', {r}.file, 'offset', {r}.offset, 'size', {r}.size, "
    "'index', {r}.index, 'others', {others}, 'confirmed', {confirmed})"
)
_NOBODY: Final = "cast(null as array<string>)"
_NO_ENTRY: Final = "cast(null as bigint)"
_NO_ROW: Final = "try_element_at(filter(rows, r -> false), 1)"


def _differ(a: str, b: str) -> str:
    return _DIFFER.replace("a.", f"{a}.").replace("b.", f"{b}.")


def _fault(kind: str, b: str, r: str, others: str = _NOBODY, confirmed: str = _NO_ENTRY) -> str:
    return _FAULT.format(kind=kind, b=b, r=r, others=others, confirmed=confirmed)


STEPS: Final = (
    ("counts", "coalesce(entry_id <= ends, false)"),
    (
        "write_set",
        "transform(sequence(0, write_quorum_size - 1), i -> bookies[cast((entry_id + i) % ensemble_size as int)])",
    ),
    ("expected", "case when counts then write_set else cast(array() as array<string>) end"),
    (
        "copies",
        "transform(array_distinct(transform(rows, r -> r.bookie_id)), b -> named_struct('bookie_id', b, "
        "'pointers', filter(rows, r -> r.bookie_id = b and r.what = 'index'), "
        "'records', filter(rows, r -> r.bookie_id = b and r.what = 'log'), "
        "'others', filter(rows, r -> r.bookie_id = b and r.what in ('live', 'journal'))))",
    ),
    (
        "copies",
        "transform(copies, c -> named_struct('bookie_id', c.bookie_id, 'pointers', c.pointers, 'records', c.records, "
        "'others', c.others, 'served', concat(filter(c.records, r -> exists(c.pointers, p -> p.file = r.file and "
        "p.offset = r.offset)), c.others)))",
    ),
    (
        "copies",
        "transform(copies, c -> named_struct('bookie_id', c.bookie_id, 'state', case when size(c.served) > 0 then "
        "'sound' when size(c.pointers) > 0 then 'dangling' else 'unindexed' end, 'row', "
        "try_element_at(concat(c.served, c.pointers, c.records), 1), 'records', concat(c.records, c.others), "
        "'expected', array_contains(expected, c.bookie_id)))",
    ),
    ("well", "filter(copies, c -> c.state = 'sound' and c.expected and not c.row.bad)"),
    ("lacking", "state = 'CLOSED' or size(filter(copies, c -> c.state = 'sound' and c.expected)) < ack_quorum_size"),
    ("proofs", "case when entry_id > closed_at then filter(copies, c -> c.state = 'sound' and not c.row.bad) end"),
    (
        "confirmed",
        "greatest(array_max(transform(filter(proofs, c -> c.row.last_confirmed between closed_at + 1 and "
        "entry_id - 1), c -> c.row.last_confirmed)), case when entry_id = closed_at + 1 and "
        "size(filter(proofs, c -> array_contains(write_set, c.bookie_id))) >= ack_quorum_size then entry_id end)",
    ),
    (
        "agreeing",
        f"transform(well, x -> size(filter(well, y -> not ({_differ('x.row', 'y.row')}))))",
    ),
    (
        "faults",
        "concat("
        "filter(transform(expected, b -> " + _fault("missing", "b", _NO_ROW) + "), f -> lacking and "
        "array_contains(scanned, f.bookie_id) and not exists(copies, c -> c.bookie_id = f.bookie_id)), "
        "transform(filter(copies, c -> c.state = 'dangling'), c -> "
        + _fault("dangling", "c.bookie_id", "c.row")
        + "), "
        "transform(filter(copies, c -> c.state = 'dangling' and c.expected and lacking and "
        "array_contains(scanned, c.bookie_id)), c -> " + _fault("cut", "c.bookie_id", "c.row") + "), "
        "transform(filter(copies, c -> c.state = 'unindexed' and c.expected and array_contains(scanned, c.bookie_id)), "
        "c -> " + _fault("unindexed", "c.bookie_id", "c.row") + "), "
        "transform(filter(copies, c -> c.state = 'sound' and counts and not c.expected and "
        "not array_contains(other_bookies, c.bookie_id)), c -> " + _fault("surplus", "c.bookie_id", "c.row") + "), "
        "case when array_max(agreeing) < size(well) and exists(agreeing, n -> n < array_max(agreeing)) "
        "then transform(filter(well, (c, i) -> agreeing[i] < array_max(agreeing)), c -> "
        + _fault("divergent", "c.bookie_id", "c.row", "transform(well, w -> w.bookie_id)")
        + ") when array_max(agreeing) < size(well) then transform(slice(well, 1, 1), c -> "
        + _fault("tied", "cast(null as string)", _NO_ROW, "transform(well, w -> w.bookie_id)")
        + ") else cast(array() as array<struct<kind:string,bookie_id:string,file:string,offset:bigint,size:bigint,"
        "index:string,others:array<string>,confirmed:bigint>>) end, "
        "flatten(transform(filter(copies, c -> not c.row.bad), c -> transform(filter(c.records, r -> not r.bad and ("
        + _differ("c.row", "r")
        + ") and c.row.what != 'index'), r -> "
        + _fault("twofold", "c.bookie_id", "r")
        + "))), filter(array("
        + _fault("late", "cast(null as string)", _NO_ROW, "transform(proofs, c -> c.bookie_id)", "confirmed")
        + "), f -> f.confirmed is not null))",
    ),
)
"""Row by row over one entry's copies; a later step reads what earlier ones made."""

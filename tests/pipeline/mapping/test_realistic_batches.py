"""Batches with times, floats, nested fields and filters: read at once, and always what the records become one by one."""

import json
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.mapped_batches import both, check, revision, table

from holdfast.pipeline.mapping import json_batches, transform
from holdfast.pipeline.mapping.transform import map_records
from holdfast.pipeline.model.definition import Revision

pytest.importorskip("pyarrow")

pytestmark = pytest.mark.slow

KINDS = {
    "ts": "DateTime64(3)",
    "local": "DateTime('Europe/Berlin')",
    "amount": "Float64",
    "ratio": "Float32",
    "user.id": "Int64",
    "user.home.country": "String",
    "day": "Date",
    "ref": "UUID",
    "price": "Decimal(18, 4)",
}
COLUMNS: list[dict[str, Any]] = [
    *(
        {"fieldPath": path, "column": path.replace(".", "_"), "type": kind, "nullable": True}
        for path, kind in KINDS.items()
    ),
    {"fieldPath": "id", "column": "id", "type": "Int64"},
    {"fieldPath": "count", "column": "count", "type": "UInt32", "whenNull": "default"},
    {"fieldPath": "score", "column": "score", "type": "Float64", "whenNull": "default"},
    {"fieldPath": "seen", "column": "seen", "type": "DateTime", "whenNull": "default"},
]
FINE: dict[str, Any] = {
    "id": 1,
    "ts": "2026-11-16T12:00:00.123Z",
    "local": "2026-11-16 12:00:00",
    "amount": 12.5,
    "ratio": 0.25,
    "user": {"id": 7, "home": {"country": "de", "zip": "1"}, "tags": ["a"]},
    "day": "2026-11-16",
    "ref": "01234567-89ab-cdef-0123-456789abcdef",
    "price": "12.3400",
    "count": 3,
    "seen": 1_760_000_000,
    "extra": {"deep": [{"x": 1.5}]},
}
FILTERS = [
    "",
    "amount > 10 and user.home.country = 'de'",
    "not (amount <= 10) or id in (1, 2, 3)",
    "user.home.country in ('de', 'fr') and price is not null",
    "user.home.country not in ('de') or startsWith(ref, '0123')",
    "contains(ts, 'T12') and 5 < amount",
    "other = 1.5 or id != 1",
    "flag or amount >= 0",
    "flag = true and id > 9007199254740993",
    "id > 1.5",
    "extra.deep = 1",
    "ts > '2026'",
    "ts > 5",
]


def mapped_by(expression: str = "", **more: Any) -> Revision:
    filters = {"enabled": bool(expression), "expression": expression}
    return revision(COLUMNS, filters=filters, **more)


def payload(**changes: Any) -> bytes:
    return json.dumps({**FINE, **changes}).encode()


@pytest.mark.parametrize("expression", FILTERS[:8])
def test_realistic_records_are_read_filtered_and_mapped_at_once(expression: str) -> None:
    records = [payload(id=n, amount=n / 2, flag=n % 2 == 0, other=n) for n in range(300)]
    assert check(records, mapped_by(expression))


def test_numbers_as_times_are_read_at_once() -> None:
    assert check([payload(ts=1_760_000_000_123, local=1_760_000_000, seen=n) for n in range(300)], mapped_by())


def test_absent_and_null_fields_are_read_at_once() -> None:
    absent = [b'{"id":1}', payload(user=None, score=None), payload(user={}, count=None), payload(user={"home": None})]
    assert check([payload(), *absent], mapped_by())
    assert check([payload(), *absent], mapped_by("user.home.country = 'de'"))


RAW: dict[str, list[bytes]] = {
    "amount": [b"-0", b"-0.0", b"0", b"1", b"1e2", b"1e400", b"NaN", b'"1.5"', b"true", b"9007199254740993", b"1" + b"0" * 400],
    "ratio": [b"3.4028235e38", b"3.5e38", b"1e-50", b"0.1", b"-0.0", b"16777217"],
    "user": [b"null", b"3", b"{}", b"[]", b'{"id":null}', b'{"id":"7"}', b'{"id":1.5}', b'{"home":{"country":5}}',
        b'{"id":1,"id":2}'],
    "ts": [
        b"null", b"1", b"1760000000123", b"1.5", b"true", b'""', b'"2026-11-16"', b'"2026-11-16T12:00"', b'"2026-11-16T12:00:00"',
        b'"2026-11-16T12:00:00.123456789Z"', b'"2026-11-16T12:00:00+05:30"', b'"2026-11-16 12:00:00.5 "', b'"1899-01-01T00:00:00Z"',
        b'"2300-01-01T00:00:00Z"', b'"1760000000"', b'"today"', b'"2026-02-30"', b"99999999999999999999",
    ],
    "local": [b'"2026-10-25 02:30:00"', b'"2026-03-29 02:30:00"', b'"2050-01-01 00:00:00"', b"-5", b'"1970-01-01 00:00:00"'],
    "day": [b"20000", b'"2200-01-01"', b'"1960-01-01"', b'"2026-11-16T10:00:00Z"', b'"x"'],
    "ref": [b'"0123456789ABCDEF0123456789abcdef"', b'"x"', b"5"],
    "price": [b"12.5", b'"1.23456"', b'"1e3"', b'"999999999999999.0"', b"-0"],
    "count": [b"-1", b"4294967296", b'"5"', b"null"],
    "extra": [b"NaN", b'{"a":[NaN]}', b'{"a":[[1],["x"]]}', b"[1,\"x\"]", b"1e999", b'"\\ud800"', b'{"a":1,"a":2}'],
    "seen": [b"5", b'"2026-11-16"', b"null"],
}  # fmt: skip


def with_raw(name: str, raw: bytes) -> bytes:
    rest = json.dumps({key: value for key, value in FINE.items() if key != name}).encode()
    return rest[:-1] + b', "%b": %b}' % (name.encode(), raw)


@pytest.mark.parametrize(("name", "raw"), [(name, raw) for name, raws in RAW.items() for raw in raws], ids=repr)
def test_what_is_odd_becomes_what_it_becomes_one_by_one(name: str, raw: bytes) -> None:
    odd = with_raw(name, raw)
    for expression in ("", "amount > 10 and user.home.country = 'de'"):
        for payloads in ([odd], [payload(), odd], [odd, payload()]):
            check(payloads, mapped_by(expression))


@pytest.mark.parametrize("raw", [b"NaN", b"-Infinity", b"9" * 5_000], ids=lambda raw: raw[:9].decode())
def test_what_is_no_json_is_a_dead_letter_also_where_the_filter_would_drop_it(raw: bytes) -> None:
    other = b'{"id": 2, "amount": %b}' % raw
    check([payload(), other, payload()], mapped_by("id = 1"))
    assert [row.offset for row in both([payload(), other, payload()], mapped_by("id = 1"))[0].refused] == [11]


def test_a_number_beyond_all_times_is_a_dead_letter_and_fails_no_batch() -> None:
    quick = both([payload(), payload(ts=10**400), payload(seen=-(10**4_000)), payload(day=10**400)], mapped_by())[0]
    assert [row.offset for row in quick.refused] == [11, 12, 13]


record = st.builds(
    lambda name, raw: payload() if raw is None else with_raw(name, raw),
    *(st.shared(st.sampled_from(sorted(RAW)), key="name"),),
    st.none() | st.shared(st.sampled_from(sorted(RAW)), key="name").flatmap(lambda name: st.sampled_from(RAW[name])),
)
likely = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "amount": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
        "ratio": st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-5, 5),
        "ts": st.datetimes().map(str) | st.datetimes().map(lambda at: at.isoformat() + "Z"),
        "user": st.none()
        | st.fixed_dictionaries({}, optional={"id": st.integers(-5, 5), "home": st.just({"country": "de"})}),
        "other": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.none() | st.booleans(),
    },
).map(lambda each: json.dumps(each).encode())


@examples(2)
@given(st.lists(likely | record, min_size=1, max_size=5), st.sampled_from(FILTERS))
def test_any_batch_under_any_filter(payloads: Sequence[bytes], expression: str) -> None:
    check(payloads, mapped_by(expression))


def test_what_does_not_fit_makes_its_part_of_a_range_slow_and_not_all_of_it() -> None:
    records = [payload(id=n) for n in range(35)]
    records[17] = payload(id="x")
    read = json_batches.read_json_batch
    seen: list[bool] = []

    def watched(*args: Any) -> Any:
        found = read(*args)
        seen.append(found is not None)
        return found

    with patch.object(transform, "BATCH_ROWS_MAX", 10), patch.object(transform, "read_json_batch", watched):
        parts = map_records(mapped_by("id != 3"), 1, table(records))
    whole = map_records(mapped_by("id != 3"), 1, table(records))
    assert seen == [True, False, True, True]
    assert parts.rows.equals(whole.rows)
    assert (parts.refused, parts.filtered, parts.newest_ms) == (whole.refused, whole.filtered, whole.newest_ms)


@pytest.mark.parametrize(("first", "last"), [(0, 3_000), (1_000, 3_000), (0, 2_000), (2_000, 2_500)])
def test_objects_whose_keys_differ_from_record_to_record_are_read_one_by_one(first: int, last: int) -> None:
    """Arrow's reader would make a column of every key, each as long as the batch."""
    records = [payload(extra={f"k{n if first <= n < last else 0}": {"x": 1}}) for n in range(3_000)]
    with patch.object(json_batches, "_read", wraps=json_batches._read) as reads:
        assert not both(records, mapped_by())[2]
    longest = max(map(len, records)) + 1
    assert all(call.args[1].size <= json_batches.SAMPLE_ROWS * longest for call in reads.call_args_list)


def test_fields_that_some_records_lack_are_no_reason_to_read_one_by_one() -> None:
    records = [payload(**{f"optional{n % 7}": 1}) for n in range(2_000)]
    assert check(records, mapped_by())
    newer = {f"since{n}": n for n in range(20)}
    assert check([payload(**(newer if n >= 1_500 else {})) for n in range(2_000)], mapped_by())

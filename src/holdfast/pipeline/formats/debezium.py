"""Debezium's change events: what a record does to the row of its key. Pure, but for the decoder of keys that it is given.

The one rule: the order of the log is the order of the changes of a key, so the offset is a change's version unless another was
asked for. An event that cannot be a row, or is without what orders it, is rejected; a row is never changed by half of an event.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.pipeline.formats.connect_schema import converted_keys, converted_rows, without_schema
from holdfast.pipeline.formats.decoded import NO_VALUE, BadValueError, Decoded, Payloads, ValueDecoder
from holdfast.pipeline.model.definition import DebeziumOptions

UPSERTS: Final = frozenset("cru")
DELETE: Final = "d"
TS_OFFSET_BITS: Final = 22
"""Of a version by time: changes of one millisecond are ordered by that many bits of their offset."""
VERSION_MAX: Final = 2**64 - 1

_BINLOG_FILE: Final = re.compile(r".*\.(\d{1,9})", re.ASCII)
_NOT_ROWS: Final = {"t": "a truncation of the table is no change of a row", "m": "a message is no change of a row"}


@dataclass(slots=True)
class Changes:
    """By record: the row after the change, or the key of the one that is gone; `bad` and `dropped` have neither."""

    rows: list[Any]
    deleted: list[bool]
    versions: list[int]
    ops: list[str | None]
    sources: list[Any]
    bad: list[tuple[int, str]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    """Tombstones that say nothing new."""


def read_changes(
    decoded: Decoded,
    payloads: Payloads,
    keys: Payloads,
    offsets: Sequence[int],
    *,
    options: DebeziumOptions,
    key_decoder: ValueDecoder,
) -> Changes:
    """The changes of a batch of decoded events."""
    count = len(payloads)
    found = Changes([None] * count, [False] * count, [0] * count, [None] * count, [None] * count)
    refused = {row for row, reason in decoded.bad if reason != NO_VALUE}
    found.bad += [(row, reason) for row, reason in decoded.bad if reason != NO_VALUE]
    events, bad = converted_rows(decoded.values)
    found.bad += bad
    refused |= {row for row, _ in bad}
    keyless: list[int] = []  # deletes whose row is that of the record's key
    repeating: list[int] = []  # tombstones behind the delete of their key
    for row, event in enumerate(events):
        if row in refused:
            continue
        try:
            _read(row, event, offsets[row], options, found)
        except BadValueError as error:
            found.bad.append((row, str(error)))
            continue
        if event is None and _are_ignored(options):
            found.dropped.append(row)
        elif event is None and _follows_delete(row, keys, found):
            repeating.append(row)
        elif found.deleted[row] and found.rows[row] is None:
            keyless.append(row)
    _add_keys(keyless, keys, key_decoder, found)
    _drop_repetitions(repeating, keys, key_decoder, found)
    found.bad.sort()
    return found


def _read(row: int, event: Any, offset: int, options: DebeziumOptions, found: Changes) -> None:
    if event is None:  # a tombstone: only the log orders it
        found.deleted[row], found.versions[row] = True, offset
        return
    if not isinstance(event, dict) or not isinstance(event.get("op"), str):
        raise BadValueError("not a Debezium event: it has no op")
    op, source = event["op"], event.get("source")
    if op in _NOT_ROWS:
        raise BadValueError(f"op {op!r}: {_NOT_ROWS[op]}")
    if op not in UPSERTS and op != DELETE:
        raise BadValueError(f"not a Debezium event: unknown op {op[:20]!r}")
    state = event.get("before" if op == DELETE else "after")
    if not isinstance(state, dict) and (op != DELETE or state is not None):
        raise BadValueError(
            f"not a Debezium event: op {op!r} without {'a row before' if op == DELETE else 'a row after'} it"
        )
    found.rows[row], found.deleted[row] = state, op == DELETE
    found.ops[row], found.sources[row] = op, source
    found.versions[row] = _version(source, offset, options)


def _version(source: Any, offset: int, options: DebeziumOptions) -> int:
    if options.version == "offset":
        return offset
    version = _position(source) if options.version == "position" else _time(source, offset)
    if version is None or not 0 <= version <= VERSION_MAX:
        wanted = "lsn, or file and pos" if options.version == "position" else "ts_ms"
        raise BadValueError(f"the event has no version: its source has no {wanted}")
    return version


def _position(source: Any) -> int | None:
    """PostgreSQL's LSN, or MySQL's file and position in it."""
    match source:
        case {"lsn": int(lsn)}:
            return lsn
        case {"file": str(file), "pos": int(pos)} if (number := _BINLOG_FILE.fullmatch(file)) and 0 <= pos < 2**32:
            return int(number[1]) << 32 | pos
    return None


def _time(source: Any, offset: int) -> int | None:
    ts_ms = source.get("ts_ms") if isinstance(source, dict) else None
    return (
        ts_ms << TS_OFFSET_BITS | offset & (1 << TS_OFFSET_BITS) - 1 if isinstance(ts_ms, int) and ts_ms > 0 else None
    )


def _are_ignored(options: DebeziumOptions) -> bool:
    """Whether tombstones are. They have no source, and an offset cannot be compared with its positions or times."""
    return options.tombstones == "ignore" or options.version != "offset"


def _follows_delete(row: int, keys: Payloads, found: Changes) -> bool:
    """Whether a tombstone follows the delete of its key, as it does unless the topic was compacted."""
    before = row - 1
    return row > 0 and found.ops[before] == DELETE and keys[before] == keys[row]


def _drop_repetitions(rows: Sequence[int], keys: Payloads, decoder: ValueDecoder, found: Changes) -> None:
    """Tombstones say nothing new if the delete had their key; its row may be without, and be rejected for it."""
    if not rows:
        return
    decoded = decoder.decode([keys[row] for row in rows])
    new = list[int]()
    for row, value in zip(rows, decoded.values, strict=True):
        key, deleted = without_schema(value), found.rows[row - 1]
        lacks = isinstance(key, dict) and not (
            isinstance(deleted, dict) and all(deleted.get(name) is not None for name in key)
        )
        (new if lacks else found.dropped).append(row)
    found.dropped.sort()
    _add_keys(new, keys, decoder, found)


def _add_keys(rows: Sequence[int], keys: Payloads, decoder: ValueDecoder, found: Changes) -> None:
    """The rows of deletes that have nothing but their key."""
    if not rows:
        return
    decoded = decoder.decode([keys[row] for row in rows])
    found_keys, unfit = converted_keys(decoded.values)
    reasons = dict([*decoded.bad, *unfit])
    for at, row in enumerate(rows):
        if isinstance(found_keys[at], dict) and at not in reasons:
            found.rows[row] = found_keys[at]
        else:
            reason = "it has no key" if keys[row] is None else reasons.get(at, "its key is no object")
            found.bad.append((row, f"a delete without a row, and {reason}"))

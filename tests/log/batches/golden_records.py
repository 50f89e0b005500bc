"""The records inside the golden files: nulls, empties, headers, repeated header keys, times that go back."""

from holdfast.log.batches import Record

START_MS = 1_700_000_000_000

RECORDS = [
    Record(0, START_MS, b"key", b"value", (("trace", b"abc"), ("trace", b"again"), ("empty", b""), ("null", None))),
    Record(1, START_MS + 5, None, b"no key"),
    Record(2, START_MS - 1_000, b"tombstone", None),
    Record(3, START_MS + 123_456, b"", b"", (("größe", bytes(range(256))),)),
    *(Record(4 + n, START_MS + n, b"user-%03d" % n, b'{"user": %d, "action": "click"}' % n) for n in range(300)),
    Record(304, START_MS, b"large", b"0123456789abcdef" * 200),
]

"""Every shape of record that a client can send, as one table that each client's suite runs over.

The one rule: what is read must equal what was sent, byte for byte, and null is not empty. Create topics for them with
`KEEP`: the times of some lie outside of any retention.
"""

from dataclasses import dataclass, field
from typing import Final

KEEP: Final = {"retention.ms": "-1", "cleanup.policy": "delete"}
FAR_FUTURE_MS: Final = 253_402_300_799_000  # the last second of year 9999
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A record as it is sent. `timestamp_ms` None = the client's clock."""

    name: str
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: tuple[Header, ...] = field(default=())
    timestamp_ms: int | None = None

    def __str__(self) -> str:
        return self.name


def pseudo_random(count: int, seed: int = 1) -> bytes:
    """`count` bytes that hardly compress, the same each time."""
    words = bytearray()
    state = seed
    while len(words) < count:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        words += state.to_bytes(8, "big")
    return bytes(words[:count])


SHAPES: Final = (
    Shape(name="plain"),
    Shape(name="null_key", key=None),
    Shape(name="null_value", value=None),
    Shape(name="both_null", key=None, value=None),
    Shape(name="empty_key", key=b""),
    Shape(name="empty_value", value=b""),
    Shape(name="both_empty", key=b"", value=b""),
    Shape(name="null_key_empty_value", key=None, value=b""),
    Shape(name="empty_key_null_value", key=b"", value=None),
    Shape(name="binary", key=bytes(range(256)), value=bytes(reversed(range(256))) * 3),
    Shape(name="zeros", key=bytes(7), value=bytes(1_000)),
    Shape(name="unicode", key="ключ".encode(), value="värde – 値 – 🪨".encode()),
    Shape(name="one_byte", key=b"k", value=b"v"),
    Shape(name="long_key", key=b"k" * 70_000, value=b"v"),
    Shape(name="repetitive_900_kib", value=b"0123456789abcdef" * (900 * 64)),
    Shape(name="random_900_kib", value=pseudo_random(900 * 1024)),
    Shape(name="one_header", headers=(("trace", b"1"),)),
    Shape(name="null_header", headers=(("nothing", None),)),
    Shape(name="empty_header_value", headers=(("empty", b""),)),
    Shape(name="empty_header_name", headers=(("", b"nameless"),)),
    Shape(name="duplicate_headers", headers=(("again", b"1"), ("again", b"2"), ("other", b"3"), ("again", b"1"))),
    Shape(name="unicode_header", headers=(("имя-名", "värde".encode()),)),
    Shape(name="binary_header", headers=(("raw", bytes(range(256))),)),
    Shape(name="many_headers", headers=tuple((f"name-{index:03}", b"%d" % index) for index in range(200))),
    Shape(name="big_header", headers=(("big", pseudo_random(20_000, seed=2)),)),
    Shape(name="headers_on_nulls", key=None, value=None, headers=(("a", None), ("b", b""))),
    Shape(name="time_zero", timestamp_ms=0),
    Shape(name="time_one", timestamp_ms=1),
    Shape(name="time_past", timestamp_ms=946_684_800_123),
    Shape(name="time_far_future", timestamp_ms=FAR_FUTURE_MS),
)

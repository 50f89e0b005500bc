"""W3C's traceparent, in text and in the bytes of record batches."""

import pytest

from holdfast.log.batches import Record, encode
from holdfast.vocabulary.tracing import TraceContext, find_traceparent, parse_traceparent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TEXT = f"00-{TRACE}-{SPAN}-01"


def test_a_traceparent_is_read_and_written() -> None:
    found = parse_traceparent(TEXT)
    assert found == TraceContext(int(TRACE, 16), int(SPAN, 16), sampled=True)
    assert found.traceparent == TEXT
    unsampled = parse_traceparent(f"00-{TRACE}-{SPAN}-00")
    assert unsampled is not None
    assert not unsampled.sampled
    assert parse_traceparent(f"cc-{TRACE}-{SPAN}-01-what-comes-later") == found, "later versions may say more"


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"{TEXT}\n",
        "00-" + "é" * 32,
    ],
)
def test_what_is_no_traceparent_is_none(text: str) -> None:
    assert parse_traceparent(text) is None


def batch(*headers: tuple[str, bytes]) -> bytes:
    return encode([Record(0, 1_000, b"key", b"value", headers)])


def test_the_first_traceparent_of_a_batch_is_found_without_parsing_it() -> None:
    traced = batch(("a", b"b"), ("traceparent", TEXT.encode()))
    for data in (traced, bytearray(traced), memoryview(traced)):
        assert find_traceparent(data) == parse_traceparent(TEXT)
    assert find_traceparent(batch(("traceparent", b"nonsense"))) is None
    assert find_traceparent(batch()) is None
    assert find_traceparent(bytes(20_000) + traced) is None, "the search is bounded"
    assert find_traceparent(traced[: traced.index(b"00-") + 20]) is None, "cut off"

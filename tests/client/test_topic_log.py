"""Topics that are followed: across offsets that have no record, and from offsets that the log does not have."""

import asyncio

from holdfast.client.brokers import FetchResult, TopicInfo
from holdfast.client.topic_log import LogEntry, TopicLog
from holdfast.log.batches import Record, encode
from holdfast.log.errors import OffsetOutOfRangeError


class ScriptedLog(TopicLog):
    """One whose fetches from some offsets have these results; from others, they wait."""

    def __init__(self, results: dict[int, bytes | OffsetOutOfRangeError]) -> None:
        super().__init__("127.0.0.1:1")
        self._results = results

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        return TopicInfo(name, "0" * 32, 1)

    async def fetch(
        self, topic: TopicInfo, number: int, offset: int, *, bytes_max: int = 0, wait_ms: int = 0
    ) -> FetchResult:
        await asyncio.sleep(0)  # noqa: TID251 (a fetch lets others run)
        found = self._results[offset]
        if isinstance(found, OffsetOutOfRangeError):
            raise found
        return FetchResult(memoryview(found), 0, 100)


async def first(results: dict[int, bytes | OffsetOutOfRangeError], offset: int) -> LogEntry:
    async with asyncio.timeout(10):
        return await anext(ScriptedLog(results).follow("t", offset))


RECORD = encode([Record(7, 0, b"k", b"v")], base_offset=7)


async def test_offsets_without_a_record_are_passed_over() -> None:
    gap = encode([], base_offset=3, last_offset=6)
    assert await first({3: gap, 7: RECORD}, 3) == LogEntry(7, b"k", b"v")
    assert await first({3: gap + RECORD}, 3) == LogEntry(7, b"k", b"v")


async def test_markers_of_transactions_are_no_records() -> None:
    marker = encode([Record(3, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=3, control=True)
    assert await first({3: marker, 4: RECORD}, 3) == LogEntry(7, b"k", b"v")


async def test_a_reader_whose_records_are_gone_goes_on_with_the_first_that_is_left() -> None:
    assert await first({3: OffsetOutOfRangeError("t:0", 3, 7, 9), 7: RECORD}, 3) == LogEntry(7, b"k", b"v")


async def test_a_reader_beyond_the_end_reads_nothing_twice() -> None:
    assert await first({30: OffsetOutOfRangeError("t:0", 30, 1, 7), 7: RECORD}, 30) == LogEntry(7, b"k", b"v")

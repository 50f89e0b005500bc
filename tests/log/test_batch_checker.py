"""Where produced batches are checked: at once while that is little work, on a thread beyond it."""

from collections.abc import Iterator

import pytest

from holdfast.log import batch_checker
from holdfast.log.batch_checker import BatchChecker
from holdfast.log.batches import InvalidBatchError, Record, RecordBatch, RecordBatchLimits, encode, split_batches
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.settings import KIB

LIMITS = RecordBatchLimits()


@pytest.fixture
def checker() -> Iterator[BatchChecker]:
    made = BatchChecker(LogSettings())
    yield made
    made.close()


def packed(size: int, *, codec: str = "gzip") -> list[RecordBatch]:
    return split_batches(encode([Record(0, 0, None, bytes(size))], compression=codec), limits=LIMITS)


def checked_at_once(checker: BatchChecker, batches: list[RecordBatch], times: int) -> int:
    return sum(checker.check_now(batches, limits=LIMITS, keyed=False) for _ in range(times))


async def test_one_turn_of_the_loop_decompresses_no_more_than_its_share(checker: BatchChecker) -> None:
    turn = batch_checker._TURN_BYTES_MAX
    for size in (10, 1_000, 30_000):
        at_once = checked_at_once(checker, packed(size), 300)
        assert 0 < at_once * size <= turn
        assert at_once < 100
        assert checked_at_once(checker, packed(size), 5) == 0
        await RealClock().sleep_ms(0)
        assert checked_at_once(checker, packed(size), 2) == 2  # the next turn has its own
        await RealClock().sleep_ms(0)


async def test_what_a_turn_has_no_room_for_is_checked_on_a_thread(checker: BatchChecker) -> None:
    batches = packed(30_000)
    checked_at_once(checker, batches, 20)
    waiting = checker.begin(batches, limits=LIMITS, keyed=False)
    assert waiting is not None
    await waiting


async def test_batches_that_turn_out_too_large_or_broken_count_as_well(checker: BatchChecker) -> None:
    large = packed(80 * KIB)
    assert checked_at_once(checker, large, 300) == 0
    assert checked_at_once(checker, packed(10), 1) == 0
    await RealClock().sleep_ms(0)
    ((header, data),) = packed(1_000)
    broken = [RecordBatch(header, data[:70])]
    refused = 0
    for _ in range(300):
        try:
            refused += not checker.check_now(broken, limits=LIMITS, keyed=False)
        except InvalidBatchError:
            continue
    assert refused > 290  # and not decompressed


async def test_batches_that_are_not_compressed_have_no_such_limit(checker: BatchChecker) -> None:
    assert checked_at_once(checker, packed(30_000, codec="none"), 300) == 300

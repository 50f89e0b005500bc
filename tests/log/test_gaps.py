"""Batches without records over gaps: whoever reads there gets the same epochs, before and after later takeovers."""

from holdfast.log.batches import parse_header
from holdfast.log.gaps import gap_batches_by_epoch
from holdfast.log.segments.model import EpochStart


def covered(start: int, end: int, *epochs: tuple[int, int], bytes_max: int = 1_000) -> list[tuple[int, int, int]]:
    """First and last offset, and epoch, of each batch."""
    found = gap_batches_by_epoch(start, end, [EpochStart(*each) for each in epochs], bytes_max=bytes_max)
    return [(header.base_offset, header.last_offset, header.leader_epoch) for header in map(parse_header, found)]


def test_each_takeovers_gap_has_the_epoch_that_ended_there() -> None:
    assert covered(8, 16, (1, 0), (2, 16)) == [(8, 15, 1)]
    assert covered(8, 32, (1, 0), (2, 16), (3, 32)) == [(8, 15, 1), (16, 31, 2)]
    assert covered(20, 32, (1, 0), (2, 16), (3, 32)) == [(20, 31, 2)]


def test_there_is_one_however_little_may_be_sent_and_the_rest_comes_next() -> None:
    epochs = ((1, 0), (2, 16), (3, 32))
    assert covered(8, 40, *epochs, bytes_max=1) == [(8, 15, 1)]
    assert covered(16, 40, *epochs, bytes_max=1) == [(16, 31, 2)]

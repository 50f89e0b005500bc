"""Runs: the plain batches of several small requests, judged and numbered together. No step here is taken for each of them.

The one rule: a run is what `split_batches` and `check_records` would accept, and nothing that is compressed or transactional, nor
anything with a fault. Who gets None judges batch by batch, which also says what is wrong. Without the C extension there are no
runs. Whether batches with a producer's id follow what it sent before is decided where that is known.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from holdfast.log.batches.header import LENGTH_COVERS_FROM, BatchHeader
from holdfast.log.batches.kernels import BEST
from holdfast.log.batches.limits import RecordBatchLimits
from holdfast.vocabulary.native import native
from holdfast.vocabulary.settings import MIB

_BYTES_MAX: Final = 2 * MIB  # 0.2 ms
_LENGTH: Final = Struct(">8xi")
_NO_LIMIT: Final = 2**31 - 1


class BatchRun(NamedTuple):
    """Batches one behind another."""

    data: bytearray
    batch_count: int
    record_count: int
    max_timestamp_ms: int
    of_producers: int  # batches that have a producer's id

    def headers(self) -> list[BatchHeader]:
        """The header of each."""
        found = BEST.scan(self.data, False, _NO_LIMIT, _NO_LIMIT, BatchHeader)
        assert isinstance(found, list), "a run is sound"
        return found


def verify_run(payloads: Sequence[bytearray], *, limits: RecordBatchLimits, records: bool) -> BatchRun | None:
    """The batches of payloads as a run, which may take over their memory; `records`: those inside are checked, too."""
    if native is None:
        return None
    limit = (limits.batch_bytes_max, limits.records_max, _BYTES_MAX)
    found = native.verify_run(payloads if isinstance(payloads, list) else [*payloads], *limit, records)
    return None if found is None else BatchRun._make(found)


def number_run(run: BatchRun, *, base_offset: int, epoch: int) -> list[int]:
    """Give the batches offsets from `base_offset` on, in place; the base offset of each."""
    assert native is not None
    return native.number_run(run.data, base_offset, epoch)


def locate_in_run(
    data: bytes | bytearray | memoryview, offset: int, *, below: int, bytes_max: int, one: bool
) -> tuple[int, int]:
    """Where those of numbered batches lie that end behind `offset` and at or below `below`, in at most `bytes_max` bytes.

    `one`: the first of them in any case.
    """
    if native is not None:
        return native.locate_run(data, offset, below, bytes_max, one)
    start, end, at = -1, 0, 0
    for header in run_headers(data):
        at, begin = at + header.size_bytes, at
        if header.last_offset >= below:
            break
        if header.last_offset < offset:
            continue
        if start < 0:
            start = end = begin
        if at - start > bytes_max and not (one and begin == start):
            break
        end = at
    return max(start, 0), end


def run_headers(data: bytes | bytearray | memoryview) -> list[BatchHeader]:
    """The header of each of numbered batches."""
    found = BEST.scan(data, True, _NO_LIMIT, _NO_LIMIT, BatchHeader)
    assert isinstance(found, list), "a run is sound"
    return found


def cut_run(data: bytes | bytearray | memoryview) -> list[memoryview]:
    """Each batch of sound ones that lie one behind another."""
    view, at, found = memoryview(data), 0, []
    while at < len(view):
        end = at + LENGTH_COVERS_FROM + _LENGTH.unpack_from(view, at)[0]
        found.append(view[at:end])
        at = end
    return found

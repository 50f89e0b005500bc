"""Judging what a producer sent, and cutting it into batches.

The one rule: `split` accepts all of a payload or nothing. It validates headers and checksums, not the records inside: that
costs a decompression and is `record_checks.check_records`' work.
"""

from typing import NamedTuple

from crc32c import crc32c

from holdfast.log.batches.header import CRC_COVERS_FROM, BatchHeader, Buffer
from holdfast.log.batches.kernels import BEST, BatchKernel
from holdfast.log.batches.limits import RecordBatchLimits
from holdfast.log.batches.rules import BatchRule, fault_error


class RecordBatch(NamedTuple):
    """One sound batch: its header, and the bytes of all of it where they arrived."""

    header: BatchHeader
    data: memoryview


def split_batches(
    buffer: Buffer, *, limits: RecordBatchLimits, stored: bool = False, kernel: BatchKernel = BEST
) -> list[RecordBatch]:
    """The batches of a payload, every one validated; the first fault raises an `InvalidBatchError`.

    With `stored`, the bytes are our own: gaps, control batches, empty batches and sizes beyond the limits are lawful, no
    batch at all is an answer, and a fault raises a `CorruptBatchError`.
    """
    headers = kernel.scan(buffer, stored, limits.batch_bytes_max, limits.records_max, BatchHeader)
    if isinstance(headers, tuple):
        raise fault_error(headers, stored=stored)
    if not headers and not stored:
        raise fault_error((BatchRule.EMPTY, 0, -1, 0), stored=False)
    view = memoryview(buffer)
    batches = []
    at = 0
    for header in headers:
        end = at + header.size_bytes
        if crc32c(view[at + CRC_COVERS_FROM : end]) != header.crc:
            raise fault_error((BatchRule.CRC, at, -1, header.crc), stored=stored)
        batches.append(RecordBatch(header, view[at:end]))
        at = end
    return batches

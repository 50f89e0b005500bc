"""Judging what a producer sent, and cutting it into batches.

The one rule: `split` accepts all of a payload or nothing. It judges headers and checksums, not the records inside: that
costs a decompression and is `records.validate_records`' work, for topics that need it.
"""

from typing import NamedTuple

from crc32c import crc32c

from holdfast.log.batches.header import CRC_COVERS_FROM, BatchHeader, Buffer
from holdfast.log.batches.limits import BatchLimits
from holdfast.log.batches.native import BEST, Kernel
from holdfast.log.batches.rules import Rule, refuse


class Batch(NamedTuple):
    """One sound batch: its header, and the bytes of all of it where they arrived."""

    header: BatchHeader
    data: memoryview


def split(buffer: Buffer, *, limits: BatchLimits, stored: bool = False, kernel: Kernel = BEST) -> list[Batch]:
    """The batches of a payload, every one judged; the first fault raises an `InvalidBatchError`.

    With `stored`, the bytes are our own: gaps, control batches, empty batches and sizes beyond the limits are lawful, no
    batch at all is an answer, and a fault raises a `CorruptBatchError`.
    """
    headers = kernel.scan(buffer, stored, limits.batch_bytes_max, limits.records_max, BatchHeader)
    if isinstance(headers, tuple):
        raise refuse(headers, stored=stored)
    if not headers and not stored:
        raise refuse((Rule.EMPTY, 0, -1, 0), stored=False)
    view = memoryview(buffer)
    batches = []
    at = 0
    for header in headers:
        end = at + header.size_bytes
        if crc32c(view[at + CRC_COVERS_FROM : end]) != header.crc:
            raise refuse((Rule.CRC, at, -1, header.crc), stored=stored)
        batches.append(Batch(header, view[at:end]))
        at = end
    return batches

"""Kafka's RecordBatch v2, the form in which the log receives, stores and serves records.

    batches = split(payload, limits=BatchLimits())      # judge what a producer sent
    patch(batch, base_offset=41, leader_epoch=3)        # the only bytes a leader changes
    encode([Record(0, now_ms, b"key", b"value")])       # for those who have records, not batches
    decode(batch), to_arrow(buffers, include_headers=True)

The one rule: batches travel as the bytes they are; records are looked at only by who needs records. Rules and errors are
in `rules`, the two kernels (C and its twin in Python) behind `native`, the format is described in docs/formats/batches.md.
"""

from holdfast.log.batches.arrow import to_arrow
from holdfast.log.batches.batch_split import RecordBatch, split_batches
from holdfast.log.batches.header import BatchHeader, Buffer, parse_header, patch, set_append_time
from holdfast.log.batches.limits import RecordBatchLimits
from holdfast.log.batches.records import Record, decode, encode, validate_records
from holdfast.log.batches.rules import BatchRule, CorruptBatchError, InvalidBatchError

__all__ = [
    "BatchHeader",
    "BatchRule",
    "Buffer",
    "CorruptBatchError",
    "InvalidBatchError",
    "Record",
    "RecordBatch",
    "RecordBatchLimits",
    "decode",
    "encode",
    "parse_header",
    "patch",
    "set_append_time",
    "split_batches",
    "to_arrow",
    "validate_records",
]

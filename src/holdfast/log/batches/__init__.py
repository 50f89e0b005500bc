"""Kafka's RecordBatch v2, the form in which the log receives, stores and serves records.

    split_batches(payload, limits=RecordBatchLimits())  # validate what a producer sent
    patch(batch, base_offset=41, leader_epoch=3)        # the only bytes a leader changes
    encode([Record(0, now_ms, b"key", b"value")])       # for callers that have records, not batches
    decode(batch), to_arrow(buffers, include_headers=True)

The one rule: batches are passed on as the bytes they are; records are decoded only where they are needed. Rules and errors
are in `rules`, the two implementations (C and pure Python) behind `kernels`, the format is described in docs/formats/batches.md.
"""

from holdfast.log.batches.arrow import to_arrow
from holdfast.log.batches.batch_split import RecordBatch, split_batches
from holdfast.log.batches.header import BatchHeader, Buffer, parse_header, patch, set_append_time
from holdfast.log.batches.limits import RecordBatchLimits
from holdfast.log.batches.records import (
    PickedExtents,
    PlainRecord,
    Record,
    decode,
    decode_chosen,
    encode,
    encode_values,
    pick_extents,
    pick_records,
    validate_records,
)
from holdfast.log.batches.rules import BatchRule, CorruptBatchError, InvalidBatchError

__all__ = [
    "BatchHeader",
    "BatchRule",
    "Buffer",
    "CorruptBatchError",
    "InvalidBatchError",
    "PickedExtents",
    "PlainRecord",
    "Record",
    "RecordBatch",
    "RecordBatchLimits",
    "decode",
    "decode_chosen",
    "encode",
    "encode_values",
    "parse_header",
    "patch",
    "pick_extents",
    "pick_records",
    "set_append_time",
    "split_batches",
    "to_arrow",
    "validate_records",
]

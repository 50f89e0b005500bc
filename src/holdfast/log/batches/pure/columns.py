"""The records of many batches as the buffers of Arrow columns.

Keys, values and header parts become Arrow views: up to 12 bytes inside the view, longer ones by (buffer, position) in the
input itself, so that no payload is copied.
"""

from array import array
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from holdfast.log.batches.header import APPEND_TIME, CODEC_MASK, CONTROL, HEADER, HEADER_BYTES, BatchHeader, Buffer
from holdfast.log.batches.pure.headers import first_fault
from holdfast.log.batches.pure.record_reader import NULL, ByteRange, RecordFault, is_count_invalid, read_record
from holdfast.log.batches.rules import BatchRule

_INLINE = Struct("=i12s")
_DISTANT = Struct("=i4sii")
_INLINE_MAX: Final = 12
_NULL_VIEW: Final = bytes(16)
_INT32_MAX: Final = 2**31 - 1
_UNLIMITED: Final = 2**63 - 1

Inflate = Callable[[int, memoryview, int], Buffer]
FaultTuple = tuple[int, int, int, int]


class _BatchPart(NamedTuple):
    header: BatchHeader
    at: int  # of the batch, counted over all input buffers
    records: bytes  # a copy to read from; views point into the original
    data_index: int
    origin: int  # where `records` begins in its data buffer


class _Views:
    """A column of views and the bits that say which of them are not null."""

    def __init__(self) -> None:
        self.views = bytearray()
        self.valid = bytearray()
        self.rows = self.nulls = 0

    def add(self, piece: _BatchPart, span: ByteRange) -> None:
        if span is NULL:
            self._add(_NULL_VIEW, 0)
        else:
            self.add_text(piece.records[span[0] : span[1]], piece.data_index, piece.origin + span[0])

    def add_text(self, text: bytes, data_index: int, position: int) -> None:
        if len(text) <= _INLINE_MAX:
            self._add(_INLINE.pack(len(text), text), 1)
        else:
            self._add(_DISTANT.pack(len(text), text[:4], data_index, position), 1)

    def _add(self, view: bytes, valid: int) -> None:
        if self.rows & 7 == 0:
            self.valid.append(0xFF)  # the bits past the last row stay set
        if not valid:
            self.valid[-1] &= ~(1 << (self.rows & 7)) & 0xFF
            self.nulls += 1
        self.views += view
        self.rows += 1


class _Decoder:
    """Columns that grow by one piece after another."""

    def __init__(self, data: list[Buffer], *, with_headers: bool) -> None:
        self.data = data
        self.with_headers = with_headers
        self.offsets, self.timestamps, self.types = array("q"), array("q"), array("b")
        self.keys, self.values = _Views(), _Views()
        self.lists, self.header_keys, self.header_values = array("i", [0]), _Views(), _Views()
        self.mended: bytearray | None = None
        self.mended_index = 0

    def decode(self, piece: _BatchPart) -> FaultTuple | None:
        header = piece.header
        at, index, previous = 0, -1, -1
        try:
            for index in range(header.count):  # noqa: B007 - the fault has the record's index
                raw = read_record(piece.records, at, header, previous, contiguous=False)
                self.offsets.append(header.base_offset + raw.offset_delta)
                self.timestamps.append(raw.timestamp)
                self.types.append(1 if header.attributes & APPEND_TIME else 0)
                self.keys.add(piece, raw.key)
                self.values.add(piece, raw.value)
                if self.with_headers:
                    self._add_headers(piece, raw.headers)
                at, previous = raw.end, raw.offset_delta
        except RecordFault as broken:
            return (int(broken.rule), piece.at, index, broken.given)
        if at != len(piece.records):
            return (int(BatchRule.TRAILING), piece.at, header.count, len(piece.records) - at)
        return None

    def _add_headers(self, piece: _BatchPart, headers: list[tuple[ByteRange, ByteRange]]) -> None:
        if self.header_keys.rows > _INT32_MAX - len(headers):
            raise RecordFault(BatchRule.HEADERS, len(headers))
        for key, value in headers:
            self._add_key(piece, key)
            self.header_values.add(piece, value)
        self.lists.append(self.header_keys.rows)

    def _add_key(self, piece: _BatchPart, key: ByteRange) -> None:
        """Arrow strings are UTF-8, Kafka's are whatever came: broken ones get U+FFFD, in a data buffer of their own."""
        text = piece.records[key[0] : key[1]]
        mended = str(text, "utf-8", "replace").encode()
        if mended == text:
            self.header_keys.add(piece, key)
            return
        if self.mended is None:
            self.mended = bytearray()
            self.data.append(self.mended)
            self.mended_index = len(self.data) - 1
        position = len(self.mended)
        if len(mended) > _INLINE_MAX:
            self.mended += mended
        self.header_keys.add_text(mended, self.mended_index, position)

    def result(self) -> tuple[object, ...]:
        headers = None
        if self.with_headers:
            keys, values = self.header_keys, self.header_values
            lists = bytearray(self.lists.tobytes())
            headers = (keys.rows, lists, keys.views, values.views, values.valid, values.nulls)
        return (
            len(self.offsets),
            self.data,
            *(bytearray(column.tobytes()) for column in (self.offsets, self.timestamps, self.types)),
            *(self.keys.views, self.keys.valid, self.keys.nulls),
            *(self.values.views, self.values.valid, self.values.nulls),
            headers,
        )


def columns(buffers: Sequence[Buffer], inflate: Inflate, with_headers: bool, /) -> tuple[object, ...] | FaultTuple:
    """The fields of `native.Columns` for all records that are not control records, or the first fault."""
    data: list[Buffer] = []
    pieces: list[_BatchPart] = []
    before = 0
    for buffer in tuple(buffers):
        fault = _split(buffer, before, inflate, data, pieces)
        if fault is not None:
            return fault
        before += len(buffer)
    decoder = _Decoder(data, with_headers=with_headers)
    for piece in pieces:
        fault = decoder.decode(piece)
        if fault is not None:
            return fault
    return decoder.result()


def _split(
    buffer: Buffer, before: int, inflate: Inflate, data: list[Buffer], pieces: list[_BatchPart]
) -> FaultTuple | None:
    view = memoryview(buffer)
    if len(view) > _INT32_MAX:
        raise OverflowError("a buffer is at most 2 GiB")
    data_index = -1
    at = end = 0
    while end < len(view):
        at = end
        broken = first_fault(view, at, True, _UNLIMITED, _UNLIMITED)
        if broken is not None:
            return (int(broken[0]), before + at, -1, broken[1])
        header = BatchHeader._make(HEADER.unpack_from(view, at))
        end = at + header.size_bytes
        if header.attributes & CONTROL or header.count == 0:
            continue  # nothing in them is a record of the application
        records = view[at + HEADER_BYTES : end]
        if header.attributes & CODEC_MASK:
            plain = inflate(header.attributes & CODEC_MASK, records, before + at)
            data.append(plain)
            piece = _BatchPart(header, before + at, bytes(plain), len(data) - 1, 0)
        else:
            if data_index < 0:
                data.append(buffer)
                data_index = len(data) - 1
            piece = _BatchPart(header, before + at, bytes(records), data_index, at + HEADER_BYTES)
        if is_count_invalid(header, len(piece.records)):
            return (int(BatchRule.COUNT), before + at, -1, header.count)
        pieces.append(piece)
    return None

"""Pieces as they are stored: whole and as recorded, or the batch blocks."""

import msgspec
import pyarrow as pa
import pytest

from holdfast.pipeline.driver.streaming.pieces import encode_rows, read_piece
from holdfast.pipeline.driver.streaming.stream_record import Piece
from holdfast.pipeline.mapping.content_hash import rows_hash
from holdfast.pipeline.sinks.contract import BlockedError

ROWS = pa.table({"id": pa.array(range(1_000), pa.int64()), "name": [f"n{each}" for each in range(1_000)]})
BODY = encode_rows(ROWS)
PIECE = Piece(rows=ROWS.num_rows, hash=rows_hash(ROWS), body=BODY)


def test_a_piece_is_read_as_it_was_stored() -> None:
    assert read_piece("", PIECE).equals(ROWS)


@pytest.mark.parametrize(
    "body",
    [b"", BODY[: len(BODY) // 2], BODY[:-9], BODY[:1_500] + b"\0" * 400 + BODY[1_900:], encode_rows(ROWS.slice(1))],
    ids=["empty", "half", "no-end", "zeros", "other"],
)
def test_a_damaged_piece_blocks(body: bytes) -> None:
    with pytest.raises(BlockedError, match="object storage is damaged"):
        read_piece("", msgspec.structs.replace(PIECE, body=body))

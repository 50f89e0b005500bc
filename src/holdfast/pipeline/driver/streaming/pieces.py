"""Pieces: the rows of a batch as Arrow streams, computed once on executors; in object storage or, if small, inline.

The one rule: a piece is complete before its key leaves the task, and never changes. Every attempt of a task has keys of its own;
what no intent names is removed with the epoch that made it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from holdfast.client.loop_thread import run
from holdfast.contracts.objects import Missing
from holdfast.objects.urls import open_objects
from holdfast.pipeline.driver.streaming.stream_record import Piece
from holdfast.pipeline.driver.versions import ComponentVersions, check_versions, installed_versions
from holdfast.pipeline.mapping.content_hash import rows_hash
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

SCHEMA: Final = "piece binary"
PIECE_INLINE_BYTES_MAX: Final = 16 * 1024
"""Of a piece that a task sends to the driver. What a batch may keep inline is the driver's to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePieces:
    """A task: the rows of one partition of the result, as pieces."""

    objects: str = field(repr=False)
    """The URL of object storage."""
    prefix: str
    """Of the keys: pipeline, generation, epoch and batch."""
    rows_max: int
    bytes_max: int
    not_null: tuple[str, ...] = ()
    """Columns of the table's key."""
    versions: ComponentVersions = field(default_factory=installed_versions)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        check_versions(self.versions)
        packed = [msgspec.msgpack.encode(piece) for piece in self._pieces(batches)]
        failpoints.reached("stream.task-staged")
        yield pa.RecordBatch.from_arrays([pa.array(packed, pa.binary())], names=["piece"])

    def _pieces(self, batches: Iterable[Any]) -> Iterator[Piece]:
        import pyarrow as pa

        held: list[Any] = []
        rows = size = 0
        for batch in batches:
            self._check_nulls(batch)
            while batch.num_rows:
                taken = batch.slice(0, self.rows_max - rows)
                batch = batch.slice(taken.num_rows)
                held.append(taken)
                rows, size = rows + taken.num_rows, size + taken.nbytes
                if rows >= self.rows_max or size >= self.bytes_max:
                    yield self._piece(pa.Table.from_batches(held))
                    held, rows, size = [], 0, 0
        if rows:
            yield self._piece(pa.Table.from_batches(held))

    def _check_nulls(self, batch: Any) -> None:
        for name in self.not_null:
            if batch.column(name).null_count:
                raise BlockedError(f"column {name} has nulls, and the table is ordered by it: use coalesce({name}, …)")

    def _piece(self, table: Any) -> Piece:
        body = encode_rows(table)
        if len(body) <= PIECE_INLINE_BYTES_MAX:
            return Piece(rows=table.num_rows, hash=rows_hash(table), body=body)
        return store_piece(self.objects, self.prefix, Piece(rows=table.num_rows, hash=rows_hash(table), body=body))


def encode_rows(table: Any) -> bytes:
    """A table as a compressed Arrow stream of one batch."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table.combine_chunks(), max_chunksize=max(1, table.num_rows))
    return bytes(sink.getvalue())


def store_piece(objects: str, prefix: str, piece: Piece) -> Piece:
    """The piece with its rows in an object."""
    key = f"{prefix}{SystemRandom().token()}.arrow"

    async def put() -> None:
        async with open_objects(objects, clock=RealClock(), random=SystemRandom()) as opened:
            await opened.put(key, [piece.body])

    run(put())
    return msgspec.structs.replace(piece, key=key, body=b"")


def read_piece(objects: str, piece: Piece) -> Any:
    """The rows of a piece, a `pyarrow.Table`. `BlockedError`: they are not what was recorded."""
    import pyarrow as pa

    body = _stored(objects, piece.key) if piece.key else piece.body
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
    except (pa.ArrowException, OSError) as error:
        raise BlockedError(f"piece {piece.key or '(inline)'}: object storage is damaged: {error}") from None
    if (table.num_rows, rows_hash(table)) != (piece.rows, piece.hash):
        raise BlockedError(
            f"piece {piece.key or '(inline)'} has {table.num_rows} rows ({rows_hash(table)}), {piece.rows} ({piece.hash}) were "
            "recorded: object storage is damaged"
        )
    return table


def _stored(objects: str, key: str) -> bytes:
    async def get() -> bytes | None:
        async with open_objects(objects, clock=RealClock(), random=SystemRandom()) as opened:
            found = await opened.get(key)
            return None if isinstance(found, Missing) else bytes(found)

    body = run(get())
    if body is None:
        raise BlockedError(f"piece {key} of a begun batch is not in object storage")
    return body


def delete_pieces(objects: str, prefix: str, *, doomed: Callable[[str], bool] = lambda key: True) -> None:
    """Remove the objects below a prefix, or some of them."""

    async def delete() -> None:
        async with open_objects(objects, clock=RealClock(), random=SystemRandom()) as opened:
            await opened.delete([info.key async for info in opened.list(prefix) if doomed(info.key)])

    run(delete())

"""A batch of a streaming query, written: Spark's offsets read, rows computed once, begun, inserted, recorded as done.

The one rule: nothing is inserted that is not in the record's intent, and Spark learns of a batch's end only once the record has it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.objects.task_credentials import TaskObjects
from holdfast.pipeline.driver import task_outcomes
from holdfast.pipeline.driver.streaming import protocol
from holdfast.pipeline.driver.streaming.checkpoint_folder import CheckpointFolders
from holdfast.pipeline.driver.streaming.dead_letters import BadRecords
from holdfast.pipeline.driver.streaming.pieces import SCHEMA, StagePieces, delete_pieces, read_piece, store_piece
from holdfast.pipeline.driver.streaming.stream_fence import raise_fence
from holdfast.pipeline.driver.streaming.stream_record import BatchIntent, Piece
from holdfast.pipeline.driver.streaming.stream_store import StreamStore
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.pipeline.driver.tasks import outcome_of
from holdfast.pipeline.mapping.ddl import TableSpec
from holdfast.pipeline.model.query import OutputMode
from holdfast.pipeline.sinks.clickhouse.stream_sink import ClickHouseStreamSink, stream_table
from holdfast.pipeline.sinks.contract import BlockedError, FencedRange, SinkTarget
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import FencedError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INLINE_BYTES_MAX: Final = 48 * 1024
"""Of all pieces of a batch that are kept in its intent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTarget:
    """Where the batches of one revision go. It pickles."""

    target: SinkTarget
    output_mode: OutputMode

    def table(self) -> TableSpec:
        """Its table. `InvalidError`: the columns do not fit the sink's settings."""
        return stream_table(self.target, self.output_mode)

    def open(self) -> ClickHouseStreamSink:
        """Its sink in this process."""
        return ClickHouseStreamSink(self.target, self.output_mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertPieces:
    """A task: pieces that are in object storage, inserted by the executor that reads them."""

    batch_target: BatchTarget
    objects: str = field(repr=False)
    fenced: FencedRange
    pieces: tuple[tuple[int, Piece], ...]

    def __call__(self, batches: Any) -> Any:
        sink = self.batch_target.open()
        try:
            for batch in batches:
                for at in batch.column("id").to_pylist():
                    yield task_outcomes.to_batch([self._insert(sink, *self.pieces[at])])
        finally:
            sink.close()

    def _insert(self, sink: ClickHouseStreamSink, number: int, piece: Piece) -> TaskOutcome:
        from pyspark import TaskContext

        context = TaskContext.get()
        again = self.fenced.may_be_written or (context is not None and context.attemptNumber() > 0)
        fenced = FencedRange(
            partition=0,
            start=self.fenced.start,
            end=self.fenced.end,
            epoch=self.fenced.epoch,
            fence=self.fenced.fence,
            may_be_written=again,
        )

        def insert(_: FencedRange) -> TaskOutcome:
            rows = read_piece(self.objects, piece)
            failpoints.reached("stream.task-inserting")
            sink.insert_piece(fenced, number, rows)
            failpoints.reached("stream.task-inserted")
            return TaskOutcome(partition=number, kind="done", rows=piece.rows)

        return outcome_of(insert, fenced)


class BatchWriter:
    """Of one query under one epoch, in the thread that Spark calls for every batch."""

    def __init__(
        self,
        *,
        store: StreamStore,
        folders: CheckpointFolders,
        target: BatchTarget,
        target_of: Callable[[int], BatchTarget],
        sink: ClickHouseStreamSink,
        fence: int,
        objects: str,
        prefix: str,
        order_by: tuple[str, ...],
        not_null: tuple[str, ...],
        bad_records: BadRecords,
        may_write: Callable[[], bool],
        on_done: Callable[[int, int], None],
    ) -> None:
        self._store, self._folders, self._sink = store, folders, sink
        self._target, self._target_of, self._fence = target, target_of, fence
        self._objects, self._prefix = objects, prefix
        self._task_objects = TaskObjects(objects, prefix)
        self._order_by, self._not_null = order_by, not_null
        self._bad_records = bad_records
        self._may_write, self._on_done = may_write, on_done
        self._epoch = store.record.epoch
        self._may_be_repeated = True
        """Whether an earlier attempt of this epoch may have staged the batch. Only the first: a batch that fails ends the query."""

    def write(self, frame: "DataFrame", batch: int) -> None:
        """One batch. An exception fails the query: it is then restarted, or taken over."""
        offsets = self._folders.offsets(self._epoch, batch)
        failpoints.reached("stream.planned")
        match protocol.decide_batch(self._store.record, batch, offsets):
            case protocol.Blocked(reason):
                raise BlockedError(f"{reason}; rewind the pipeline to continue from its sources")
            case protocol.RunState():
                _run_for_state(frame)
            case protocol.WriteBegun(intent):
                _run_for_state(frame)
                self._write_begun(intent, again=True)
            case protocol.Compute():
                self._write_begun(self._begin(frame, batch, offsets), again=False)

    def _begin(self, frame: "DataFrame", batch: int, offsets: str) -> BatchIntent:
        if self._may_be_repeated:  # no intent names what such an attempt has stored
            delete_pieces(self._objects, f"{self._prefix}{self._epoch}/{batch}/")
            self._may_be_repeated = False
        pieces = self._stage(frame, batch)
        refused = self._stage_refused(frame.sparkSession, batch, offsets)
        failpoints.reached("stream.staged")
        intent = BatchIntent(
            batch=batch,
            epoch=self._epoch,
            revision=self._target.target.revision.version,
            output_mode=self._target.output_mode,
            offsets=offsets,
            pieces=pieces,
            table=self._sink.table_id(),
            refused=refused,
        )
        self._folders.save(self._epoch)
        self._check_may_write()
        self._store.update(lambda record: protocol.begun(record, intent))
        failpoints.reached("stream.begun")
        return intent

    def _stage(self, frame: "DataFrame", batch: int) -> tuple[Piece, ...]:
        """The rows of the batch, computed once, as pieces in the order of the result's partitions."""
        ordered = frame.sortWithinPartitions(*self._order_by) if self._order_by else frame
        return self._stored(ordered, batch, self._not_null)

    def _stage_refused(self, session: "SparkSession", batch: int, offsets: str) -> tuple[Piece, ...]:
        """The records that the sources of the batch left out."""
        done = self._store.record.done
        before = "" if done is None else done.offsets
        found: list[Piece] = []
        self._bad_records.of_batch(session, before, offsets, lambda frame: found.extend(self._stored(frame, batch, ())))
        return tuple(found)

    def _stored(self, frame: "DataFrame", batch: int, not_null: tuple[str, ...]) -> tuple[Piece, ...]:
        config = self._target.target.revision.sink
        prefix = f"{self._prefix}{self._epoch}/{batch}/"
        task = StagePieces(
            objects=self._task_objects.url(),
            prefix=prefix,
            rows_max=config.batch_size,
            bytes_max=config.batch_bytes,
            not_null=not_null,
        )
        rows = frame.mapInArrow(task, SCHEMA).collect()
        pieces = [msgspec.msgpack.decode(bytes(row[0]), type=Piece) for row in rows]
        inline = sum(len(piece.body) for piece in pieces)
        if inline > INLINE_BYTES_MAX:
            pieces = [each if each.key else store_piece(self._objects, prefix, each) for each in pieces]
        return tuple(pieces)

    def _write_begun(self, intent: BatchIntent, *, again: bool) -> None:
        """Insert the pieces of the intent, by the sink of the revision it was begun with; then it is done."""
        self._check_may_write()
        if intent.revision == self._target.target.revision.version:
            self._insert_all(intent, self._target, self._sink, self._fence, again=again)
        else:
            self._insert_by_former_sink(intent)
        self._store.update(lambda record: protocol.finished(record, intent.batch, intent.offsets))
        failpoints.reached("stream.done")
        self._on_done(sum(piece.rows for piece in intent.pieces), sum(piece.rows for piece in intent.refused))
        if any(piece.key for piece in (*intent.pieces, *intent.refused)):
            delete_pieces(self._objects, f"{self._prefix}{intent.epoch}/{intent.batch}/")

    def _insert_by_former_sink(self, intent: BatchIntent) -> None:
        """By a sink that the pipeline does not have any more. It may be at another server, which nobody has fenced yet."""
        target = self._target_of(intent.revision)
        sink = target.open()
        try:
            self._insert_all(intent, target, sink, raise_fence(sink, self._store), again=True)
        except BlockedError as error:
            raise BlockedError(
                f"batch {intent.batch} was begun under revision {intent.revision}, before the sink was edited: {error.reason}; "
                "make that sink writable again, or rewind the pipeline"
            ) from None
        finally:
            sink.close()
        self._fence = raise_fence(self._sink, self._store)  # both may be at one server, under one number

    def _insert_all(
        self, intent: BatchIntent, target: BatchTarget, sink: ClickHouseStreamSink, fence: int, *, again: bool
    ) -> None:
        if again:
            sink.check_table(intent.table)
        fenced = FencedRange(
            partition=0,
            start=intent.batch,
            end=intent.batch + 1,
            epoch=self._epoch,
            fence=fence,
            may_be_written=again,
        )
        for at, piece in enumerate(intent.refused):
            self._check_may_write()
            sink.insert_refused(fenced, at, read_piece(self._objects, piece))
        sink.begin_batch(fenced)
        self._insert(intent, target, sink, fenced)
        failpoints.reached("stream.pieces-inserted")
        sink.finish_batch(fenced, sum(piece.rows for piece in intent.pieces))

    def _insert(
        self, intent: BatchIntent, target: BatchTarget, sink: ClickHouseStreamSink, fenced: FencedRange
    ) -> None:
        stored = tuple((at, piece) for at, piece in enumerate(intent.pieces) if piece.key)
        for at, piece in enumerate(intent.pieces):
            if not piece.key:
                self._check_may_write()
                sink.insert_piece(fenced, at, read_piece(self._objects, piece))
        if not stored:
            return
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        assert session is not None
        task = InsertPieces(batch_target=target, objects=self._task_objects.url(), fenced=fenced, pieces=stored)
        rows = session.range(0, len(stored), 1, len(stored)).mapInArrow(task, task_outcomes.SCHEMA).collect()
        failed = [each for each in task_outcomes.from_rows(rows) if each.kind != "done"]
        if any(each.kind == "fenced" for each in failed):
            raise FencedError(target.target.fence_key(0), self._epoch, self._epoch + 1)
        if failed:
            raise BlockedError(failed[0].reason)

    def _check_may_write(self) -> None:
        if not self._may_write():
            raise UnavailableError("claims", "they expire, or the slot halts")


def _run_for_state(frame: "DataFrame") -> None:
    """Run a batch for its state: its rows are written already, or are in its intent."""
    frame.write.format("noop").mode("overwrite").save()

"""A slot that runs a StreamingQuery: take the generation over, start the query, watch it, stop it.

The one rule: the query runs only between a takeover and a stop, both of which wait: no thread of this process writes for an epoch
that was given away. After any failure the generation is taken over again, as a successor would.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from holdfast.client.loop_thread import run as wait_for
from holdfast.contracts.objects import Objects
from holdfast.pipeline.driver.owned_partitions import SlotCounters
from holdfast.pipeline.driver.retry_state import RetryState
from holdfast.pipeline.driver.slot_context import DriverResources
from holdfast.pipeline.driver.slot_revisions import PermanentError
from holdfast.pipeline.driver.slot_store import SlotStore
from holdfast.pipeline.driver.source_topic import recreated
from holdfast.pipeline.driver.spark_jobs import cause_of
from holdfast.pipeline.driver.streaming import protocol, stream_progress
from holdfast.pipeline.driver.streaming.batch_writer import BatchTarget, BatchWriter
from holdfast.pipeline.driver.streaming.checkpoint_folder import CheckpointFolders, checkpoint_root
from holdfast.pipeline.driver.streaming.dead_letters import BadRecords, observed_by
from holdfast.pipeline.driver.streaming.leftovers import release_committed, remove_leftovers
from holdfast.pipeline.driver.streaming.local_folder import LocalFolder
from holdfast.pipeline.driver.streaming.query_listener import ListenedSession, QueryFigures
from holdfast.pipeline.driver.streaming.running_query import Batches, RunningStream
from holdfast.pipeline.driver.streaming.stream_fence import raise_fence
from holdfast.pipeline.driver.streaming.stream_query import (
    QueryFailedError,
    StreamQuery,
    build_query,
    start_position,
    stream_session,
)
from holdfast.pipeline.driver.streaming.stream_record import StreamRecord
from holdfast.pipeline.driver.streaming.stream_store import StreamStore
from holdfast.pipeline.driver.streaming.uploaded_checkpoints import UploadedCheckpoints
from holdfast.pipeline.model.definition import ClickHouseConfig, Generation, Pipeline, Revision, registry_namespace
from holdfast.pipeline.model.driver_protocol import RunSlot, SlotProgress, StreamProgress, slot_title
from holdfast.pipeline.model.query import chosen_engine
from holdfast.pipeline.model.stream_files import STREAMS_FOLDER
from holdfast.pipeline.sinks.clickhouse.stream_sink import stream_target
from holdfast.pipeline.sinks.contract import EXACTLY_ONCE, BlockedError, SinkTarget
from holdfast.registry.model import SourceTopic
from holdfast.spark.clusters import open_cluster
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import FencedError, HoldfastError, InvalidError

_log: Final = logging.getLogger(__name__)


class StreamProcessor:
    """One generation with a query. For the slot's thread, like `SlotProcessor`."""

    def __init__(self, run: RunSlot, resources: DriverResources, may_write: Callable[[], bool]) -> None:
        settings = resources.settings
        self._run, self._resources, self._may_write = run, resources, may_write
        self._title, self._clock = slot_title(run), resources.clock
        self._store = SlotStore(
            resources.store,
            clock=resources.clock,
            random=resources.random,
            pipeline_id=run.pipeline_id,
            generation=run.generation,
            consumer=run.slot,
            timeout_ms=settings.store_timeout_ms,
            secrets=resources.secrets,
        )
        self._retries = RetryState(settings, clock=resources.clock, random=resources.random)
        self.counters = SlotCounters()
        self.running: RunningStream | None = None
        """The query, between its takeover and its stop."""
        self._stopping = False
        self._done_batches = 0
        self._progress: StreamProgress | None = None
        self._figures = QueryFigures()
        self._refreshed_ms = 0
        self._retry_at_ms = 0
        self._local: LocalFolder | None = None

    # --- what the slot's thread calls

    def drop_unclaimed(self, claims: dict[int, int]) -> None:
        """Stop a query whose epoch is not claimed any more."""
        if self.running is not None and claims.get(0) != self.running.epoch:
            self._stop()
        self._retries.keep_only(claims)

    def turn(self, claims: dict[int, int]) -> int:
        """Start the query, or look at it; when the next turn is due (boot clock), at the latest."""
        now_ms, epoch = self._clock.boot_ms(), claims.get(0)
        poll_ms = now_ms + self._resources.settings.poll_ms
        if epoch is None or not self._retries.may_try(0, epoch) or now_ms < self._retry_at_ms:
            return poll_ms
        try:
            self._check_edits(now_ms)
            if self.running is None:
                self._start(epoch)
            else:
                self._watch(self.running)
        except PermanentError:
            raise
        except FencedError as error:
            _log.info("%s lost its query: %s", self._title, error)
            self._stop()
            self._retries.fenced(0, epoch)
        except HoldfastError as error:
            self._stop()
            self._retry_at_ms = self._retries.back_off(str(error))
        except Exception:  # what was half started must not be watched
            self._stop()
            raise
        return poll_ms

    def finished(self, claims: dict[int, int]) -> bool:
        """A query follows its sources for ever."""
        return False

    def progress(self) -> SlotProgress:
        """For the status."""
        message = self.counters.progress(self._run.slot, {}, self._retries.reason)
        return stream_progress.with_stream(message, self._progress)

    def stop(self) -> None:
        """Before the slot reports that it has halted: nothing of the query runs after this."""
        self._stopping = True
        self._stop()
        if self._local is not None:
            self._local.remove()
            self._local = None

    def close(self) -> None:
        """The same."""
        self.stop()

    # --- the query

    def _check_edits(self, now_ms: int) -> None:
        """Stop a query whose pipeline was edited: it starts again with the new revision."""
        if self.running is None or now_ms < self._refreshed_ms + self._resources.settings.refresh_ms:
            return
        self._refreshed_ms = now_ms
        pipeline, _ = self._pipeline()
        if pipeline.revision != self.running.revision.version:
            self._stop()

    def _pipeline(self) -> tuple[Pipeline, Generation]:
        pipeline = self._store.pipeline()
        found = [each for each in pipeline.generations if each.number == self._run.generation]
        if not found or found[0].retired:
            raise PermanentError(f"generation {self._run.generation} is retired")
        if pipeline.revision == 0:
            raise PermanentError("the pipeline is incomplete: " + "; ".join(pipeline.problems))
        return pipeline, found[0]

    def _start(self, epoch: int) -> None:
        """Own the record, make the folder, raise the fence, start."""
        pipeline, generation = self._pipeline()
        revision = self._store.revision(pipeline.revision)
        resources, run = self._resources, self._run
        session = stream_session(resources.jobs, revision.query)
        store = StreamStore(
            resources.store,
            registry_namespace(run.pipeline_id, run.generation),
            epoch,
            clock=resources.clock,
            random=resources.random,
            timeout_ms=resources.settings.store_timeout_ms,
        )
        record = store.claim()
        failpoints.reached("stream.claimed")
        if not record.starts:
            record = self._decide_starts(store, revision, generation)
        query = self._build(session, revision, record)
        target = self._target(revision, query)
        sink = target.open()
        running = RunningStream(epoch, revision, store, self._folders(), sink)
        self.running = running  # from here on `_stop` closes it
        warnings = sink.prepare()
        sink.check_alone(self._store.exists)
        self.counters.warn(*(warnings if sink.guarantee == EXACTLY_ONCE else (sink.guarantee, *warnings)))
        fence = raise_fence(sink, store)
        self._take_over(running)
        batches = self._batches(running, query, target, fence)
        self._launch(running, query, batches)

    def _decide_starts(self, store: StreamStore, revision: Revision, generation: Generation) -> StreamRecord:
        """Where the sources begin, decided once for the generation and kept from retention."""
        address = self._resources.cluster_address
        sources = revision.query.sources
        given = generation.starts if len(sources) == 1 else {}
        found = [start_position(source, address, given) for source in sources]
        starts = tuple(
            {name: {str(number): at for number, at in topic.offsets.items()} for name, topic in each.topics.items()}
            for each in found
        )
        topics = {name: topic.id for each in found for name, topic in each.topics.items()}
        fixed = SourceTopic(sources[0].topic, generation.topic_id if given else "")
        if wrong := recreated(fixed, topics.get(fixed.topic, "")):
            raise BlockedError(wrong)
        return store.update(lambda record: protocol.started(record, starts, topics))

    def _build(self, session: Any, revision: Revision, record: StreamRecord) -> StreamQuery:
        sink = revision.sink
        assert isinstance(sink, ClickHouseConfig)
        return build_query(
            session,
            revision.query,
            order_by=sink.order_by,
            address=self._resources.cluster_address,
            starts=record.starts,
            python_allowed=self._resources.python_queries,
        )

    def _target(self, revision: Revision, query: StreamQuery) -> BatchTarget:
        sink = revision.sink
        assert isinstance(sink, ClickHouseConfig)
        target = SinkTarget(
            pipeline_id=self._run.pipeline_id,
            generation=self._run.generation,
            revision=revision,
            columns=query.columns,
            embedded="" if sink.dsn else self._resources.embedded,
        )
        try:
            made = BatchTarget(target=stream_target(target), output_mode=revision.query.output_mode)
            made.table()
        except InvalidError as error:
            raise PermanentError(str(error)) from None
        return made

    def _take_over(self, running: RunningStream) -> None:
        """A folder of this epoch's own, then the record that names it."""
        takeover = protocol.take_over(running.store.record, has_folder=running.folders.holds(running.epoch))
        if not takeover.is_filled:
            running.folders.fill(takeover)
            failpoints.reached("stream.copied")
            running.store.update(lambda record: takeover.record)
        failpoints.reached("stream.taken-over")

    def _batches(self, running: RunningStream, query: StreamQuery, target: BatchTarget, fence: int) -> Batches:
        sink = running.revision.sink
        assert isinstance(sink, ClickHouseConfig)

        def target_of(version: int) -> BatchTarget:
            """Of a batch that was begun under another revision; the query, and so its columns, are the same."""
            return self._target(self._store.revision(version), query)

        writer = BatchWriter(
            store=running.store,
            folders=running.folders,
            target=target,
            target_of=target_of,
            sink=running.sink,
            fence=fence,
            objects=self._resources.cluster_address.objects,
            prefix=f"{self._prefix()}pieces/",
            order_by=tuple(name for name in sink.order_by if name in query.frame.columns),
            not_null=query.not_null,
            bad_records=self._bad_records(running, query),
            may_write=lambda: self._may_write() and not self._stopping,
            on_done=self._on_done,
        )
        return Batches(writer.write)

    def _bad_records(self, running: RunningStream, query: StreamQuery) -> BadRecords:
        sources = running.revision.query.sources
        return BadRecords(
            sources=tuple(each for each in sources if each.has_dead_letters),
            address=self._resources.cluster_address,
            starts={
                source.name: start.get(source.topic, {})
                for source, start in zip(sources, running.store.record.starts, strict=True)
            },
            observed=observed_by(query.frame.sparkSession, running.folders.query_id(running.epoch)),
            reads_all=query.reads_all,
        )

    def _launch(self, running: RunningStream, query: StreamQuery, batches: Batches) -> None:
        from pyspark.errors import AnalysisException

        interval_ms = running.revision.sink.batch_flush_interval_ms
        running.batches = batches
        running.listened = ListenedSession(query.frame.sparkSession, self._figures)
        self._resources.jobs.join_pool(self._run.slot)
        try:
            running.query = (
                query.frame.writeStream.outputMode(running.revision.query.output_mode)
                .queryName(f"{self._run.name or self._run.pipeline_id}.{self._run.generation}.{running.epoch}")
                .option("checkpointLocation", running.folders.url(running.epoch))
                .trigger(processingTime=f"{interval_ms} milliseconds")
                .foreachBatch(batches)
                .start()
            )
        except AnalysisException as error:
            raise PermanentError(f"query: {cause_of(error)}") from None
        except Exception as error:  # the checkpoint's file system, for one
            raise QueryFailedError(cause_of(error)) from None
        _log.info("%s: query started under epoch %d, %s", self._title, running.epoch, _why(running.revision))

    def _watch(self, running: RunningStream) -> None:
        """Raise what ended the query; else publish where it is."""
        assert running.query is not None
        assert running.batches is not None
        if not running.query.isActive:
            failure = running.batches.failure
            if isinstance(failure, HoldfastError):
                raise failure
            raise QueryFailedError(cause_of(running.query.exception() or failure or Exception("the query ended")))
        chosen, ui_url = chosen_engine(running.revision), self._resources.jobs.ui_url
        self._progress = stream_progress.of_query(running, chosen, self._figures, ui_url)
        if self._done_batches:
            self._retries.turn_succeeded()
        if running.batches.idle:
            release_committed(running)
            if not running.cleaned and running.store.record.done is not None:
                running.cleaned = True
                objects = self._resources.cluster_address.objects
                remove_leftovers(running, self._store, objects, self._prefix(), self._check_owner)

    def _on_done(self, rows: int, refused: int) -> None:
        self._done_batches += 1
        self.counters.batches += 1
        self.counters.rows += rows
        self.counters.dlq_rows += refused

    def _stop(self) -> None:
        if self.running is not None:
            running, self.running = self.running, None
            running.stop()
            self._done_batches = 0

    def _folders(self) -> CheckpointFolders:
        resources, prefix = self._resources, self._prefix()
        spark, objects = resources.jobs.spark, resources.cluster_address.objects
        if not resources.checkpoints and resources.jobs.on_one_machine and not objects.startswith("file:"):
            if self._local is None:
                self._local = LocalFolder()
            return UploadedCheckpoints(spark, self._local.path, self._objects, prefix)
        return CheckpointFolders(spark, f"{checkpoint_root(resources.checkpoints, objects)}/{prefix.rstrip('/')}")

    async def _objects(self) -> Objects:
        access = await open_cluster(self._resources.cluster_address)
        assert access.direct is not None  # or there was no prefix
        return access.direct.objects

    def _check_owner(self) -> None:
        """`NotOwnerError`: the objects are those of another store, or of another history of this one."""
        access = wait_for(open_cluster(self._resources.cluster_address))
        if access.direct is not None:
            wait_for(access.direct.owner.check())

    def _prefix(self) -> str:
        """Of the generation's objects, below the cluster's own."""
        access = wait_for(open_cluster(self._resources.cluster_address))
        if access.direct is None:
            raise PermanentError(
                "engine structured-streaming needs the URLs of store and objects, as this machine sees them"
            )
        return f"{access.direct.owner.prefix}{STREAMS_FOLDER}/{self._run.pipeline_id}/{self._run.generation}/"


def _why(revision: Revision) -> str:
    chosen = chosen_engine(revision)
    return f"{chosen.engine} ({chosen.reason})"

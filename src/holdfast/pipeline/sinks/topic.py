"""Another topic of this cluster: tasks stage record batches, the driver plans them, and tasks send them as planned.

The one rule: each source partition is a query of its own in the sink's records (`holdfast.spark.sink`), and a range is the batch
numbered by its end offset. A batch is planned once, by one commit; every publisher of it sends the same bytes under the same
sequence numbers. A batch at or below the last planned one is discarded, so a zombie has no effect.

Values are the columns as a JSON object; dead letters go to `{topic}.dlq` under the same plan, if that topic exists.
"""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast.client.loop_thread import run
from holdfast.contracts.executors import Executors
from holdfast.log.topics import UnknownTopicError
from holdfast.pipeline.model.definition import TopicSinkConfig
from holdfast.pipeline.sinks.contract import (
    EXACTLY_ONCE,
    BlockedError,
    DeadLetterRow,
    FencedRange,
    SinkTarget,
    WriteResult,
)
from holdfast.pipeline.sinks.json_rows import json_rows, key_texts
from holdfast.spark.ranges import Planner
from holdfast.spark.sink.executor_publisher import StagedBatch
from holdfast.spark.sink.options import SinkOptions
from holdfast.spark.sink.pieces import pack, unpack
from holdfast.spark.sink.writers import TopicWriter
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import HoldfastError, InvalidError

DLQ_SUFFIX: Final = ".dlq"
_BATCH_ROWS: Final = 10_000


class TopicSink:
    """One target in one process."""

    guarantee = EXACTLY_ONCE
    stages = True

    def __init__(self, target: SinkTarget) -> None:
        config = target.revision.sink
        if not isinstance(config, TopicSinkConfig):
            raise InvalidError("sink", type(config).__name__, "topic")
        if target.cluster_address is None or not target.cluster_address.bootstrap or not target.cluster_address.store:
            raise InvalidError(
                "sink topic", config.topic, "in a cluster whose brokers, store and objects are configured"
            )
        self._target, self._config, self._cluster_address = target, config, target.cluster_address
        self._writer = TopicWriter(SinkOptions(topic=config.topic), target.cluster_address)

    def prepare(self) -> tuple[str, ...]:
        planner = Planner(self._cluster_address)
        if not self._exists(planner, self._config.topic):
            raise BlockedError(f"topic {self._config.topic} does not exist")
        if not self._exists(planner, self._config.topic + DLQ_SUFFIX):
            return (f"dead letters will block the pipeline: topic {self._config.topic}{DLQ_SUFFIX} does not exist",)
        return ()

    def _exists(self, planner: Planner, topic: str) -> bool:
        try:
            planner.topic(topic)
        except UnknownTopicError:
            return False
        except HoldfastError as error:
            raise BlockedError(f"topic {topic}: {error}") from None
        return True

    def fence(self, partition: int, epoch: int) -> int:
        """Not needed: the sink's record of the partition fences."""
        return epoch

    def written_beyond(self, partition: int, end: int) -> int:
        """Nothing: what was planned is in the store that knows the ranges."""
        return 0

    def begin(self, fenced_ranges: Sequence[FencedRange]) -> None:
        """A no-op: a plan records its range."""

    def write(self, fenced_range: FencedRange, rows: Any, refused: Sequence[DeadLetterRow]) -> WriteResult:
        failpoints.reached("pipeline.inserting")
        try:
            pieces = self._writer.stage(self._batches(rows, fenced_range, refused))
        except HoldfastError as error:
            raise BlockedError(f"topic {self._config.topic}: {error}") from None
        failpoints.reached("pipeline.inserted")
        failpoints.reached("pipeline.dlq-inserted")
        staged = base64.b64encode(pack(pieces)).decode()
        return WriteResult(fenced_range=fenced_range, rows=rows.num_rows, refused=len(refused), staged=staged)

    def commit(self, written: Sequence[WriteResult], executors: Executors | None = None) -> None:
        """The bytes go from tasks to the brokers; without executors from here."""
        batches = [self._batch(each) for each in written if each.staged]
        try:
            if executors is not None:
                self._writer.publish_from_executors(batches, executors)
                return
            for each in batches:
                run(self._writer.publish(each.query, each.batch, each.pieces))
        except HoldfastError as error:
            raise BlockedError(f"topic {self._config.topic}: {error}") from None

    def _batch(self, written: WriteResult) -> StagedBatch:
        query = f"pipeline-{self._target.fence_key(written.fenced_range.partition)}"
        return StagedBatch(query, written.fenced_range.end, unpack(base64.b64decode(written.staged)))

    def close(self) -> None:
        """Connections belong to the process."""

    def _batches(self, rows: Any, fenced_range: FencedRange, refused: Sequence[DeadLetterRow]) -> Iterator[Any]:
        for at in range(0, rows.num_rows, _BATCH_ROWS):
            yield self._records(rows.slice(at, _BATCH_ROWS))
        if refused:
            yield self._dead_letters(fenced_range, refused)

    def _records(self, rows: Any) -> Any:
        import pyarrow as pa

        key = self._config.key_column
        return pa.RecordBatch.from_pydict(
            {
                "topic": pa.repeat(pa.scalar(self._config.topic, pa.string()), rows.num_rows),
                "key": key_texts(rows.column(key)) if key else pa.nulls(rows.num_rows, pa.binary()),
                "value": json_rows(rows),
            }
        )

    def _dead_letters(self, fenced_range: FencedRange, refused: Sequence[DeadLetterRow]) -> Any:
        """Payloads unchanged; reason and provenance in the headers."""
        import pyarrow as pa

        provenance = {
            "holdfast.pipeline": self._target.pipeline_id,
            "holdfast.topic": self._target.revision.source.topic,
            "holdfast.partition": str(fenced_range.partition),
            "holdfast.generation": str(self._target.generation),
            "holdfast.recipe": str(self._target.revision.version),
        }
        headers = [
            [
                {"key": name, "value": value.encode()}
                for name, value in {
                    **provenance,
                    "holdfast.offset": str(row.offset),
                    "holdfast.reason": row.reason,
                }.items()
            ]
            for row in refused
        ]
        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        return pa.RecordBatch.from_pydict(
            {
                "topic": pa.array([self._config.topic + DLQ_SUFFIX] * len(refused), pa.string()),
                "key": pa.array([row.key for row in refused], pa.binary()),
                "value": pa.array([row.payload for row in refused], pa.binary()),
                "headers": pa.array(headers, pa.list_(header)),
            }
        )

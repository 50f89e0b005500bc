"""Another topic of this cluster: tasks stage record batches, the driver publishes them as Spark's own sink does.

The one rule: each source partition is a query of its own in the sink's ledger (`holdfast.spark.sink`), and a range is the batch
that is numbered by its end. A plan is made once, by one commit; whoever carries it out sends the same bytes under the same
sequence numbers. A batch at or below the last that was planned is thrown away, so a zombie's work is nothing.

Values are the columns as a JSON object; refused records go to `{topic}.dlq` under the same plan, if there is such a topic.
"""

import base64
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

from holdfast.log.topics import UnknownTopicError
from holdfast.pipeline.driver import steps
from holdfast.pipeline.nouns import TopicConfig
from holdfast.pipeline.sinks.contract import EXACTLY_ONCE, BlockedError, Portion, RefusedRow, Target, Written
from holdfast.spark.ranges import Planner
from holdfast.spark.reading.loop import run
from holdfast.spark.sink.options import SinkOptions
from holdfast.spark.sink.pieces import pack, unpack
from holdfast.spark.sink.writers import Sink as TopicWriter
from holdfast.vocabulary.errors import HoldfastError, InvalidError

DLQ_SUFFIX: Final = ".dlq"
_BATCH_ROWS: Final = 10_000


class TopicSink:
    """One target in one process."""

    guarantee = EXACTLY_ONCE

    def __init__(self, target: Target) -> None:
        config = target.recipe.sink
        if not isinstance(config, TopicConfig):
            raise InvalidError("sink", type(config).__name__, "topic")
        if target.reach is None or not target.reach.bootstrap or not target.reach.store:
            raise InvalidError("sink topic", config.topic, "a cluster whose brokers, store and objects are known")
        self._target, self._config, self._reach = target, config, target.reach
        self._writer = TopicWriter(SinkOptions(topic=config.topic), target.reach)

    def prepare(self) -> tuple[str, ...]:
        with Planner(self._reach) as planner:
            if not self._there(planner, self._config.topic):
                raise BlockedError(f"the topic {self._config.topic} is not there")
            if not self._there(planner, self._config.topic + DLQ_SUFFIX):
                return (f"refused records block the pipeline: there is no topic {self._config.topic}{DLQ_SUFFIX}",)
        return ()

    def _there(self, planner: Planner, topic: str) -> bool:
        try:
            planner.topic(topic)
        except UnknownTopicError:
            return False
        except HoldfastError as error:
            raise BlockedError(f"topic {topic}: {error}") from None
        return True

    def fence(self, partition: int, epoch: int) -> int:
        """The ledger of the partition is fence enough."""
        return epoch

    def write(self, portion: Portion, rows: Any, refused: Sequence[RefusedRow]) -> Written:
        steps.reached("inserting")
        try:
            pieces = self._writer.stage(self._batches(rows, portion, refused))
        except HoldfastError as error:
            raise BlockedError(f"topic {self._config.topic}: {error}") from None
        steps.reached("inserted")
        steps.reached("dlq-inserted")
        staged = base64.b64encode(pack(pieces)).decode()
        return Written(portion=portion, rows=rows.num_rows, refused=len(refused), staged=staged)

    def commit(self, written: Sequence[Written]) -> None:
        for each in written:
            if not each.staged:
                continue
            pieces = unpack(base64.b64decode(each.staged))
            query = f"pipeline-{self._target.fence_key(each.portion.partition)}"
            try:
                run(self._writer.publish(query, each.portion.end, pieces))
            except HoldfastError as error:
                raise BlockedError(f"topic {self._config.topic}: {error}") from None

    def close(self) -> None:
        """What is open belongs to the process."""

    def _batches(self, rows: Any, portion: Portion, refused: Sequence[RefusedRow]) -> Iterator[Any]:
        for at in range(0, rows.num_rows, _BATCH_ROWS):
            yield self._records(rows.slice(at, _BATCH_ROWS))
        if refused:
            yield self._refusals(portion, refused)

    def _records(self, rows: Any) -> Any:
        import pyarrow as pa

        plain = rows.to_pylist()
        key = self._config.key_column
        return pa.RecordBatch.from_pydict(
            {
                "topic": pa.array([self._config.topic] * len(plain), pa.string()),
                "key": pa.array([None if not key else _text(row[key]) for row in plain], pa.binary()),
                "value": pa.array([_json(row) for row in plain], pa.binary()),
            }
        )

    def _refusals(self, portion: Portion, refused: Sequence[RefusedRow]) -> Any:
        """Payloads as they were; why and whence in the headers."""
        import pyarrow as pa

        told = {
            "holdfast.topic": self._target.recipe.source.topic,
            "holdfast.partition": str(portion.partition),
            "holdfast.generation": str(self._target.generation),
            "holdfast.recipe": str(self._target.recipe.version),
        }
        headers = [
            [
                {"key": name, "value": value.encode()}
                for name, value in {**told, "holdfast.offset": str(row.offset), "holdfast.reason": row.reason}.items()
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


def _json(row: dict[str, Any]) -> bytes:
    """A row as a JSON object; maps as objects, times as ISO 8601, decimals as text."""
    return msgspec.json.encode({name: _plain(value) for name, value in row.items()})


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case list() if value and isinstance(value[0], tuple):
            return {name: _plain(inner) for name, inner in value}
        case list():
            return [_plain(each) for each in value]
    return value


def _text(value: Any) -> bytes | None:
    if value is None:
        return None
    plain = _plain(value)
    return plain.encode() if isinstance(plain, str) else msgspec.json.encode(plain)

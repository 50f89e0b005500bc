"""The DLQ of a ClickHouse sink: rejected records with their bytes and the reason. Queries only, for threads.

It is a table beside the pipeline's own, see `sinks.clickhouse.statements`. The one rule: a dead letter is never changed. Which ones
were replayed is recorded in a second table of marks.
"""

import base64
from dataclasses import dataclass
from typing import Any, Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.quoting import qualified_name, quote_literal
from holdfast.pipeline.mapping.ddl import TableSpec, side_table
from holdfast.pipeline.service.responses import DeadLetter, DeadLetterCount, DeadLetterRows, ReasonCount
from holdfast.pipeline.sinks.clickhouse.statements import DLQ_SUFFIX, REPLAYED_SUFFIX
from holdfast.pipeline.sinks.provenance import PIPELINE_COLUMN
from holdfast.vocabulary.errors import InvalidError

PAYLOAD_BYTES_SHOWN: Final = 64 * 1024
REASONS_MAX: Final = 20

_POSITION: Final = "_generation, _partition, _offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterQuery:
    """Selects dead letters; an empty field matches all."""

    generation: int | None = None
    partition: int | None = None
    offsets: tuple[int, ...] = ()
    reason: str = ""
    """A substring of the reason, ignoring case."""
    since_ms: int | None = None
    until_ms: int | None = None
    waiting: bool = False
    """Only those that were not replayed yet."""


class DeadLetterTable:
    """The DLQ of one pipeline's table. For one thread."""

    def __init__(
        self, connection: ClickHouseClient, *, database: str, table: str, topics: tuple[str, ...], pipeline_id: str
    ) -> None:
        self._connection, self._topics, self._pipeline_id = connection, topics, pipeline_id
        self._of_topics = f"_topic IN ({', '.join(map(quote_literal, topics))})"
        self.dlq = qualified_name(database, table + DLQ_SUFFIX)
        self.marks = qualified_name(database, table + REPLAYED_SUFFIX)
        self._names = (database, table + DLQ_SUFFIX, table + REPLAYED_SUFFIX)
        self._marked: bool | None = None
        self._attributed: bool | None = None

    def exists(self) -> bool:
        """Whether there is a DLQ."""
        return self._has_table(self._names[1])

    def _has_table(self, name: str) -> bool:
        query = (
            "SELECT count() FROM system.tables "  # noqa: S608 - quoted
            f"WHERE database = {quote_literal(self._names[0])} AND name = {quote_literal(name)}"
        )
        return bool(self._connection.value(query))

    def make_marks(self, window: int, beside: TableSpec | None = None) -> None:
        """Create the table of marks, replicated if the table it is `beside` is."""
        place, engine, settings = side_table(beside, REPLAYED_SUFFIX, window)
        self._connection.command(
            f"CREATE TABLE IF NOT EXISTS {self.marks}{place} (_pipeline LowCardinality(String), _generation UInt32, "
            "_topic LowCardinality(String), _partition UInt32, _offset UInt64, recipe UInt32, outcome LowCardinality(String), "
            f"time DateTime64(3) DEFAULT now64(3)) ENGINE = {engine} "
            f"ORDER BY (_generation, _topic, _partition, _offset){settings}"
        )
        self._marked = True

    def page(self, chosen: DeadLetterQuery, *, after: str, limit: int) -> DeadLetterRows:
        """The next `limit` dead letters after the page token `after`."""
        if not self.exists():
            return DeadLetterRows(letters=())
        position = f"{_POSITION}, _topic" if len(self._topics) > 1 else _POSITION
        behind = "" if not after else f" AND {_behind(after)}"
        columns = (
            "_generation, _topic, _partition, _offset, recipe, reason, toUnixTimestamp64Milli(time), "
            f"isNull(key), base64Encode(ifNull(key, '')), isNull(payload), length(ifNull(payload, '')), "
            f"base64Encode(substring(ifNull(payload, ''), 1, {PAYLOAD_BYTES_SHOWN})), {self._outcome()} AS outcome"
        )
        query = (
            f"SELECT {columns} FROM {self.dlq} AS d{self._joined()} WHERE {self._where(chosen)}{behind} "  # noqa: S608 - quoted
            f"ORDER BY {position} LIMIT {limit + 1}"
        )
        rows = self._connection.rows(query)
        found = tuple(_dead_letter(row) for row in rows[:limit])
        return DeadLetterRows(letters=found, after=self._page_token(found[-1]) if len(rows) > limit else "")

    def _page_token(self, last: DeadLetter) -> str:
        topic = f":{last.topic}" if len(self._topics) > 1 else ""
        return f"{last.generation}:{last.partition}:{last.offset}{topic}"

    def count(self, chosen: DeadLetterQuery) -> DeadLetterCount:
        """How many, and why."""
        if not self.exists():
            return DeadLetterCount(total=0, replayed=0, waiting=0)
        source = f"FROM {self.dlq} AS d{self._joined()} WHERE {self._where(chosen)}"
        replayed = f"countIf({self._outcome()} != '')"
        total, done = self._connection.rows(f"SELECT count(), {replayed} {source}")[0]
        reasons = self._connection.rows(
            f"SELECT substring(reason, 1, 300) AS why, count() AS n {source} AND {self._outcome()} = '' "
            f"GROUP BY why ORDER BY n DESC, why LIMIT {REASONS_MAX}"
        )
        return DeadLetterCount(
            total=int(total),
            replayed=int(done),
            waiting=int(total) - int(done),
            reasons=tuple(ReasonCount(reason=str(why), count=int(number)) for why, number in reasons),
        )

    def trim(self, kept: int) -> int:
        """Delete the oldest dead letters of this pipeline and topic beyond `kept`, and their marks; how many there were.

        Those with the same time stay or go together, so a few more may stay. In tables that are not migrated yet none are deleted.
        """
        if not self.exists() or not self._has_pipelines():
            return 0
        mine = f"_pipeline = {quote_literal(self._pipeline_id)} AND {self._of_topics}"
        surplus = int(self._connection.value(f"SELECT count() FROM {self.dlq} WHERE {mine}")) - kept  # noqa: S608 - quoted
        if surplus <= 0:
            return 0
        newest_gone = self._connection.value(
            f"SELECT toUnixTimestamp64Milli(time) FROM {self.dlq} WHERE {mine} ORDER BY time LIMIT 1 OFFSET {surplus}"  # noqa: S608 - quoted
        )
        old = f"{mine} AND toUnixTimestamp64Milli(time) < {int(newest_gone)}"
        self._connection.command(f"ALTER TABLE {self.dlq} DELETE WHERE {old}", settings={"mutations_sync": 1})
        if self._has_marks():
            key = "(_generation, _topic, _partition, _offset)"
            gone = f"{mine} AND {key} NOT IN (SELECT {key[1:-1]} FROM {self.dlq} WHERE {mine})"  # noqa: S608 - quoted
            self._connection.command(f"ALTER TABLE {self.marks} DELETE WHERE {gone}", settings={"mutations_sync": 1})
        return surplus

    def positions(
        self, chosen: DeadLetterQuery, *, after: tuple[int, int, int], limit: int
    ) -> list[tuple[int, int, int, int]]:
        """Generation, partition, offset and size of the next dead letters after `after`, in this order."""
        query = (
            f"SELECT {_POSITION}, max(length(ifNull(payload, ''))) FROM {self.dlq} AS d{self._joined()} "  # noqa: S608 - quoted
            f"WHERE {self._where(chosen)} AND ({_POSITION}) > ({', '.join(map(str, after))}) "
            f"GROUP BY {_POSITION} ORDER BY {_POSITION} LIMIT {limit}"
        )
        return [(int(row[0]), int(row[1]), int(row[2]), int(row[3])) for row in self._connection.rows(query)]

    def payloads(
        self, generation: int, partition: int, offsets: tuple[int, ...]
    ) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and payload of some dead letters, by offset; each once."""
        listed = ", ".join(map(str, offsets))
        query = (
            "SELECT _offset, any(isNull(key)), base64Encode(any(ifNull(key, ''))), any(isNull(payload)), "  # noqa: S608 - quoted
            f"base64Encode(any(ifNull(payload, ''))) FROM {self.dlq} WHERE _generation = {generation} "
            f"AND {self._mine()} AND _partition = {partition} AND _offset IN ({listed}) "
            "GROUP BY _offset ORDER BY _offset"
        )
        return [
            (int(offset), None if no_key else _bytes(key), None if no_payload else _bytes(payload))
            for offset, no_key, key, no_payload, payload in self._connection.rows(query)
        ]

    def _where(self, chosen: DeadLetterQuery) -> str:
        parts = [self._mine(or_unattributed=not chosen.waiting)]
        if chosen.generation is not None:
            parts.append(f"_generation = {int(chosen.generation)}")
        if chosen.partition is not None:
            parts.append(f"_partition = {int(chosen.partition)}")
        if chosen.offsets:
            parts.append(f"_offset IN ({', '.join(str(int(offset)) for offset in chosen.offsets)})")
        if chosen.reason:
            parts.append(f"positionCaseInsensitiveUTF8(reason, {quote_literal(chosen.reason)}) > 0")
        if chosen.since_ms is not None:
            parts.append(f"toUnixTimestamp64Milli(time) >= {int(chosen.since_ms)}")
        if chosen.until_ms is not None:
            parts.append(f"toUnixTimestamp64Milli(time) < {int(chosen.until_ms)}")
        if chosen.waiting:
            parts.append(f"{self._outcome()} = ''")
        return " AND ".join(parts)

    def _mine(self, *, or_unattributed: bool = False) -> str:
        """The condition on dead letters of this pipeline; `or_unattributed`: or of one that an earlier release did not record."""
        if not self._has_pipelines():
            return self._of_topics
        pipelines = [quote_literal(each) for each in (self._pipeline_id, *([""] if or_unattributed else []))]
        return f"_pipeline IN ({', '.join(pipelines)}) AND {self._of_topics}"

    def _has_pipelines(self) -> bool:
        """Whether the tables record the pipeline: those of an earlier release do not before they are migrated."""
        if self._attributed is None:
            listed = ", ".join(map(quote_literal, self._names[1:]))
            self._attributed = not self._connection.rows(
                f"SELECT table FROM system.columns WHERE database = {quote_literal(self._names[0])} AND table IN ({listed}) "  # noqa: S608 - quoted
                f"GROUP BY table HAVING NOT has(groupArray(name), '{PIPELINE_COLUMN}')"
            )
        return self._attributed

    def _joined(self) -> str:
        """The join with the marks, if there is a table of them."""
        if not self._has_marks():
            return ""
        key = f"{'_pipeline, ' if self._has_pipelines() else ''}_generation, _topic, _partition, _offset"
        marks = f"SELECT {key}, any(outcome) AS marked FROM {self.marks} GROUP BY {key}"  # noqa: S608 - quoted
        return f" LEFT ANY JOIN ({marks}) AS m USING ({key})"

    def _outcome(self) -> str:
        return "marked" if self._has_marks() else "''"

    def _has_marks(self) -> bool:
        if self._marked is None:
            self._marked = self._has_table(self._names[2])
        return self._marked


def parse_page_token(after: str) -> tuple[int, int, int, str]:
    """The position at which a page ended; the topic where a pipeline reads several. `InvalidError` for anything else."""
    *numbers, topic = after.split(":", 3) if after.count(":") > 2 else (*after.split(":"), "")
    if len(numbers) != 3 or not all(part.isascii() and part.isdigit() and len(part) <= 20 for part in numbers):
        raise InvalidError("after", after[:100], "a page token, generation:partition:offset")
    return int(numbers[0]), int(numbers[1]), int(numbers[2]), topic


def _behind(after: str) -> str:
    generation, partition, offset, topic = parse_page_token(after)
    if topic:
        return f"({_POSITION}, _topic) > ({generation}, {partition}, {offset}, {quote_literal(topic)})"
    return f"({_POSITION}) > ({generation}, {partition}, {offset})"


def _bytes(text: Any) -> bytes:
    return base64.b64decode(text)


def _dead_letter(row: Any) -> DeadLetter:
    generation, topic, partition, offset, revision, reason, at_ms, no_key, key, no_payload, size, payload, outcome = row
    key_text, key_base64 = (None, None) if no_key else _shown(str(key))
    text, encoded = (None, None) if no_payload else _shown(str(payload), truncated=int(size) > PAYLOAD_BYTES_SHOWN)
    return DeadLetter(
        generation=int(generation),
        topic=str(topic),
        partition=int(partition),
        offset=int(offset),
        revision=int(revision),
        reason=str(reason),
        at_ms=int(at_ms),
        key=key_text,
        key_base64=key_base64,
        payload=text,
        payload_base64=encoded,
        payload_bytes=int(size),
        replayed=str(outcome),
    )


def _shown(encoded: str, *, truncated: bool = False) -> tuple[str | None, str | None]:
    """Text if it is UTF-8 (a truncated one may end within a character), else base64."""
    raw = _bytes(encoded)
    for end in range(len(raw), len(raw) - (4 if truncated else 1), -1):
        try:
            return raw[:end].decode(), None
        except UnicodeDecodeError:
            continue
    return None, encoded

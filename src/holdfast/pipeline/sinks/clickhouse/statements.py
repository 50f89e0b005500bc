"""The SQL statements of the sink, and the settings they are sent with. Text only: nothing is run here.

The one rule: an insert is one block. Then it is stored whole or not at all (per partition of the table), and its token covers all
of it. The block is as the client sent it, in the order of offsets: no server threads share it, no threshold splits it.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.clickhouse.insert_settings import insert_settings as insert_settings
from holdfast.clickhouse.keeper import read_number
from holdfast.clickhouse.quoting import qualified_name, quote_identifier, quote_literal
from holdfast.clickhouse.types import parse_type, read_as
from holdfast.pipeline.mapping.ddl import TableSpec, side_table
from holdfast.pipeline.model.range_identity import RangeIdentity
from holdfast.pipeline.sinks.contract import FencedRange, SinkTarget
from holdfast.vocabulary.errors import InvalidError

FENCE_TABLE: Final = "holdfast_fence"
FENCE_MESSAGE: Final = "holdfast: a newer epoch owns this partition"
DLQ_SUFFIX: Final = "_dlq"
REPLAYED_SUFFIX: Final = "_dlq_replayed"
DLQ_COLUMNS: Final = {
    "_pipeline": "LowCardinality(String)",
    "_generation": "UInt32",
    "_topic": "LowCardinality(String)",
    "_partition": "UInt32",
    "_offset": "UInt64",
    "recipe": "UInt32",
    "reason": "String",
    "key": "Nullable(String)",
    "payload": "Nullable(String)",
}
"""The inserted columns; the server adds `time`."""

END_NAME: Final = "~end~"
"""Before a topic's name, in keys beside the fence: where the last range begun of a partition ends. No topic has a tilde."""

TRIES: Final = 1_000_000
"""Attempts of one epoch. A fence number is epoch × this + attempt: epoch 7, third attempt: 7000002."""


def fence_number(epoch: int, newest: int) -> int | None:
    """The next fence number: the epoch, and within it the attempt, so that inserts of an earlier attempt are rejected, too.

    `newest` is the stored number. None: it is of a newer epoch.
    """
    newest_epoch, attempt = divmod(newest, TRIES)
    if newest_epoch > epoch:
        return None
    return epoch * TRIES + (attempt + 1 if newest_epoch == epoch else 0)


def number_of(fenced_range: FencedRange) -> int:
    """The fence number of a range; without one, the first attempt of its epoch."""
    return fenced_range.fence or fenced_range.epoch * TRIES


def query_id(target: SinkTarget, fenced_range: FencedRange, nonce: str) -> str:
    """Names an insert, so that a successor can kill earlier ones. The fence number is the sixth part."""
    number = number_of(fenced_range)
    return (
        f"holdfast:{target.fence_key(fenced_range.partition)}:{number}:{fenced_range.start}-{fenced_range.end}:{nonce}"
    )


def older_queries(target: SinkTarget, partition: int, epoch: int) -> str:
    """The condition on `query_id` that selects earlier inserts."""
    prefix = quote_literal(f"holdfast:{target.fence_key(partition)}:")
    return f"startsWith(query_id, {prefix}) AND toUInt64OrZero(splitByChar(':', query_id)[6]) < {epoch}"


def create_fence(database: str) -> str:
    """Fence numbers by partition. The highest counts, in whatever order they are written."""
    return (
        f"CREATE TABLE IF NOT EXISTS {qualified_name(database, FENCE_TABLE)} "
        "(k String, epoch UInt64, at DateTime64(3) DEFAULT now64(3)) ENGINE = ReplacingMergeTree(epoch) ORDER BY k"
    )


def write_fence(database: str, key: str, epoch: int) -> str:
    """Write a fence number."""
    return write_fences(database, [key], epoch)


def write_fences(database: str, keys: Sequence[str], epoch: int) -> str:
    """Write the fence number of several partitions."""
    return write_numbers(database, dict.fromkeys(keys, epoch))


def write_numbers(database: str, numbers: Mapping[str, int]) -> str:
    """Write a number by key. The server acknowledges when they are stored, whatever its profiles say."""
    rows = ", ".join(f"({quote_literal(key)}, {number})" for key, number in numbers.items())
    settings = "SETTINGS async_insert = 0, wait_for_async_insert = 1"
    return f"INSERT INTO {qualified_name(database, FENCE_TABLE)} (k, epoch) {settings} VALUES {rows}"


def read_fence(database: str, key: str, table: str = FENCE_TABLE) -> str:
    """The highest fence number; 0: none."""
    return read_number(database, key, table)


def create_dlq(database: str, table: str, window: int, beside: TableSpec | None = None) -> str:
    """The table of dead letters, replicated if the one it is `beside` is. Provenance is named as in the pipeline's own."""
    columns = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in DLQ_COLUMNS.items())
    place, engine, settings = side_table(beside, DLQ_SUFFIX, window)
    return (
        f"CREATE TABLE IF NOT EXISTS {qualified_name(database, table + DLQ_SUFFIX)}{place} "
        f"({columns}, time DateTime64(3) DEFAULT now64(3)) "
        f"ENGINE = {engine} ORDER BY (_generation, _topic, _partition, _offset){settings}"
    )


def oldest_surplus(database: str, table: str, pipeline_id: str, kept: int) -> str:
    """The time of the newest dead letter of a pipeline beyond `kept`; no row: there are no more than that."""
    mine = f"{qualified_name(database, table + DLQ_SUFFIX)} WHERE _pipeline = {quote_literal(pipeline_id)}"
    return f"SELECT time FROM {mine} ORDER BY time DESC LIMIT 1 OFFSET {kept}"


def trim_dlq(database: str, table: str, pipeline_id: str, kept: int) -> str:
    """Delete a pipeline's dead letters older than the newest `kept`. Those of the same moment stay together."""
    name, mine = qualified_name(database, table + DLQ_SUFFIX), f"_pipeline = {quote_literal(pipeline_id)}"
    surplus = oldest_surplus(database, table, pipeline_id, kept)
    return f"ALTER TABLE {name} DELETE WHERE {mine} AND time <= ({surplus})"


def is_fence_refusal(error: ClickHouseError) -> bool:
    """Whether the server refused an insert because a newer epoch owns the partition."""
    return error.code == ClickHouseErrorCode.FUNCTION_THROW_IF_VALUE_IS_NON_ZERO and FENCE_MESSAGE in error.text


def fenced_insert(
    name: str,
    kinds: Mapping[str, str],
    *,
    database: str,
    key: str,
    epoch: int,
    only: str = "",
    fence_table: str = FENCE_TABLE,
) -> str:
    """An insert of Arrow data that the server rejects if the fence is higher. `name` is quoted already.

    `only` is a condition on the rows.
    """
    columns = ", ".join(map(quote_identifier, kinds))
    structure = quote_literal(input_structure(kinds))
    fence = f"throwIf(({read_fence(database, key, fence_table)}) > {epoch}, {quote_literal(FENCE_MESSAGE)}) = 0"
    where = f"{fence} AND {only}" if only else fence
    return f"INSERT INTO {name} ({columns}) SELECT {columns} FROM input({structure}) WHERE {where} FORMAT ArrowStream"


def input_structure(kinds: Mapping[str, str]) -> str:
    """The columns of `input`. Types of a server that pipelines do not write are left as they are."""
    return ", ".join(f"{quote_identifier(column)} {_read_as(kind)}" for column, kind in kinds.items())


def _read_as(kind: str) -> str:
    try:
        return str(read_as(parse_type(kind)))
    except InvalidError:
        return kind


def of_range(identity: RangeIdentity) -> str:
    """The condition that selects the rows of a range, whoever wrote them in its name."""
    source = of_pipeline(identity.pipeline_id, identity.generation, identity.topic)
    offsets = f"_offset >= {identity.start} AND _offset < {identity.end}"
    return f"{source} AND _partition = {identity.partition} AND {offsets}"


def of_pipeline(pipeline_id: str, generation: int, topic: str) -> str:
    """The condition that selects the rows of a generation. Empty: rows of a release that did not record the pipeline."""
    return (
        f"_pipeline = {quote_literal(pipeline_id)} AND _generation = {generation} AND _topic = {quote_literal(topic)}"
    )


def present(name: str, place: str, record_column: str = "_offset") -> str:
    """The number of rows that a condition selects, and of their records. `name` is quoted already."""
    return f"SELECT count(), uniqExact({record_column}) FROM {name} WHERE {place}"


def lost(name: str, partition_key: str, place: str, *, by_record: bool) -> str:
    """The condition on rows of table partitions in which `place` selects none, or none of the same record.

    The key is an expression as the server prints it; '': the table is one partition. `name` is quoted already.
    """
    where = f"toString(tuple({partition_key or 0}))"  # as text, in which null is equal to null
    if by_record:
        where = f"({where}, toString(_topic), toUInt64(_partition), toUInt64(_offset))"
    return f"{where} NOT IN (SELECT {where} FROM {name} WHERE {place})"


def kinds_of(table: TableSpec, names: Sequence[str]) -> dict[str, str]:
    """The types of some of a table's columns, for `input`."""
    known = {name: str(kind) for name, kind in table.columns().items()}
    return {name: known[name] for name in names}

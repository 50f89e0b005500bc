"""A stored pipeline: the parts that users edit, and the revisions that workers run.

The one rule: a revision never changes. Every edit makes the next one; a range that was begun under a revision is finished under it,
whatever has been edited meanwhile.
"""

from typing import Final, Literal

import msgspec

from holdfast.pipeline.model.column_mapping import Mapping
from holdfast.pipeline.model.query import FAST, PLAIN_MAPPING, QueryConfig
from holdfast.pipeline.model.stored import EARLIEST as EARLIEST
from holdfast.pipeline.model.stored import LATEST as LATEST
from holdfast.pipeline.model.stored import StoredStruct as StoredStruct
from holdfast.pipeline.model.value_format import CsvOptions as CsvOptions
from holdfast.pipeline.model.value_format import SchemaRegistry as SchemaRegistry
from holdfast.pipeline.model.value_format import ValueFormat
from holdfast.vocabulary.settings import MIB

PIPELINE_REGISTRY: Final = "pipeline-"
"""Prefix of the registry namespaces of pipelines."""


class Security(StoredStruct, frozen=True):
    """Authentication and encryption of an external Kafka. The password is never shown."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username: str = ""
    password: str = ""
    ca_file: str = ""


class DebeziumOptions(StoredStruct, frozen=True):
    """How changes become rows, for the envelope `debezium`."""

    version: Literal["offset", "position", "ts"] = "offset"
    """What orders the changes of a key: offsets, the position in the database's log, or the database's time and then the offset."""
    tombstones: Literal["delete", "ignore"] = "delete"
    """A record without a value deletes the row of its key, or is dropped; with other versions than offsets it is always dropped."""


class KafkaConfig(StoredStruct, frozen=True):
    """The source. Without `brokers` a topic of this cluster; with them one of any Kafka, through Spark's connector."""

    topic: str
    brokers: tuple[str, ...] = ()
    group_id: str = ""
    """The consumer group that checkpoints are mirrored to, for lag tools; empty: `holdfast-{pipeline id}`."""
    security: Security = Security()
    start: str = EARLIEST
    """Where a new pipeline starts: `earliest`, `latest`, or an ISO 8601 time."""
    format: ValueFormat = "json"
    schema_registry: SchemaRegistry = SchemaRegistry()
    """Where the schemas of records are whose values begin with a schema's id."""
    schema: str = ""
    """The one schema of all records, instead of a registry: Avro's JSON, or a .proto file."""
    message: str = ""
    """The full name of the message in `schema`, for `protobuf`."""
    csv: CsvOptions = CsvOptions()
    raw: Literal["utf-8", "base64"] = "utf-8"
    """What a raw value is in its field `value`: text, or the base64 of any bytes."""
    envelope: Literal["none", "debezium"] = "none"
    debezium: DebeziumOptions = DebeziumOptions()


def has_changes(source: KafkaConfig) -> bool:
    """Whether records are changes of rows: their table has a version and can delete."""
    return source.envelope == "debezium"


class ClickHouseConfig(StoredStruct, frozen=True, tag="clickhouse", tag_field="kind"):
    """A ClickHouse table, and how it is written."""

    dsn: str = ""
    """`http[s]://user:password@host:port/database`; empty: the embedded one."""
    database: str = ""
    table: str = ""
    batch_size: int = 100_000
    batch_bytes: int = 32 * MIB
    batch_flush_interval_ms: int = 2_000
    insert_rate_per_second: float = 0.0
    """Inserts per second and slot; 0: unlimited."""
    create_table_if_missing: bool = True
    engine: Literal[
        "MergeTree",
        "ReplacingMergeTree",
        "ReplicatedMergeTree",
        "ReplicatedReplacingMergeTree",
        "SharedMergeTree",
        "SharedReplacingMergeTree",
    ] = "MergeTree"
    order_by: tuple[str, ...] = ()
    """Columns, or expressions of them."""
    version_column: str = ""
    """Of a ReplacingMergeTree: which row wins."""
    dedup_window: int = 10_000
    insert_timeout_ms: int = 60_000
    """The server-side `max_execution_time` of an insert."""
    deleted_column: str = ""
    """Of a ReplacingMergeTree with a version: a UInt8 that is 1 in a row that deletes its key."""
    partition_by: str = ""
    """An expression: `toYYYYMM(at)`."""
    primary_key: tuple[str, ...] = ()
    """The first of `order_by`; empty: all of them."""
    ttl: str = ""
    """An expression of time after which a row is deleted: `at + INTERVAL 90 DAY`."""
    table_settings: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    cluster: str = ""
    """Tables are created and changed `ON CLUSTER`; empty: on the server of the DSN."""
    replica_path: str = ""
    """Of a Replicated engine: the path in Keeper; empty: the server's default."""
    replica_name: str = ""
    insert_quorum: str = "auto"
    """Replicas of a Replicated table that store an insert before it counts: `auto` (a majority) or a number; 0: any one."""

    def __hash__(self) -> int:
        return hash((self.dsn, self.database, self.table, self.engine))  # the settings are no key of a cache


class DeltaConfig(StoredStruct, frozen=True, tag="delta", tag_field="kind"):
    """A Delta table at a URL or path."""

    url: str
    batch_size: int = 100_000
    batch_bytes: int = 32 * MIB
    batch_flush_interval_ms: int = 5_000
    partition_by: tuple[str, ...] = ()


class IcebergConfig(StoredStruct, frozen=True, tag="iceberg", tag_field="kind"):
    """A table of an Iceberg catalog. `catalog_options` are those of pyiceberg, and may hold secrets."""

    table: str
    catalog_uri: str = ""
    warehouse: str = ""
    catalog: Literal["sql", "rest", "glue"] = "sql"
    catalog_options: dict[str, str] = msgspec.field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    """`country`, `day(at)`, `truncate(4, name)`."""
    batch_size: int = 100_000
    batch_bytes: int = 32 * MIB
    batch_flush_interval_ms: int = 5_000

    def __hash__(self) -> int:
        return hash((self.catalog, self.catalog_uri, self.warehouse, self.table))  # the options are no key of a cache


class ParquetConfig(StoredStruct, frozen=True, tag="parquet", tag_field="kind"):
    """Parquet files under a URL: one per range, named by it."""

    url: str
    batch_size: int = 100_000
    batch_bytes: int = 32 * MIB
    batch_flush_interval_ms: int = 5_000


class TopicSinkConfig(StoredStruct, frozen=True, tag="topic", tag_field="kind"):
    """Another topic of this cluster; values are the mapped columns as JSON."""

    topic: str
    key_column: str = ""
    batch_size: int = 100_000
    batch_bytes: int = 32 * MIB
    batch_flush_interval_ms: int = 500


SinkConfig = ClickHouseConfig | DeltaConfig | IcebergConfig | ParquetConfig | TopicSinkConfig


class DriftPolicy(StoredStruct, frozen=True):
    """What to do with fields that are not in the mapping, and how many dead letters are kept."""

    unknown_fields: Literal["ignore", "add-column", "overflow", "dlq", "stop"] = "ignore"
    dlq_rows_kept: int = 1_000_000


class FiltersConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether records are filtered, and by which expression. Filters stored as `cel` by 0.1.0 have the one language, too."""

    enabled: bool = False
    language: str = "holdfast"
    expression: str = ""


class SqlConfig(StoredStruct, frozen=True):
    """SQL over the mapped view `rows`; row by row and deterministic. Empty: the view as it is."""

    sql: str = ""


class Revision(StoredStruct, frozen=True):
    """Everything a range's rows depend on."""

    version: int
    source: KafkaConfig
    sink: SinkConfig
    mapping: Mapping
    filters: FiltersConfig = FiltersConfig()
    sql: str = ""
    """See `SqlConfig`."""
    drift: DriftPolicy = DriftPolicy()
    query: QueryConfig = QueryConfig()


class PipelineState(StoredStruct, frozen=True):
    """The desired state."""

    desired: Literal["started", "stopped"] = "stopped"
    replicas: int = 1


class Generation(StoredStruct, frozen=True):
    """One pass over the source. The live one has no end; a backfill has one per partition, and is done when all are reached.

    Its progress is in the registry namespace `registry_namespace(pipeline id, number)`.
    """

    number: int
    kind: Literal["live", "backfill"] = "live"
    starts: dict[str, int] = msgspec.field(default_factory=dict)
    """Offsets by partition; the others start at `KafkaConfig.start`."""
    ends: dict[str, int] = msgspec.field(default_factory=dict)
    partitions: int = 0
    """How many the source had when the generation was decided, if that is known; later ones are read from their beginning."""
    topic_id: str = ""
    """The topic that `starts` and `ends` are offsets of; empty: not known when the generation was decided."""
    brokers: tuple[str, ...] = ()
    """The brokers that it has read from, if the source's are others and no topic id tells whether they are of the same Kafka:
    it does not go on before a rewind."""
    retired: bool = False
    """It was replaced by a rewind, or has reached its ends: no more ranges."""
    replaces: int = 0
    """The generation that a rewind replaced; 0: none."""
    delete_previous: bool = False
    """Rows of older generations from `starts` on are deleted once this one has passed the checkpoints of `replaces`."""
    tables: tuple[str, ...] = ()
    """With `delete_previous`: the table that its rows go to, and the first other one they may have gone to."""


class Pipeline(StoredStruct, frozen=True):
    """A stored pipeline. `revision` is the newest one; 0: the pipeline is incomplete."""

    id: str
    name: str
    description: str = ""
    version: int = 1
    """Goes up with every change of the pipeline."""
    revision: int = msgspec.field(name="recipe", default=0)
    engine: str = FAST
    engine_reason: str = PLAIN_MAPPING
    """Which engine runs the newest revision, and why (`query.chosen_engine`)."""
    problems: tuple[str, ...] = ("source: not saved yet", "sink: not saved yet", "mapping: not saved yet")
    """Why the saved parts do not form a revision. While there are any, `revision` is the last good one."""
    state: PipelineState = PipelineState()
    generations: tuple[Generation, ...] = (Generation(number=1),)
    created_at_ms: int = 0
    updated_at_ms: int = 0


class RangeDigest(StoredStruct, frozen=True):
    """What a range was mapped to: rows and dead letters, by number and content (`mapping.content_hash`)."""

    rows: int
    rows_hash: str
    refused: int = 0
    refused_hash: str = ""

    def __str__(self) -> str:
        parts = ((self.rows, "rows", self.rows_hash), (self.refused, "dead letters", self.refused_hash))
        return " and ".join(f"{number} {what}" + (f" ({hash_})" if hash_ else "") for number, what, hash_ in parts)


class RangeIntent(StoredStruct, frozen=True):
    """A range that is being written, or was written and not recorded: the next owner of the partition writes exactly this again."""

    start: int
    end: int
    revision: int = msgspec.field(name="recipe")
    rows: int | None = None
    """Not used: it is in intents of release 0.1.0."""
    digest: RangeDigest | None = None
    """None: nothing was written yet, or the range was begun by release 0.1.0, which recorded none."""
    topic: str = ""
    """The topic of this cluster whose offsets these are: its records are kept until the range is finished."""
    pipeline: str = ""
    """With `generation` and `topic_id` the rest of its identity (`range_identity`); empty: begun by a release before them."""
    generation: int = 0
    topic_id: str = ""


def live_generation(pipeline: Pipeline) -> Generation | None:
    """The generation that follows the source."""
    return next((each for each in pipeline.generations if each.kind == "live" and not each.retired), None)


def active_generations(pipeline: Pipeline) -> tuple[Generation, ...]:
    """The generations that workers run."""
    return tuple(each for each in pipeline.generations if not each.retired)


def registry_namespace(pipeline_id: str, generation: int) -> str:
    """The registry's namespace of one generation."""
    return f"{PIPELINE_REGISTRY}{pipeline_id}-{generation}"


def slot_resource(pipeline_id: str, slot: int) -> str:
    """The lease of one slot."""
    return f"slot/{pipeline_id}/{slot}"

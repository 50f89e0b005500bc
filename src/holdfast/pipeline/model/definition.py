"""A pipeline as it is stored: its parts as people edit them, and the recipe that work is done by.

The one rule: a recipe never changes. Every edit makes the next version; a range that was begun under one version is finished
under it, whatever has been edited meanwhile.
"""

from typing import Final, Literal

import msgspec

from holdfast.pipeline.model.column_mapping import Mapping
from holdfast.pipeline.model.redaction import REDACTED, URLS, redacted_url
from holdfast.vocabulary.settings import MIB

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
PIPELINE_REGISTRY: Final = "pipeline-"
"""What the names of all pipelines' registries begin with."""


class StoredStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=False
):
    """What every stored part is: immutable, camelCase on the wire, strict about what it does not know, discreet in logs."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_redacted_repr(name, getattr(self, name))!r}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({shown})"


def _redacted_repr(name: str, value: object) -> object:
    if isinstance(value, str) and value:
        return REDACTED if name == "password" else redacted_url(value) if name in URLS else value
    return value


class Security(StoredStruct, frozen=True):
    """How an external Kafka is reached. The password is never echoed."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username: str = ""
    password: str = ""
    ca_file: str = ""


class KafkaConfig(StoredStruct, frozen=True):
    """Where records come from. Without `brokers` it is this cluster's own topic; with them any Kafka, through Spark's connector."""

    topic: str
    brokers: tuple[str, ...] = ()
    group_id: str = ""
    """The group that checkpoints are mirrored to, so that lag tools show them; empty: `holdfast-{pipeline id}`."""
    security: Security = Security()
    start: str = EARLIEST
    """Where a new pipeline begins: `earliest`, `latest`, or an ISO 8601 time."""


class ClickHouseConfig(StoredStruct, frozen=True, tag="clickhouse", tag_field="kind"):
    """A table, and how it is written."""

    dsn: str = ""
    """`http[s]://user:password@host:port/database`; empty: the embedded one."""
    database: str = ""
    table: str = ""
    batch_size: int = 100_000
    batch_bytes: int = 32 * MIB
    batch_flush_interval_ms: int = 2_000
    insert_rate_per_second: float = 0.0
    """Inserts a second and slot; 0: as many as come."""
    create_table_if_missing: bool = True
    engine: Literal["MergeTree", "ReplacingMergeTree"] = "MergeTree"
    order_by: tuple[str, ...] = ()
    version_column: str = ""
    """Of a ReplacingMergeTree: which row wins."""
    dedup_window: int = 10_000
    insert_timeout_ms: int = 60_000
    """The server-side `max_execution_time` of an insert."""


class DeltaConfig(StoredStruct, frozen=True, tag="delta", tag_field="kind"):
    """A Delta table at a URL or path."""

    url: str
    batch_size: int = 100_000
    batch_bytes: int = 32 * MIB
    batch_flush_interval_ms: int = 5_000
    partition_by: tuple[str, ...] = ()


class IcebergConfig(StoredStruct, frozen=True, tag="iceberg", tag_field="kind"):
    """A table of an Iceberg catalog."""

    catalog_uri: str
    warehouse: str
    table: str
    batch_size: int = 100_000
    batch_bytes: int = 32 * MIB
    batch_flush_interval_ms: int = 5_000


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
    """What happens to fields the mapping does not know, and where rows go that do not fit."""

    unknown_fields: Literal["ignore", "add-column", "overflow", "dlq", "stop"] = "ignore"
    dlq_rows_kept: int = 1_000_000


class FiltersConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether records are filtered, and by which expression. `cel` is parsed as the subset of CEL that the language has."""

    enabled: bool = False
    language: str = "holdfast"
    expression: str = ""


class SqlConfig(StoredStruct, frozen=True):
    """Over the mapped view `rows`; row by row and deterministic. Empty: the view as it is."""

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


class PipelineState(StoredStruct, frozen=True):
    """What the operator wants."""

    desired: Literal["started", "stopped"] = "stopped"
    replicas: int = 1


class Generation(StoredStruct, frozen=True):
    """One reading of the source. The live one has no end; a backfill has one per partition, and is done when all are reached.

    Its registry namespace is `registry_namespace(pipeline id, number)`: a claim, an epoch, a checkpoint and an intent per
    partition.
    """

    number: int
    kind: Literal["live", "backfill"] = "live"
    starts: dict[str, int] = {}
    """By partition; what is left out begins where `KafkaConfig.start` says."""
    ends: dict[str, int] = {}
    retired: bool = False
    """Nothing more is planned for it: it was rewound away, or it has reached its ends."""
    replaces: int = 0
    """The generation a rewind took the place of; 0: none."""
    delete_previous: bool = False
    """Rows of older generations from `starts` on go once this one has passed where `replaces` had got to."""


class Pipeline(StoredStruct, frozen=True):
    """A stored pipeline. `recipe` is the newest version; 0: it is not complete enough to run."""

    id: str
    name: str
    description: str = ""
    version: int = 1
    """Goes up with every change of anything of the pipeline."""
    recipe: int = 0
    problems: tuple[str, ...] = ("source: not saved yet", "sink: not saved yet", "mapping: not saved yet")
    """What keeps the parts as they are saved from being a recipe. While there are any, `recipe` is the last that was good."""
    state: PipelineState = PipelineState()
    generations: tuple[Generation, ...] = (Generation(number=1),)
    created_at_ms: int = 0
    updated_at_ms: int = 0


class RangeIntent(StoredStruct, frozen=True):
    """A range somebody is about to write, or wrote without saying so: whoever owns the partition next writes exactly this again."""

    start: int
    end: int
    recipe: int
    rows: int | None = None
    topic: str = ""
    """The topic of this cluster whose offsets these are: until the range is finished, its records are kept as they are."""


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


def insert_token(pipeline_id: str, generation: int, topic: str, partition: int, start: int, end: int) -> str:
    """What an insert is known by. The epoch is not in it, so that a zombie's insert and its successor's are one."""
    return f"{pipeline_id}:{generation}:{topic}:{partition}:{start}-{end}"

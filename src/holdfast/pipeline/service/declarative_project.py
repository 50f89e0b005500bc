"""A pipeline as a project of Spark Declarative Pipelines: the text of its files, and what differs from the pipeline. Pure.

The one rule: nothing is left out silently. What has no equal there is in `Export.missing`; what is done in another way is in
`Export.differences`. Both are in the head of the written file, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.clickhouse.types import (
    Array,
    DateTime,
    DateTime64,
    Decimal,
    LowCardinality,
    Map,
    Nullable,
    Scalar,
    Type,
)
from holdfast.pipeline.filters.parser import parse
from holdfast.pipeline.filters.spark_sql import RECORD, NotTranslatedError, filter_sql, variant_field
from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.definition import (
    EARLIEST,
    LATEST,
    ClickHouseConfig,
    DriftPolicy,
    FiltersConfig,
    KafkaConfig,
    SinkConfig,
    TopicSinkConfig,
)
from holdfast.pipeline.model.field_paths import EACH, parse_path

TABLE_SUFFIX: Final = "_sdp"
"""The project's table is not the pipeline's: both would write every row."""
_SPARK_DIGITS_MAX: Final = 38
_SCALARS: Final = {
    "Bool": "boolean",
    "Int8": "tinyint",
    "Int16": "smallint",
    "Int32": "int",
    "Int64": "bigint",
    "UInt8": "smallint",
    "UInt16": "int",
    "UInt32": "bigint",
    "UInt64": "decimal(20, 0)",
    "Float32": "float",
    "Float64": "double",
    "String": "string",
    "Date": "date",
    "UUID": "string",
}
_ROOTS: Final = {
    "key": "CAST(key AS STRING)",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
}
_ZEROS: Final = {"string": "''", "boolean": "false"}
_ALWAYS: Final = (
    "values are converted by Spark, which may accept or refuse others than the pipeline does",
    "a record that cannot be converted, or lacks a column that is not nullable, is left out: there are no dead letters",
    "a run writes what there is and ends; start it again for what came since",
)


@dataclass(frozen=True, slots=True)
class PipelineParts:
    """The parts that are exported."""

    name: str
    source: KafkaConfig
    sink: SinkConfig
    mapping: Mapping
    filters: FiltersConfig
    sql: str
    drift: DriftPolicy


@dataclass(slots=True)
class Export:
    """A project: the text of each file by path, and how it differs."""

    files: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """What the project lacks; without it, other rows are written."""
    differences: list[str] = field(default_factory=lambda: list(_ALWAYS))


def export_project(parts: PipelineParts, storage: str) -> Export:
    """The project. `storage` is the absolute URI of its checkpoints."""
    export = Export()
    name = "".join(character if character.isalnum() else "_" for character in parts.name).lower()
    name = name if name[:1].isalpha() else f"p_{name}"
    body = "\n\n\n".join(["\n".join(_view(parts, name, export)), "\n".join(_sink(parts, name, export))])
    if parts.sql.strip():
        export.missing.append(f"sql: {' '.join(parts.sql.split())}")
    if parts.drift.unknown_fields != "ignore":
        export.differences.append(f"fields without a column are ignored (the pipeline: {parts.drift.unknown_fields})")
    spec = f"name: {name}\nstorage: {storage}\nlibraries:\n  - glob:\n      include: transformations/**\n"
    export.files = {
        "spark-pipeline.yml": spec,
        f"transformations/{name}.py": f"{_head(parts, export)}\n{body}\n",
    }
    return export


def _head(parts: PipelineParts, export: Export) -> str:
    lines = [f"The pipeline {parts.name} of Holdfast, for Spark Declarative Pipelines: `spark-pipelines run`.", ""]
    lines += ["It differs from the pipeline:", *(f"- {each}" for each in export.differences)]
    lines += [f"- MISSING {each}" for each in export.missing]
    text = "\n".join(" ".join(line.split()).replace("\\", "\\\\").replace('"""', "'''") for line in lines)
    imports = "import os\n\nfrom pyspark import pipelines as dp\nfrom pyspark.sql import DataFrame, SparkSession\n"
    return f'"""{text}\n"""\n\n{imports}\nspark = SparkSession.active()\n\n'


def _view(parts: PipelineParts, name: str, export: Export) -> Iterator[str]:
    yield "@dp.temporary_view"
    yield f"def {name}_rows() -> DataFrame:"
    yield "    records = ("
    for line in _source(parts.source, export):
        yield f"        {line}"
    yield "    )"
    yield f'    parsed = records.selectExpr("*", "try_parse_json(CAST(value AS STRING)) AS {RECORD}")'
    condition = _condition(parts.filters, export)
    if condition:
        yield f"    parsed = parsed.where({_python(condition)})"
    required = []
    yield "    rows = parsed.selectExpr("
    for column in parts.mapping.columns:
        expression = _column(column, export)
        if expression is None:
            yield f"        # {_python(column.column)}: {_python(column.field_path)} is not translated"
            continue
        yield f"        {_python(f'{expression} AS {_quoted(column.column)}')},"
        if not column.nullable and column.when_null == "refuse":
            required.append(f"{_quoted(column.column)} IS NOT NULL")
    yield "    )"
    yield f"    return rows.where({_python(' AND '.join(required))})" if required else "    return rows"


def _source(source: KafkaConfig, export: Export) -> Iterator[str]:
    if source.brokers:
        yield 'spark.readStream.format("kafka")'
        yield f'.option("kafka.bootstrap.servers", {_python(",".join(source.brokers))})'
        yield f'.option("subscribe", {_python(source.topic)})'
        if source.security.protocol != "PLAINTEXT":
            export.missing.append(f"source.security: {source.security.protocol} of the brokers")
    else:
        yield 'spark.readStream.format("holdfast")'
        yield '.option("bootstrap", os.environ.get("HOLDFAST_BOOTSTRAP", "127.0.0.1:9092"))'
        yield f'.option("topics", {_python(source.topic)})'
    if source.start in (EARLIEST, LATEST):
        yield f'.option("startingOffsets", {_python(source.start)})'
    else:
        export.missing.append(f"source.start: {source.start}")
        yield '.option("startingOffsets", "earliest")'
    yield ".load()"


def _condition(filters: FiltersConfig, export: Export) -> str:
    if not filters.enabled or not filters.expression.strip():
        return ""
    try:
        return filter_sql(parse(filters.expression))
    except NotTranslatedError as error:
        export.missing.append(f"filters.expression: {error} has no equal in Spark SQL")
        return ""


def _column(column: Column, export: Export) -> str | None:
    path, kind = parse_path(column.field_path), _spark_type(column.kind)
    steps = tuple(step for step in path.steps if step is not EACH)
    expression = None
    if path.root in _ROOTS and not path.steps:
        expression = f"CAST({_ROOTS[path.root]} AS {kind})" if kind else None
    elif path.root == "fields" and len(steps) == len(path.steps) and kind:
        try:
            expression = variant_field(tuple(step for step in steps if isinstance(step, str | int)), kind)
        except NotTranslatedError:
            expression = None
    if expression is None or kind is None:
        export.missing.append(f"mapping: column {column.column} ({column.type}) of {column.field_path}")
        return None
    if not column.nullable and column.when_null == "default":
        return f"coalesce({expression}, {_zero(kind)})"
    return expression


def _zero(kind: str) -> str:
    if kind.startswith("array"):
        return f"CAST(array() AS {kind})"
    if kind.startswith("map"):
        return f"CAST(map() AS {kind})"
    if kind in ("date", "timestamp"):
        return f"CAST('1970-01-01' AS {kind})"
    return _ZEROS.get(kind, "0")


def _spark_type(kind: Type) -> str | None:
    match kind:
        case Nullable(of) | LowCardinality(of):
            return _spark_type(of)
        case Scalar(name):
            return _SCALARS.get(name)
        case Decimal(precision, scale) if precision <= _SPARK_DIGITS_MAX:
            return f"decimal({precision}, {scale})"
        case DateTime() | DateTime64():
            return "timestamp"
        case Array(of):
            inner = _spark_type(of)
            return f"array<{inner}>" if inner else None
        case Map(of):
            inner = _spark_type(of)
            return f"map<string, {inner}>" if inner else None
    return None


def _sink(parts: PipelineParts, name: str, export: Export) -> Iterator[str]:
    rows = f'spark.readStream.table("{name}_rows")'
    match parts.sink:
        case ClickHouseConfig() as sink:
            yield f'dp.create_sink("{name}_sink", "holdfast.clickhouse", {{'
            yield '    "url": os.environ.get("CLICKHOUSE_URL", "http://127.0.0.1:8123"),'
            yield '    "user": os.environ.get("CLICKHOUSE_USER", "default"),'
            yield '    "password": os.environ.get("CLICKHOUSE_PASSWORD", ""),'
            for option, value in _table_options(sink, export):
                yield f'    "{option}": {_python(value)},'
            yield "})"
        case TopicSinkConfig() as sink:
            bootstrap = 'os.environ.get("HOLDFAST_BOOTSTRAP", "127.0.0.1:9092")'
            yield f'dp.create_sink("{name}_sink", "holdfast", {{"bootstrap": {bootstrap}, "topic": {_python(sink.topic)}}})'
            key = f"CAST({_quoted(sink.key_column)} AS STRING)" if sink.key_column else "CAST(NULL AS STRING)"
            rows += f'.selectExpr({_python(f"{key} AS key")}, "to_json(struct(*)) AS value")'
            export.differences.append(
                "the topic is the pipeline's: stop the pipeline before, or its records are there twice"
            )
        case other:
            kind = type(other).__name__.removesuffix("Config").lower()
            export.missing.append(f"sink: {kind} (write its rows to a table of the project, or to a sink of Spark's)")
            yield f"# sink {kind}: not exported"
            return
    yield ""
    yield ""
    yield f'@dp.append_flow(target="{name}_sink")'
    yield f"def {name}() -> DataFrame:"
    yield f"    return {rows}"


def _table_options(sink: ClickHouseConfig, export: Export) -> Iterator[tuple[str, str]]:
    if sink.database:
        yield "database", sink.database
    table = (sink.table or "rows") + TABLE_SUFFIX
    yield "table", table
    export.differences.append(f"rows go to the table {table}, which the project creates: the pipeline keeps its own")
    if sink.engine != "MergeTree":
        version = f"({_quoted(sink.version_column)})" if sink.version_column else ""
        yield "engine", f"{sink.engine}{version}"
    if sink.order_by:
        yield "orderBy", ", ".join(map(_quoted, sink.order_by))


def _python(text: str) -> str:
    """A text as a literal of Python."""
    return repr(text) if '"' in text or "\\" in text or not text.isprintable() else f'"{text}"'


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

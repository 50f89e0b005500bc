"""Parts of a pipeline as users send them: validated, and completed with defaults.

The one rule: what is stored has every field, so a default is the same for readers of every release. All mistakes of a part are
reported at once, each once, with its place. Errors never hold a secret.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from holdfast.clickhouse.expressions import expression_error
from holdfast.clickhouse.quoting import quote_identifier
from holdfast.log.topics import check_name as check_topic_name
from holdfast.pipeline.catalog.query_part import read_query
from holdfast.pipeline.catalog.source_format import check_format
from holdfast.pipeline.filters.config import read_filters
from holdfast.pipeline.mapping.ddl import DEDUP_WINDOW_MAX, check_table_settings
from holdfast.pipeline.model.column_mapping import Mapping as ColumnMapping
from holdfast.pipeline.model.column_mapping import mapping_json, read_mapping
from holdfast.pipeline.model.definition import (
    EARLIEST,
    LATEST,
    ClickHouseConfig,
    DeltaConfig,
    DriftPolicy,
    FiltersConfig,
    IcebergConfig,
    KafkaConfig,
    ParquetConfig,
    SinkConfig,
    SqlConfig,
    TopicSinkConfig,
)
from holdfast.pipeline.model.errors import MissingFieldError, Mistakes
from holdfast.pipeline.model.partition_fields import parse_partition_field
from holdfast.pipeline.model.query import QueryConfig
from holdfast.pipeline.model.redaction import redacted_url
from holdfast.pipeline.model.secret_references import masked
from holdfast.pipeline.model.shapes import read_object, read_struct
from holdfast.pipeline.model.timestamps import parse_iso_ns
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.host_port import split_host_port
from holdfast.vocabulary.settings import KIB, MIB, check_between

PARTS: Final = ("source", "sink", "mapping", "filters", "sql", "drift", "query")
PART_BYTES_MAX: Final = 200 * KIB
SQL_CHARS_MAX: Final = 20_000
BROKERS_MAX: Final = 50
TEXT_CHARS_MAX: Final = 2_000

Part = KafkaConfig | SinkConfig | ColumnMapping | FiltersConfig | SqlConfig | DriftPolicy | QueryConfig
Given = bytes | str | Mapping[str, Any] | msgspec.Struct

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)", re.ASCII)
_CA_FILE: Final = re.compile(r"ca_file=[^&=]+")
_QUORUM: Final = re.compile(r"auto|[0-9]{1,3}", re.ASCII)
_SINKS: Final[dict[str, Any]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (ClickHouseConfig, DeltaConfig, IcebergConfig, ParquetConfig, TopicSinkConfig)
}
_MS: Final = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0}


def read_part(name: str, given: Given) -> Part:
    """A part from JSON, from the same decoded, or from a struct. `InvalidError`; `InvalidValuesError` has all mistakes."""
    if name not in _READERS:
        raise InvalidError("part of a pipeline", name, "one of " + ", ".join(PARTS))
    plain = encode_part(given) if isinstance(given, msgspec.Struct) else given  # type: ignore[arg-type]
    part = _READERS[name](read_object(name, plain))
    size = len(encode_part(part))
    if size > PART_BYTES_MAX:
        raise InvalidError(f"size of {name}", f"{size} bytes", f"at most {PART_BYTES_MAX} bytes")
    return part


def read_parts(given: Mapping[str, Given]) -> dict[str, Part]:
    """Several parts. The mistakes of all of them at once."""
    mistakes, parts = Mistakes(), {}
    for name, value in given.items():
        with mistakes.collect():
            parts[name] = read_part(name, value)
    mistakes.raise_if_any()
    return parts


def encode_part(part: Part) -> bytes:
    """A part as it is stored."""
    return msgspec.json.encode(mapping_json(part) if isinstance(part, ColumnMapping) else part)


def decode_part(name: str, stored: bytes | msgspec.Raw) -> Part:
    """A part that came through `read_part`, from the store."""
    part: Part = msgspec.json.decode(stored, type=_KINDS[name])
    return part


# --- source


def _source(given: dict[str, Any]) -> KafkaConfig:
    if isinstance(brokers := given.get("brokers"), str):
        given["brokers"] = [each.strip() for each in brokers.split(",") if each.strip()]
    mistakes = Mistakes()
    config = read_struct("source", given, KafkaConfig, mistakes)
    with mistakes.collect():
        _check_topic("source.topic", config.topic)
    with mistakes.collect():
        check_between("source.brokers", len(config.brokers), 0, BROKERS_MAX)
    for at, broker in enumerate(config.brokers):
        found = split_host_port(broker)
        if found is None or not found.host or not found.port:
            mistakes.add(InvalidError(f"source.brokers[{at}]", broker[:200], "host:port"))
    with mistakes.collect():
        _check_text("source.groupId", config.group_id, 200)
    if config.start not in (EARLIEST, LATEST) and parse_iso_ns(config.start) is None:
        allowed = f"{EARLIEST}, {LATEST}, or an ISO 8601 time such as 2026-11-15T08:30:00Z"
        mistakes.add(InvalidError("source.start", config.start[:100], allowed))
    _check_security(config, mistakes)
    check_format(config, mistakes)
    mistakes.raise_if_any()
    return config


def _check_topic(what: str, name: str) -> None:
    try:
        check_topic_name(name)
    except InvalidError as error:
        raise InvalidError(what, name[:TEXT_CHARS_MAX], error.allowed) from None


def _check_security(config: KafkaConfig, mistakes: Mistakes) -> None:
    security = config.security
    for name, text in (("username", security.username), ("password", security.password), ("caFile", security.ca_file)):
        with mistakes.collect():
            _check_text(f"source.security.{name}", text, TEXT_CHARS_MAX, shown=name != "password")
    if not config.brokers and security.protocol != "PLAINTEXT":
        allowed = "PLAINTEXT for a topic of this cluster"
        mistakes.add(InvalidError("source.security.protocol", security.protocol, allowed))
    uses_sasl = security.protocol.startswith("SASL")
    if uses_sasl:
        for name in ("mechanism", "username", "password"):
            if not getattr(security, name):
                mistakes.add(MissingFieldError(f"source.security.{name}"))
    elif security.mechanism or security.username or security.password:
        allowed = "SASL_PLAINTEXT or SASL_SSL when there is a mechanism, username or password"
        mistakes.add(InvalidError("source.security.protocol", security.protocol, allowed))


# --- sinks


def _sink(given: dict[str, Any]) -> SinkConfig:
    kind = given.setdefault("kind", "clickhouse")
    if not isinstance(kind, str) or kind not in _SINKS:
        raise InvalidError("sink.kind", str(kind)[:100], "one of " + ", ".join(_SINKS))
    mistakes = Mistakes()
    if "batchFlushInterval" in given:
        interval = given.pop("batchFlushInterval")
        with mistakes.collect():
            given["batchFlushIntervalMs"] = duration_ms("sink.batchFlushInterval", interval)
    config: SinkConfig = read_struct("sink", given, _SINKS[kind], mistakes)
    for name, value, least, most in (
        ("batchSize", config.batch_size, 1, 1_000_000),
        ("batchBytes", config.batch_bytes, KIB, 256 * MIB),
        ("batchFlushIntervalMs", config.batch_flush_interval_ms, 10, 600_000),
    ):
        with mistakes.collect():
            check_between(f"sink.{name}", value, least, most)
    match config:
        case ClickHouseConfig():
            config = _clickhouse(config, mistakes)
        case DeltaConfig() | ParquetConfig():
            with mistakes.collect():
                _check_location("sink.url", config.url)
        case IcebergConfig():
            _check_iceberg(config, mistakes)
        case TopicSinkConfig():
            with mistakes.collect():
                _check_topic("sink.topic", config.topic)
    mistakes.raise_if_any()
    return config


def _check_iceberg(config: IcebergConfig, mistakes: Mistakes) -> None:
    needed = {"sql": ("catalogUri", "warehouse"), "rest": ("catalogUri",), "glue": ()}[config.catalog]
    for name, text in (("catalogUri", config.catalog_uri), ("warehouse", config.warehouse)):
        if text or name in needed:
            with mistakes.collect():
                _check_location(f"sink.{name}", text)
    with mistakes.collect():
        _check_text("sink.table", config.table, 500)
    for name, value in config.catalog_options.items():
        with mistakes.collect():
            _check_text(f"sink.catalogOptions.{name[:100]}", name + value, TEXT_CHARS_MAX, shown=False)
    for text in config.partition_by:
        with mistakes.collect():
            parse_partition_field(text)


def duration_ms(what: str, given: object) -> int:
    """Milliseconds of `"2s"`, `"500ms"`, `"1m"`, or of a number of seconds."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        return round(given * 1_000)
    found = _DURATION.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise InvalidError(what, given, "a duration such as 2s, 500ms or 1m, or a number of seconds")
    return round(float(found[1]) * _MS[found[2]])


def _clickhouse(config: ClickHouseConfig, mistakes: Mistakes) -> ClickHouseConfig:
    database = config.database
    if config.dsn:
        with mistakes.collect():
            named = _dsn_database(config.dsn)
            database = database or named
    for what, name in (("database", database), ("table", config.table)):
        if name:
            with mistakes.collect():
                _check_identifier(f"sink.{what}", name)
    for what, value, least, most in (
        ("insertRatePerSecond", config.insert_rate_per_second, 0, 10_000),
        ("insertTimeoutMs", config.insert_timeout_ms, 1_000, 3_600_000),
        ("dedupWindow", config.dedup_window, 100, DEDUP_WINDOW_MAX),
    ):
        with mistakes.collect():
            check_between(f"sink.{what}", value, least, most)
    needed = config.insert_rate_per_second * config.insert_timeout_ms / 1_000
    if config.dedup_window < needed:
        allowed = f"at least {needed:.0f}: that many inserts can arrive while one of them hangs"
        mistakes.add(InvalidError("sink.dedupWindow", config.dedup_window, allowed))
    _check_table_options(config, mistakes)
    return msgspec.structs.replace(config, database=database or "default")


def _check_table_options(config: ClickHouseConfig, mistakes: Mistakes) -> None:
    """What can be told without the mapping and without the server; see `mapping.ddl.TableSpec`."""
    for what, name in (("versionColumn", config.version_column), ("deletedColumn", config.deleted_column)):
        if name and not config.engine.endswith("ReplacingMergeTree"):
            mistakes.add(InvalidError(f"sink.{what}", name, "empty: only ReplacingMergeTree has one"))
    for what, text in (("partitionBy", config.partition_by), ("ttl", config.ttl)):
        if text and (allowed := expression_error(text)) is not None:
            mistakes.add(InvalidError(f"sink.{what}", text[:200], allowed))
    if config.cluster:
        with mistakes.collect():
            _check_identifier("sink.cluster", config.cluster)
    if not _QUORUM.fullmatch(config.insert_quorum):
        mistakes.add(InvalidError("sink.insertQuorum", config.insert_quorum[:20], "auto, or a number of replicas"))
    with mistakes.collect():
        check_table_settings(config.table_settings)


def _dsn_database(text: str) -> str:
    """The database that a DSN names. `InvalidError` if it is no DSN."""
    shown = redacted_url(text)
    allowed = "http://user:password@host:port/database, or https, or empty for the embedded ClickHouse"
    _check_text("sink.dsn", text, TEXT_CHARS_MAX, shown=False)
    try:
        parts = urlsplit(masked(text)[0])
        port = parts.port
    except ValueError:
        raise InvalidError("sink.dsn", shown, allowed) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.fragment:
        raise InvalidError("sink.dsn", shown, allowed)
    if parts.query and (parts.scheme != "https" or not _CA_FILE.fullmatch(parts.query)):
        raise InvalidError("sink.dsn", shown, "without options behind a question mark but https and ca_file=FILE")
    return unquote(parts.path.strip("/"))


def _check_identifier(what: str, name: str) -> None:
    try:
        quote_identifier(name)
    except InvalidError as error:
        raise InvalidError(what, name[:200], error.allowed) from None


def _check_location(what: str, text: str) -> None:
    if not text.strip():
        raise InvalidError(what, text, "a URL or a path")
    _check_text(what, text, TEXT_CHARS_MAX, shown=False)


def _check_text(what: str, text: str, chars_max: int, *, shown: bool = True) -> None:
    if len(text) > chars_max or (text and not text.isprintable()):
        given = text[:100] if shown else f"{len(text)} characters"
        raise InvalidError(what, given, f"at most {chars_max} printable characters")


# --- the rest


def _mapping(given: dict[str, Any]) -> ColumnMapping:
    return read_mapping(given)


def _sql(given: dict[str, Any]) -> SqlConfig:
    mistakes = Mistakes()
    config = read_struct("sql", given, SqlConfig, mistakes)
    if len(config.sql) > SQL_CHARS_MAX:
        mistakes.add(InvalidError("sql.sql", f"{len(config.sql)} characters", f"at most {SQL_CHARS_MAX} characters"))
    mistakes.raise_if_any()
    return SqlConfig(sql=config.sql.strip())


def _drift(given: dict[str, Any]) -> DriftPolicy:
    if isinstance(policy := given.get("unknownFields"), str):
        given["unknownFields"] = policy.replace("_", "-")
    mistakes = Mistakes()
    config = read_struct("drift", given, DriftPolicy, mistakes)
    with mistakes.collect():
        check_between("drift.dlqRowsKept", config.dlq_rows_kept, 1_000, 1_000_000_000)
    mistakes.raise_if_any()
    return config


_READERS: Final[dict[str, Callable[[dict[str, Any]], Part]]] = {
    "source": _source,
    "sink": _sink,
    "mapping": _mapping,
    "filters": read_filters,
    "sql": _sql,
    "drift": _drift,
    "query": read_query,
}
_KINDS: Final[dict[str, Any]] = {
    "source": KafkaConfig,
    "sink": SinkConfig,
    "mapping": ColumnMapping,
    "filters": FiltersConfig,
    "sql": SqlConfig,
    "drift": DriftPolicy,
    "query": QueryConfig,
}

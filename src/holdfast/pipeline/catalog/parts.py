"""Parts of a pipeline as they come in: read, completed with defaults, and refused in words where they cannot be right.

The one rule: what is stored has every field. A default that is applied at the door is the same for every reader, whatever release
they are of. Texts of errors never hold a secret.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from holdfast.clickhouse.quoting import quote_identifier
from holdfast.log.topics import check_name as check_topic_name
from holdfast.pipeline.filters.config import read_filters
from holdfast.pipeline.mapping.ddl import DEDUP_WINDOW_MAX
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
from holdfast.pipeline.model.redaction import redacted_url
from holdfast.pipeline.model.timestamps import parse_iso_ns
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB, MIB, check_between

PARTS: Final = ("source", "sink", "mapping", "filters", "sql", "drift")
PART_BYTES_MAX: Final = 200 * KIB
SQL_CHARS_MAX: Final = 20_000
BROKERS_MAX: Final = 50
TEXT_CHARS_MAX: Final = 2_000

Part = KafkaConfig | SinkConfig | ColumnMapping | FiltersConfig | SqlConfig | DriftPolicy
Given = bytes | str | Mapping[str, Any] | msgspec.Struct

_BROKER: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", re.ASCII)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)", re.ASCII)
_MS: Final = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0}


def read_part(name: str, given: Given) -> Part:
    """A part from JSON, from the same decoded, or from a struct. `InvalidError` says what is wrong and what may be."""
    if name not in _READERS:
        raise InvalidError("part of a pipeline", name, "one of " + ", ".join(PARTS))
    part = _READERS[name](_decoded(name, given))
    size = len(encode_part(part))
    if size > PART_BYTES_MAX:
        raise InvalidError(f"{name}: its size", f"{size} bytes", f"at most {PART_BYTES_MAX}")
    return part


def encode_part(part: Part) -> bytes:
    """A part as it is stored."""
    return msgspec.json.encode(mapping_json(part) if isinstance(part, ColumnMapping) else part)


def decode_part(name: str, stored: bytes | msgspec.Raw) -> Part:
    """A part that came through `read_part`, from the store."""
    part: Part = msgspec.json.decode(stored, type=_KINDS[name])
    return part


def _decoded(name: str, given: Given) -> dict[str, Any]:
    if isinstance(given, msgspec.Struct):
        given = encode_part(given)  # type: ignore[arg-type]
    try:
        value = msgspec.json.decode(given) if isinstance(given, bytes | str) else given
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidError(name, "text that is not JSON", str(error)) from None
    if not isinstance(value, Mapping):
        raise InvalidError(name, type(value).__name__, "an object")
    return dict(value)


def _convert(name: str, given: dict[str, Any], kind: Any) -> Any:
    try:
        return msgspec.convert(given, kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        what, _, where = str(error).partition(" - at ")
        raise InvalidError(f"{name}{where.strip('`').lstrip('$')}", "what was given", _lower(what)) from None


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


# --- source


def _source(given: dict[str, Any]) -> KafkaConfig:
    if isinstance(brokers := given.get("brokers"), str):
        given["brokers"] = [each.strip() for each in brokers.split(",") if each.strip()]
    config: KafkaConfig = _convert("source", given, KafkaConfig)
    check_topic_name(config.topic)
    check_between("source.brokers: how many", len(config.brokers), 0, BROKERS_MAX)
    for broker in config.brokers:
        found = _BROKER.fullmatch(broker)
        if found is None or not 0 < int(found[2]) < 65_536:
            raise InvalidError("source.brokers", broker[:200], "host:port")
    _text("source.groupId", config.group_id, 200)
    if config.start not in (EARLIEST, LATEST) and parse_iso_ns(config.start) is None:
        allowed = f"{EARLIEST}, {LATEST}, or an ISO 8601 time such as 2026-11-15T08:30:00Z"
        raise InvalidError("source.start", config.start[:100], allowed)
    _security(config)
    return config


def _security(config: KafkaConfig) -> None:
    security = config.security
    for name in ("username", "password", "ca_file"):
        _text(f"source.security.{name}", getattr(security, name), TEXT_CHARS_MAX, shown=name != "password")
    if not config.brokers and security.protocol != "PLAINTEXT":
        raise InvalidError(
            "source.security.protocol", security.protocol, "PLAINTEXT: a topic of this cluster needs none"
        )
    signs_in = security.protocol.startswith("SASL")
    if signs_in and not (security.mechanism and security.username and security.password):
        raise InvalidError("source.security", security.protocol, "with mechanism, username and password")
    if not signs_in and (security.mechanism or security.username or security.password):
        allowed = "SASL_PLAINTEXT or SASL_SSL when there is a mechanism, username or password"
        raise InvalidError("source.security.protocol", security.protocol, allowed)


# --- sinks


def _sink(given: dict[str, Any]) -> SinkConfig:
    given.setdefault("kind", "clickhouse")
    if "batchFlushInterval" in given:
        given["batchFlushIntervalMs"] = duration_ms("sink.batchFlushInterval", given.pop("batchFlushInterval"))
    config: SinkConfig = _convert("sink", given, SinkConfig)
    check_between("sink.batchSize", config.batch_size, 1, 1_000_000)
    check_between("sink.batchBytes", config.batch_bytes, KIB, 256 * MIB)
    check_between("sink.batchFlushIntervalMs", config.batch_flush_interval_ms, 10, 600_000)
    match config:
        case ClickHouseConfig():
            return _clickhouse(config)
        case DeltaConfig() | ParquetConfig():
            _place("sink.url", config.url)
        case IcebergConfig():
            _place("sink.catalogUri", config.catalog_uri)
            _place("sink.warehouse", config.warehouse)
            _text("sink.table", config.table, 500)
        case TopicSinkConfig():
            check_topic_name(config.topic)
    return config


def duration_ms(what: str, given: object) -> int:
    """Milliseconds of `"2s"`, `"500ms"`, `"1m"`, or of a number of seconds."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        return round(given * 1_000)
    found = _DURATION.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise InvalidError(what, given, "a duration such as 2s, 500ms or 1m, or a number of seconds")
    return round(float(found[1]) * _MS[found[2]])


def _clickhouse(config: ClickHouseConfig) -> ClickHouseConfig:
    database = config.database
    if config.dsn:
        named = _dsn(config.dsn)
        database = database or named
    for what, name in (("database", database), ("table", config.table)):
        if name:
            _checked_name(f"sink.{what}", name)
    check_between("sink.insertRatePerSecond", config.insert_rate_per_second, 0, 10_000)
    check_between("sink.insertTimeoutMs", config.insert_timeout_ms, 1_000, 3_600_000)
    check_between("sink.dedupWindow", config.dedup_window, 100, DEDUP_WINDOW_MAX)
    needed = config.insert_rate_per_second * config.insert_timeout_ms / 1_000
    if config.dedup_window < needed:
        allowed = f"at least {needed:.0f}: that many inserts can come while one of them hangs"
        raise InvalidError("sink.dedupWindow", config.dedup_window, allowed)
    if config.version_column and config.engine != "ReplacingMergeTree":
        raise InvalidError("sink.versionColumn", config.version_column, "none: only ReplacingMergeTree has one")
    return msgspec.structs.replace(config, database=database or "default")


def _dsn(text: str) -> str:
    """Check a DSN; the database it names."""
    shown = redacted_url(text)
    allowed = "http://user:password@host:port/database, or https, or nothing for the embedded ClickHouse"
    _text("sink.dsn", text, TEXT_CHARS_MAX, shown=False)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InvalidError("sink.dsn", shown, allowed) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.fragment:
        raise InvalidError("sink.dsn", shown, allowed)
    if parts.query:
        raise InvalidError("sink.dsn", shown, "no options behind a question mark")
    return parts.path.strip("/")


def _checked_name(what: str, name: str) -> None:
    try:
        quote_identifier(name)
    except InvalidError as error:
        raise InvalidError(what, name[:200], error.allowed) from None


def _place(what: str, text: str) -> None:
    if not text.strip():
        raise InvalidError(what, text, "a URL or a path")
    _text(what, text, TEXT_CHARS_MAX, shown=False)


def _text(what: str, text: str, chars_max: int, *, shown: bool = True) -> None:
    if len(text) > chars_max or (text and not text.isprintable()):
        given = text[:100] if shown else f"{len(text)} characters"
        raise InvalidError(what, given, f"at most {chars_max} printable characters")


# --- the rest


def _mapping(given: dict[str, Any]) -> ColumnMapping:
    return read_mapping(given)


def _sql(given: dict[str, Any]) -> SqlConfig:
    config: SqlConfig = _convert("sql", given, SqlConfig)
    if len(config.sql) > SQL_CHARS_MAX:
        raise InvalidError("sql", f"{len(config.sql)} characters", f"at most {SQL_CHARS_MAX}")
    return SqlConfig(sql=config.sql.strip())


def _drift(given: dict[str, Any]) -> DriftPolicy:
    if isinstance(policy := given.get("unknownFields"), str):
        given["unknownFields"] = policy.replace("_", "-")
    config: DriftPolicy = _convert("drift", given, DriftPolicy)
    check_between("drift.dlqRowsKept", config.dlq_rows_kept, 1_000, 1_000_000_000)
    return config


_READERS: Final[dict[str, Callable[[dict[str, Any]], Part]]] = {
    "source": _source,
    "sink": _sink,
    "mapping": _mapping,
    "filters": read_filters,
    "sql": _sql,
    "drift": _drift,
}
_KINDS: Final[dict[str, Any]] = {
    "source": KafkaConfig,
    "sink": SinkConfig,
    "mapping": ColumnMapping,
    "filters": FiltersConfig,
    "sql": SqlConfig,
    "drift": DriftPolicy,
}

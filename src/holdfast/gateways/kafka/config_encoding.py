"""The DescribeConfigs response, encoded by hand: tools describe thousands of topics at once, most with the same settings.

The bytes of a set of settings are cached and used for every topic with the same set.
"""

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from holdfast.gateways.kafka.config_names import ConfigEntry
from holdfast.kafka.enums import ConfigResourceType, ConfigSource
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.wire import INT16, INT32, NO_TAGS, encode_length, encode_string

_TYPES_FROM, _FLEXIBLE_FROM = 3, 4
_INT8: Final = Struct(">b")
_FLAGS: Final = Struct(">?b?")  # read-only, source, sensitive


class DescribedResource(NamedTuple):
    """One resource of a response: its settings, or an error."""

    kind: int
    name: str
    rows: tuple[ConfigEntry, ...] = ()
    code: ErrorCode = ErrorCode.NONE
    text: str | None = None


def encode_described_configs(version: int, described: list[DescribedResource], *, synonyms: bool, texts: bool) -> bytes:
    """The body of the response."""
    flexible = version >= _FLEXIBLE_FROM
    tags = NO_TAGS if flexible else b""
    out = bytearray(INT32.pack(0) + encode_length(len(described), flexible=flexible))
    for each in described:
        out += INT16.pack(each.code) + encode_string(each.text, flexible=flexible)
        out += _INT8.pack(each.kind) + encode_string(each.name, flexible=flexible)
        out += _configs(version, each.kind, each.rows, synonyms, texts) + tags
    out += tags
    return bytes(out)


@lru_cache(maxsize=256)
def _configs(version: int, kind: int, rows: tuple[ConfigEntry, ...], synonyms: bool, texts: bool) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    tags = NO_TAGS if flexible else b""
    out = bytearray(encode_length(len(rows), flexible=flexible))
    not_set = ConfigSource.DEFAULT_CONFIG if kind == ConfigResourceType.TOPIC else ConfigSource.STATIC_BROKER_CONFIG
    logger = kind == ConfigResourceType.BROKER_LOGGER
    is_set = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG if logger else ConfigSource.DYNAMIC_TOPIC_CONFIG
    for row in rows:
        source = is_set if row.is_set else not_set
        out += encode_string(row.name, flexible=flexible) + encode_string(row.value, flexible=flexible)
        out += _FLAGS.pack(row.read_only, source, row.sensitive)
        listed = _synonyms(row, source) if synonyms else []
        out += encode_length(len(listed), flexible=flexible)
        for name, value, synonym_source in listed:
            out += (
                encode_string(name, flexible=flexible)
                + encode_string(value, flexible=flexible)
                + _INT8.pack(synonym_source)
                + tags
            )
        if version >= _TYPES_FROM:
            out += _INT8.pack(row.kind) + encode_string(row.text if texts else None, flexible=flexible)
        out += tags
    return bytes(out)


def _synonyms(row: ConfigEntry, source: int) -> list[tuple[str, str | None, int]]:
    """The values by source, the effective one first."""
    listed: list[tuple[str, str | None, int]] = [(row.name, row.value, source)] if row.is_set else []
    if row.default is not None:
        listed.append((row.broker or row.name, row.default, ConfigSource.DEFAULT_CONFIG))
    return listed

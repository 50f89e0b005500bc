"""The DescribeConfigs answer, written by hand: tools describe thousands of topics at once, and most have the same settings.

What is written of a set of settings is kept, and used for every topic that has the same.
"""

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from holdfast.gateways.kafka.config_names import ConfigEntry
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.wire import INT16, INT32, NO_TAGS, array_length, string

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4

DYNAMIC_TOPIC_CONFIG: Final = 1
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5

_TYPES_FROM, _FLEXIBLE_FROM = 3, 4
_INT8: Final = Struct(">b")
_FLAGS: Final = Struct(">?b?")  # read-only, source, sensitive


class DescribedResource(NamedTuple):
    """One resource of an answer: its settings, or why not."""

    kind: int
    name: str
    rows: tuple[ConfigEntry, ...] = ()
    code: ErrorCode = ErrorCode.NONE
    text: str | None = None


def encode_described_configs(version: int, described: list[DescribedResource], *, synonyms: bool, texts: bool) -> bytes:
    """The body of the answer."""
    flexible = version >= _FLEXIBLE_FROM
    tags = NO_TAGS if flexible else b""
    out = bytearray(INT32.pack(0) + array_length(len(described), flexible=flexible))
    for each in described:
        out += INT16.pack(each.code) + string(each.text, flexible=flexible)
        out += _INT8.pack(each.kind) + string(each.name, flexible=flexible)
        out += _configs(version, each.kind, each.rows, synonyms, texts) + tags
    out += tags
    return bytes(out)


@lru_cache(maxsize=256)
def _configs(version: int, kind: int, rows: tuple[ConfigEntry, ...], synonyms: bool, texts: bool) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    tags = NO_TAGS if flexible else b""
    out = bytearray(array_length(len(rows), flexible=flexible))
    for row in rows:
        source = (
            DYNAMIC_TOPIC_CONFIG if row.is_set else DEFAULT_CONFIG if kind == TOPIC_RESOURCE else STATIC_BROKER_CONFIG
        )
        out += string(row.name, flexible=flexible) + string(row.value, flexible=flexible)
        out += _FLAGS.pack(row.read_only, source, row.sensitive)
        listed = _synonyms(row, source) if synonyms else []
        out += array_length(len(listed), flexible=flexible)
        for name, value, its_source in listed:
            out += string(name, flexible=flexible) + string(value, flexible=flexible) + _INT8.pack(its_source) + tags
        if version >= _TYPES_FROM:
            out += _INT8.pack(row.kind) + string(row.text if texts else None, flexible=flexible)
        out += tags
    return bytes(out)


def _synonyms(row: ConfigEntry, source: int) -> list[tuple[str, str | None, int]]:
    """Where a value may come from, the one that counts first."""
    listed: list[tuple[str, str | None, int]] = [(row.name, row.value, source)] if row.is_set else []
    if row.default is not None:
        listed.append((row.broker or row.name, row.default, DEFAULT_CONFIG))
    return listed

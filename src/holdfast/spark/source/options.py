"""The options of the source, parsed and checked before anything is opened.

The one rule: a wrong option is an error that names it and what is allowed; so is a misspelt one, or one without effect here.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from holdfast.client.cluster_address import ClusterAddress
from holdfast.kafka.special_offsets import EARLIEST, LATEST
from holdfast.log.topics import check_name
from holdfast.spark.cluster_options import ADDRESS_OPTIONS, parse_cluster_address
from holdfast.spark.kafka_options import SOURCE, from_kafka_options
from holdfast.spark.login_options import PREFIXES
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import MIB

_SELECTION_OPTIONS: Final = (*ADDRESS_OPTIONS, "topics", "topicsPattern", "partitions")
_READ_OPTIONS: Final = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "includeHeaders",
    "rowsPerTask",
    "figures",
)
_BATCH_OPTIONS: Final = (
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "bytesPerTask",
    "timestampDisorder",
)
_STREAM_OPTIONS: Final = ("maxRowsPerTrigger", "maxBytesPerTrigger", "minRows", "maxTriggerDelay", "sourceName")
_PARTITIONS_FORM: Final = 'numbers such as "0,2,5-7", or JSON such as {"orders": [0, 2]}'
_OFFSETS_FORM: Final = 'or JSON such as {"orders": {"0": 17, "1": -2}}, where -2 is earliest and -1 latest'
_TIMES_FORM: Final = 'JSON such as {"orders": {"0": 1767225600000}}, in milliseconds since 1970'
_TIME_FORM: Final = 'milliseconds since 1970, or a time such as "2026-03-01T12:00:00Z"'

TRIGGER_DELAY_MS: Final = 15 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRangeLimit:
    """Where reading starts or ends, by partition: an offset, EARLIEST or LATEST; or a time.

    `must_match`: a time after the last record is an error, not the end.
    """

    default: int
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    must_match: bool = False

    def of(self, topic: str, partition: int) -> int:
        """The offset, or EARLIEST or LATEST."""
        return self.offsets.get(topic, {}).get(partition, self.default)

    def time_of(self, topic: str, partition: int) -> int | None:
        """The time; None where an offset counts."""
        return self.timestamps_ms.get(topic, {}).get(partition, self.timestamp_ms)

    @property
    def named(self) -> dict[str, set[int]]:
        """Topics and partitions that are named."""
        return {topic: set(numbers) for each in (self.offsets, self.timestamps_ms) for topic, numbers in each.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one query."""

    cluster_address: ClusterAddress
    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: frozenset[int] | None = None
    partitions_by_topic: Mapping[str, frozenset[int]] | None = None
    start: OffsetRangeLimit
    end: OffsetRangeLimit
    rows_max: int | None = None
    bytes_max: int | None = None
    rows_min: int | None = None
    trigger_delay_ms: int = TRIGGER_DELAY_MS
    fail_on_data_loss: bool = True
    include_headers: bool = False
    rows_per_task: int = 500_000
    bytes_per_task: int = 64 * MIB
    disorder_ms: int | None = None
    figures: str = ""
    source_name: str = ""

    def wants(self, topic: str, partition: int) -> bool:
        """Whether this partition is read."""
        if self.partitions_by_topic is not None:
            return partition in self.partitions_by_topic.get(topic, ())
        return self.partitions is None or partition in self.partitions


def parse_source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a batch or streaming query. Names are case-insensitive, as everywhere in Spark.

    Those of Spark's Kafka connector are accepted, too (`kafka_options`).
    """
    options = _RawOptions(from_kafka_options(given, SOURCE), streaming=streaming)
    start = _range_limit(
        options, "starting", LATEST if streaming else EARLIEST, words={"earliest": EARLIEST, "latest": LATEST}
    )
    end = _range_limit(options, "ending", LATEST, words={"latest": LATEST})
    _check_ending_offsets(end)
    names, pattern = _topics(options)
    numbers, by_topic = _partitions(options, names)
    return SourceOptions(
        cluster_address=parse_cluster_address(options.values),
        topics=names,
        pattern=pattern,
        partitions=numbers,
        partitions_by_topic=by_topic,
        start=start,
        end=end,
        rows_max=options.count("maxRowsPerTrigger"),
        bytes_max=options.count("maxBytesPerTrigger"),
        rows_min=options.count("minRows"),
        trigger_delay_ms=_trigger_delay_ms(options),
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        include_headers=options.flag("includeHeaders", default=False),
        rows_per_task=options.count("rowsPerTask") or 500_000,
        bytes_per_task=options.count("bytesPerTask") or 64 * MIB,
        disorder_ms=options.duration_ms("timestampDisorder"),
        figures=options.text("figures"),
        source_name=options.text("sourceName"),
    )


def include_headers(given: Mapping[str, str]) -> bool:
    """Whether the query has the column `headers`."""
    return _RawOptions({name: value for name, value in given.items() if name.lower() == "includeheaders"}).flag(
        "includeHeaders", default=False
    )


class _RawOptions:
    """Options by lower-case name, each parsed as its type."""

    def __init__(self, given: Mapping[str, str], *, streaming: bool = False) -> None:
        self.values = {name.lower(): _stripped(name.lower(), value) for name, value in given.items()}
        known = [*_SELECTION_OPTIONS, *_READ_OPTIONS, *(_STREAM_OPTIONS if streaming else _BATCH_OPTIONS)]
        others = {name.lower(): name for name in (_BATCH_OPTIONS if streaming else _STREAM_OPTIONS)}
        for name in given:
            if name.lower() in others:
                kind = "batch reads (spark.read)" if streaming else "streams (spark.readStream)"
                raise InvalidError(f"option {others[name.lower()]}", given[name], f"absent: it is for {kind} only")
            if name.lower() not in {each.lower() for each in known} and not name.startswith(PREFIXES):
                raise InvalidError("option", name, "one of " + ", ".join(sorted(known)))

    def text(self, name: str) -> str:
        return self.values.get(name.lower(), "")

    def count(self, name: str) -> int | None:
        text = self.text(name)
        if not text:
            return None
        if not text.isdecimal() or not 0 < int(text) < 1 << 63:
            raise InvalidError(f"option {name}", text, "a whole number of at least 1")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise InvalidError(f"option {name}", text, "true or false")
        return text == "true" if text else default

    def duration_ms(self, name: str) -> int | None:
        text = self.text(name)
        if not text:
            return None
        found = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d)", text)
        if found is None:
            raise InvalidError(f"option {name}", text, "a duration such as 500ms, 30s, 10m, 2h or 1d")
        units = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
        return int(found[1]) * units[found[2]]

    def json(self, name: str, allowed: str) -> dict[str, object]:
        text = self.text(name)
        try:
            read = json.loads(text)
        except ValueError:
            raise InvalidError(f"option {name}", text, allowed) from None
        if not isinstance(read, dict):
            raise InvalidError(f"option {name}", text, allowed)
        return read


def _stripped(name: str, value: str) -> str:
    return value if name.startswith(PREFIXES) else value.strip()  # a password may end in a space


def _topics(options: _RawOptions) -> tuple[tuple[str, ...], str]:
    text, pattern = options.text("topics"), options.text("topicsPattern")
    if bool(text) == bool(pattern):
        given = f"{text} and {pattern}" if text else ""
        raise InvalidError("options topics and topicsPattern", given, "exactly one of the two")
    if pattern:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidError("option topicsPattern", pattern, f"a regular expression ({error})") from None
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if text and not names:
        raise InvalidError("option topics", text, "names separated by commas")
    for name in names:
        check_name(name)
    return names, pattern


def _partitions(
    options: _RawOptions, topics: tuple[str, ...]
) -> tuple[frozenset[int] | None, dict[str, frozenset[int]] | None]:
    text = options.text("partitions")
    if not text:
        return None, None
    if text.startswith("{"):
        found = {}
        for topic, numbers in options.json("partitions", _PARTITIONS_FORM).items():
            if not isinstance(numbers, list) or not all(type(each) is int and each >= 0 for each in numbers):
                raise InvalidError("option partitions", text, _PARTITIONS_FORM)
            if topics and topic not in topics:
                raise InvalidError("option partitions", topic, "one of the topics: " + ", ".join(topics))
            found[topic] = frozenset(numbers)
        return None, found
    chosen: set[int] = set()
    for part in text.split(","):
        bounds = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if bounds is None or int(bounds[2] or bounds[1]) < int(bounds[1]):
            raise InvalidError("option partitions", text, _PARTITIONS_FORM)
        chosen |= set(range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1))
    return frozenset(chosen), None


def _trigger_delay_ms(options: _RawOptions) -> int:
    given = options.duration_ms("maxTriggerDelay")
    if given is not None and not options.text("minRows"):
        raise InvalidError(
            "option maxTriggerDelay",
            options.text("maxTriggerDelay"),
            "absent without minRows (minOffsetsPerTrigger): nothing is waited for",
        )
    return TRIGGER_DELAY_MS if given is None else given


def _range_limit(options: _RawOptions, side: str, default: int, *, words: Mapping[str, int]) -> OffsetRangeLimit:
    name, time_name, times_name = f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    given = {each: options.text(each) for each in (name, time_name, times_name) if options.text(each)}
    if len(given) > 1:
        raise InvalidError(f"options {' and '.join(given)}", " and ".join(given.values()), "only one of them")
    must_match = _must_match(options) if side == "starting" else False
    if time := given.get(time_name):
        return OffsetRangeLimit(default=default, timestamp_ms=_timestamp_ms(time_name, time), must_match=must_match)
    if times_name in given:
        times = _by_partition(options, times_name, _TIMES_FORM, least=0)
        return OffsetRangeLimit(default=default, timestamps_ms=times, must_match=must_match)
    text = given.get(name, "")
    if not text or text.lower() in words:
        return OffsetRangeLimit(default=words.get(text.lower(), default))
    allowed = f"{', '.join(words)}, {_OFFSETS_FORM}"
    return OffsetRangeLimit(default=default, offsets=_by_partition(options, name, allowed, least=EARLIEST))


def _must_match(options: _RawOptions) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    text = options.text(name).lower()
    if text not in ("", "error", "latest"):
        raise InvalidError(f"option {name}", text, "error or latest")
    return text == "error"


def _by_partition(options: _RawOptions, name: str, allowed: str, *, least: int) -> dict[str, dict[int, int]]:
    """A number for each partition of each topic."""
    found: dict[str, dict[int, int]] = {}
    for topic, partitions in options.json(name, allowed).items():
        if not isinstance(partitions, dict):
            raise InvalidError(f"option {name}", options.text(name), allowed)
        for number, value in partitions.items():
            if not number.isdecimal() or type(value) is not int or value < least:
                raise InvalidError(f"option {name}", {topic: {number: value}}, allowed)
            found.setdefault(topic, {})[int(number)] = value
    return found


def _check_ending_offsets(end: OffsetRangeLimit) -> None:
    for topic, partitions in end.offsets.items():
        for number, offset in partitions.items():
            if offset == EARLIEST:
                raise InvalidError("option endingOffsets", {topic: {number: offset}}, "an offset, or -1 for latest")


def _timestamp_ms(name: str, text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidError(f"option {name}", text, _TIME_FORM) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp() * 1000)

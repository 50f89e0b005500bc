"""Options are read, and wrong ones named, with what is allowed."""

import pytest

from holdfast.kafka.special_offsets import EARLIEST, LATEST
from holdfast.spark.source.options import OffsetRangeLimit, SourceOptions, parse_source_options
from holdfast.vocabulary.errors import InvalidError

GOOD = {"bootstrap": "host:9092", "topics": "a,b"}


def batch(**more: str) -> SourceOptions:
    return parse_source_options({**GOOD, **more}, streaming=False)


def test_a_batch_read_begins_at_the_start_and_a_stream_at_the_end() -> None:
    assert batch().start == OffsetRangeLimit(default=EARLIEST)
    assert batch().end == OffsetRangeLimit(default=LATEST)
    assert parse_source_options(GOOD, streaming=True).start == OffsetRangeLimit(default=LATEST)


def test_names_are_case_insensitive() -> None:
    options = parse_source_options({"BOOTSTRAP": "h:1", "Topics": "t", "MAXROWSPERTRIGGER": "5"}, streaming=True)
    assert (options.topics, options.rows_max) == (("t",), 5)


def test_offsets_are_given_by_topic_and_partition() -> None:
    edge = batch(startingOffsets='{"a": {"0": 17, "1": -1}}').start
    assert (edge.of("a", 0), edge.of("a", 1), edge.of("a", 2), edge.of("b", 0)) == (17, LATEST, EARLIEST, EARLIEST)


@pytest.mark.parametrize("text", ["1767225600000", "2026-01-01T00:00:00Z", "2026-01-01", "2026-01-01T01:00+01:00"])
def test_times_are_milliseconds_or_text(text: str) -> None:
    assert batch(startingTimestamp=text).start.timestamp_ms == 1_767_225_600_000


def test_partitions_are_chosen_for_all_topics_or_for_each() -> None:
    assert [number for number in range(9) if batch(partitions="0, 2,5-7").wants("a", number)] == [0, 2, 5, 6, 7]
    each = batch(partitions='{"a": [1], "b": [0, 2]}')
    assert [(topic, number) for topic in "ab" for number in range(3) if each.wants(topic, number)] == [
        ("a", 1),
        ("b", 0),
        ("b", 2),
    ]


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"topic": "a"}, ["topic", "topicsPattern"]),
        ({"topics": ""}, ["topics", "topicsPattern", "exactly one"]),
        ({"topicsPattern": "a.*"}, ["topics", "topicsPattern", "exactly one"]),
        ({"topics": "a b"}, ["topic name", "a b"]),
        ({"topics": "", "topicsPattern": "("}, ["topicsPattern", "regular expression"]),
        ({"bootstrap": "host"}, ["bootstrap", "host:port"]),
        ({"bootstrap": ""}, ["bootstrap", "store", "objects"]),
        ({"store": "sqlite:////x.db"}, ["objects", "together"]),
        ({"store": "memory:", "objects": "memory:"}, ["store", "memory:"]),
        ({"store": "oracle://x", "objects": "file:///x"}, ["store URL", "sqlite"]),
        ({"startingOffsets": "newest"}, ["startingOffsets", "earliest", "latest", "JSON"]),
        ({"startingOffsets": '{"a": 5}'}, ["startingOffsets", "JSON"]),
        ({"startingOffsets": '{"a": {"0": -3}}'}, ["startingOffsets", "-3"]),
        ({"startingOffsets": '{"a": {"x": 3}}'}, ["startingOffsets", "'x'"]),
        ({"endingOffsets": "earliest"}, ["endingOffsets", "latest"]),
        ({"endingOffsets": '{"a": {"0": -2}}'}, ["endingOffsets", "-1"]),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, ["startingOffsets", "startingTimestamp", "one of"]),
        ({"endingTimestamp": "tomorrow"}, ["endingTimestamp", "milliseconds"]),
        ({"partitions": "0,x"}, ["partitions", "5-7"]),
        ({"partitions": "3-1"}, ["partitions"]),
        ({"partitions": '{"c": [1]}'}, ["partitions", "'c'", "a, b"]),
        ({"failOnDataLoss": "no"}, ["failOnDataLoss", "true or false"]),
        ({"includeHeaders": "1"}, ["includeHeaders", "true or false"]),
        ({"rowsPerTask": "0"}, ["rowsPerTask", "at least 1"]),
        ({"timestampDisorder": "5 apples"}, ["timestampDisorder", "10m"]),
        ({"maxRowsPerTrigger": "10"}, ["maxRowsPerTrigger", "streams"]),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(more: dict[str, str], names: list[str]) -> None:
    with pytest.raises(InvalidError) as refused:
        batch(**more)
    for name in names:
        assert name in str(refused.value)


@pytest.mark.parametrize("name", ["maxRowsPerTrigger", "maxBytesPerTrigger", "minRows"])
def test_limits_of_a_stream_are_whole_numbers(name: str) -> None:
    with pytest.raises(InvalidError, match=name):
        parse_source_options({**GOOD, name: "many"}, streaming=True)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "timestampDisorder"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(InvalidError, match=rf"{name}.*batch reads"):
        parse_source_options({**GOOD, name: "1"}, streaming=True)


def test_no_password_is_shown() -> None:
    shown = repr(
        batch(
            storeUrl="postgresql://me:sesame@host/db", objectsUrl="s3://b?secret_access_key=sesame&region=here"
        ).cluster_address
    )
    assert "sesame" not in shown
    assert "region=here" in shown


SECRET = {"store": "postgresql://me:sesame@host/db", "objects": "s3://b?secret_access_key=sesame&region=here"}
PLAIN = {"store": "postgresql://me@host/db", "objects": "s3://b?region=here"}


@pytest.mark.parametrize("name", ["store", "objects"])
def test_a_url_with_a_secret_is_given_under_a_name_that_spark_hides(name: str) -> None:
    with pytest.raises(InvalidError, match=f"given as {name}Url, because it holds a secret") as refused:
        batch(**{**PLAIN, name: SECRET[name]})
    assert "sesame" not in str(refused.value)
    both = {"store": "storeUrl", "objects": "objectsUrl"}
    found = batch(**{**PLAIN, both[name]: SECRET[name], name: ""}).cluster_address
    assert {"store": found.store, "objects": found.objects} == {**PLAIN, name: SECRET[name]}
    with pytest.raises(InvalidError, match=f"absent: {name}Url is given"):
        batch(**PLAIN, **{both[name]: PLAIN[name]})
    assert batch(**PLAIN).cluster_address.store == PLAIN["store"]

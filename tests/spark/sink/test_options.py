"""Options of the sink: read without regard to case, refused by name."""

import pytest

from holdfast.spark.sink.options import parse_sink_options
from holdfast.vocabulary.errors import InvalidError


def test_option_names_are_case_insensitive() -> None:
    options, cluster_address = parse_sink_options(
        {"Bootstrap": "localhost:9092", "TOPIC": "t", "batchbytes": "2048", "writeId": "w", "checkpointLocation": "/x"}
    )
    assert (options.topic, options.batch_bytes, options.write_id) == ("t", 2048, "w")
    assert cluster_address.bootstrap == "localhost:9092"


def test_the_options_that_spark_adds_to_every_stream_are_no_options_of_ours() -> None:
    """`queryName` is how every flow of a declarative pipeline names its query."""
    options, _ = parse_sink_options({"bootstrap": "b:1", "topic": "t", "queryName": "copies", "path": "/x"})
    assert options.topic == "t"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "t"}, "option bootstrap"),
        ({"bootstrap": "b:1", "topics": "t"}, "invalid option 'topics': must be one of batchBytes, bootstrap"),
        ({"bootstrap": "b:1", "compression": "brotli"}, "compression"),
        ({"bootstrap": "b:1", "batchBytes": "many"}, "batch_bytes"),
        ({"bootstrap": "b:1", "batchBytes": "1"}, "batchBytes"),
        ({"bootstrap": "b:1", "store": "sqlite:///x"}, "option objects"),
        ({"bootstrap": "b"}, "option bootstrap"),
        ({"bootstrap": "b:1", "writeId": "x" * 300}, "option writeId"),
        ({"bootstrap": "b:1", "writeNumber": "3"}, "option writeNumber"),
        ({"bootstrap": "b:1", "writeId": "x", "writeNumber": "-1"}, "writeNumber"),
    ],
)
def test_a_wrong_option_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        parse_sink_options(given)

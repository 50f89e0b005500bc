"""Requests with one record each, as bytes, for the load generator: Kafka's Produce, Valkey's XADD, a publish to JetStream.

They are made before the clock starts. Records are random and more than LZ4 looks back at, so that nobody gains by compressing.
"""

import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from tests.support.kafka_raw_requests import batch, request, text

from holdfast.kafka.api_keys import ApiKey

FRAMES: Final = 96  # of each connection, sent in turn
PRODUCE_VERSION: Final = 3  # the oldest that Apache Kafka still takes; the loopback ceiling knows no other
PRODUCE_TIMEOUT_MS: Final = 30_000
ACKS_ALL: Final = -1

NewFrame = Callable[[int, int, bytes], bytes]  # connection, number of the frame, record → request


def kafka_frame(topic: str, partitions: int, connection: int, number: int, record: bytes) -> bytes:
    """Produce of one record. The correlation id is the number, so that an answer out of order is noticed."""
    records = batch(record)
    part = struct.pack(">ii", connection % partitions, len(records)) + records
    topics = struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1) + part
    body = struct.pack(">hhi", -1, ACKS_ALL, PRODUCE_TIMEOUT_MS) + topics
    return request(ApiKey.PRODUCE, PRODUCE_VERSION, number, body)


def resp_frame(stream: str, connection: int, number: int, record: bytes) -> bytes:
    """XADD of one field."""
    words = (b"XADD", stream.encode(), b"*", b"v", record)
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def nats_frame(subject: str, connection: int, number: int, record: bytes) -> bytes:
    """A publish whose acknowledgement goes to the connection's own inbox."""
    return b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), _inbox(connection), len(record), record)


def nats_greeting(connection: int) -> bytes:
    return b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB %s 1\r\n' % _inbox(connection)


def no_greeting(connection: int) -> bytes:
    return b""


def load_input(new_frame: NewFrame, greeting: Callable[[int], bytes], *, connections: int, size: int) -> bytes:
    """What the load generator reads: for each connection a greeting and its frames, each behind its size."""
    return b"".join(_sized(new_frame, greeting, connections, size))


def _sized(new_frame: NewFrame, greeting: Callable[[int], bytes], connections: int, size: int) -> Iterator[bytes]:
    random = Random(size)
    for connection in range(connections):
        frames = (new_frame(connection, number, random.randbytes(size)) for number in range(FRAMES))
        for frame in (greeting(connection), *frames):
            yield struct.pack("=I", len(frame)) + frame


def _inbox(connection: int) -> bytes:
    return b"_INBOX.load.%d" % connection

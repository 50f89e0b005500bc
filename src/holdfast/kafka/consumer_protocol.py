"""The topics a consumer subscribes to, read from the metadata it joins its group with.

Only the beginning of ConsumerProtocolSubscription is read: a version and the topics, the same in every version. Groups with another
protocol type (Kafka Connect's, say) put other metadata here; nothing is known of their topics. A client decides how many names
these bytes hold, and a name may take only two of them.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.kafka.wire import INT16, INT32, MalformedRequestError

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
COMPARED_TOPICS_MAX: Final = 10_000  # a few milliseconds

_TOPICS_AT: Final = INT16.size + INT32.size  # after the version and the number of topics
_BATCH_TOPICS: Final = 5_000


def topic_batches(metadata: bytes) -> Iterator[list[str]]:
    """The topics of one subscription, a few milliseconds' worth at a time; `MalformedRequestError` if these bytes are not one."""
    left, at, end = _count(metadata), _TOPICS_AT, len(metadata)
    while left:
        batch = []
        for _ in range(min(left, _BATCH_TOPICS)):
            start = at + INT16.size
            length = int.from_bytes(metadata[at:start], signed=True)
            at = start + length
            if length < 0 or at > end:
                raise MalformedRequestError("topic name", length, f"0 to {end - start} bytes")
            try:
                batch.append(metadata[start:at].decode())
            except UnicodeDecodeError:
                raise MalformedRequestError("topic name", metadata[start:at][:80], "UTF-8") from None
        left -= len(batch)
        yield batch


def subscription_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of one subscription; None if these bytes are not one."""
    try:
        return frozenset(topic for batch in topic_batches(metadata) for topic in batch)
    except MalformedRequestError:
        return None


def same_subscription(one: bytes, other: bytes) -> bool:
    """Whether two subscriptions name the same topics; the same bytes, if they cannot be read, or name very many.

    The partitions a sticky assignor adds to its subscription are ignored: a restarted consumer has lost them.
    """
    if one == other:
        return True
    try:
        if max(_count(one), _count(other)) > COMPARED_TOPICS_MAX:
            return False
    except MalformedRequestError:
        return False
    topics = subscription_topics(one)
    return topics is not None and topics == subscription_topics(other)


def _count(metadata: bytes) -> int:
    """How many topics a subscription announces; `MalformedRequestError` if these bytes cannot hold them."""
    if len(metadata) < _TOPICS_AT:
        raise MalformedRequestError("subscription", len(metadata), f"at least {_TOPICS_AT} bytes")
    (count,) = INT32.unpack_from(metadata, INT16.size)
    names_max = (len(metadata) - _TOPICS_AT) // INT16.size
    if not 0 <= count <= names_max:
        raise MalformedRequestError("number of topics", count, f"0 to {names_max}")
    return int(count)

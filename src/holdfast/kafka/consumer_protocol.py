"""The topics a consumer subscribes to, read from the metadata it joins its group with.

Only the beginning of ConsumerProtocolSubscription is read: a version and the topics, the same in every version. Groups with another
protocol type (Kafka Connect's, say) put other metadata here; nothing is known of their topics.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.kafka.wire import MalformedRequestError, WireReader

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def subscription_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of one subscription; None if these bytes are not one."""
    reader = WireReader(memoryview(metadata), flexible=False)
    try:
        reader.int16()  # version
        count = reader.length()
        return frozenset(reader.text() for _ in range(count)) if count >= 0 else None
    except MalformedRequestError:
        return None


def group_subscription_topics(protocol_type: str, metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None if one of the subscriptions cannot be read."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    found: set[str] = set()
    for each in metadata:
        topics = subscription_topics(each)
        if topics is None:
            return None
        found |= topics
    return frozenset(found)


def same_subscription(one: bytes, other: bytes) -> bool:
    """Whether two subscriptions name the same topics; the same bytes, if they cannot be read.

    The partitions a sticky assignor adds to its subscription are ignored: a restarted consumer has lost them.
    """
    if one == other:
        return True
    topics = subscription_topics(one)
    return topics is not None and topics == subscription_topics(other)

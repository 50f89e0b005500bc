"""Which topics a consumer subscribes to, read from what it tells its group's leader.

Only the beginning of that message is read: a version and the topics, the same in every version. Groups that are not consumers'
(Connect's, say) speak of other things here; nothing is known of their topics.
"""

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def subscription_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of one subscription; None if these bytes are not one."""
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        at = 6
        topics = []
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, at)
            name = metadata[at + 2 : at + 2 + size]
            if size < 0 or len(name) < size:
                return None
            topics.append(name.decode())
            at += 2 + size
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics) if count >= 0 else None


def group_subscription_topics(protocol_type: str, metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members together; None if that cannot be known."""
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
    """Whether two subscriptions want the same: the same topics if they can be read, else the same bytes.

    What a sticky assignor remembers of its partitions is beside the point: a consumer that restarts has forgotten it.
    """
    if one == other:
        return True
    topics = subscription_topics(one)
    return topics is not None and topics == subscription_topics(other)

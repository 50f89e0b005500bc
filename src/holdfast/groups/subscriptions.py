"""Which topics the members of a group are subscribed to.

The one rule: however much its members sent, it is read in short turns of the event loop, each distinct metadata once, and nothing
of it is kept but the answer.
"""

from typing import Final
from weakref import WeakKeyDictionary

from holdfast.groups.group import Group
from holdfast.kafka.consumer_protocol import CONSUMER_PROTOCOL_TYPE, topic_batches
from holdfast.kafka.wire import MalformedRequestError
from holdfast.vocabulary.tasks import LoopTurns

_TURN_TOPICS_MAX: Final = 10_000  # a few milliseconds
_METADATA_COST: Final = 10  # topics that take as long to read as the beginning of a subscription

_Answer = tuple[int, frozenset[str], frozenset[str] | None]  # version of the group's metadata, asked for, subscribed


class Subscriptions:
    """The subscriptions of one shard's groups. An answer is kept until the group's metadata changes."""

    def __init__(self) -> None:
        self._turns = LoopTurns()
        self._answers: WeakKeyDictionary[Group, _Answer] = WeakKeyDictionary()

    async def among(self, group: Group, topics: frozenset[str]) -> frozenset[str] | None:
        """Those of `topics` that a member is subscribed to; None if that is not known, or changed meanwhile."""
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        version = group.shared.version
        known = self._answers.get(group)
        if known is not None and known[:2] == (version, topics):
            return known[2]
        try:
            found = await self._read(group, topics, version)
        except MalformedRequestError:
            found = None
        if group.shared.version != version:
            return None
        self._answers[group] = version, topics, found
        return found

    async def _read(self, group: Group, topics: frozenset[str], version: int) -> frozenset[str]:
        found: set[str] = set()
        read = 0
        for metadata in group.shared.distinct():
            read += _METADATA_COST
            for batch in topic_batches(metadata):
                found.update(topics.intersection(batch))
                read += len(batch)
                if read >= _TURN_TOPICS_MAX:
                    await self._turns.next()
                    read = 0
                if group.shared.version != version or found == topics:
                    return frozenset(found)
        return frozenset(found)

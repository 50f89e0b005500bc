"""A stream's position: the next offset of every partition, with the ids of the topics.

The one rule: an offset is meaningless without its topic's id: a recreated topic counts from 0 again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.vocabulary.errors import InvalidError

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """The next offset by partition, of the topic with this id."""

    id: str
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A position in some topics. Spark checkpoints its `json`."""

    topics: Mapping[str, TopicPosition] = field(default_factory=dict)

    def json(self, source_name: str = "") -> dict[str, Any]:
        """As in Spark's offset log; equal positions give equal text. `source_name` tells it from those of other sources."""
        topics = {
            name: {"id": each.id, "offsets": {str(number): each.offsets[number] for number in sorted(each.offsets)}}
            for name, each in sorted(self.topics.items())
        }
        return {"version": _VERSION, **({"name": source_name} if source_name else {}), "topics": topics}


def parse_position(written: Mapping[str, Any]) -> StreamPosition:
    """The position that `json` wrote."""
    if written.get("version") != _VERSION:
        raise InvalidError("checkpointed offset", dict(written), f"of version {_VERSION}, as this source writes it")
    return StreamPosition(
        {
            name: TopicPosition(each["id"], {int(number): int(at) for number, at in each["offsets"].items()})
            for name, each in written["topics"].items()
        }
    )

"""Which partition, and on which terms it is kept. Data only."""

from dataclasses import dataclass

from holdfast.vocabulary.settings import MIB, check_at_least, check_one_of

DURABILITY_LEVELS = ("local", "object")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionId:
    """Which partition: the topic's id and name, and the number."""

    topic: str
    topic_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionConfig:
    """What a topic's configuration means for one of its partitions.

    `level`: when an append counts as durable. `roll_*`: when what is durable is published. `unclean_takeover`: whether a
    partition whose last records are in somebody else's WAL may go on without them.
    """

    level: str = "local"
    unclean_takeover: bool = False
    roll_bytes: int = 8 * MIB
    roll_ms: int = 60_000

    def __post_init__(self) -> None:
        check_one_of("level", self.level, DURABILITY_LEVELS)
        check_at_least("roll_bytes", self.roll_bytes, 1)
        check_at_least("roll_ms", self.roll_ms, 1)

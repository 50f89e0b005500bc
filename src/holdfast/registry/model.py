"""The registry's values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition: who owns it, under which epoch, and the offset of the next message to process.

    `intent`: the range that was begun and not finished, as JSON (`intents`); it outlives its owner.
    """

    id: int
    owner: str | None = None
    epoch: int = 0
    checkpoint: int = 0
    intent: str | None = None


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """The topic whose offsets the checkpoints of a namespace are. Under the same name, another id is another topic."""

    topic: str
    topic_id: str
    """Empty: the source has no ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The heartbeat of one claim. It exists while the claim is alive; `version` is the claim's commit.

    `shared`: the session is the claimer's own and holds more than this claim; the registry does not end it.
    """

    epoch: int
    session: str
    ttl_ms: int
    version: int
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerInfo:
    """A registered consumer, live as long as `session`; `version` distinguishes one registration from the next."""

    id: str
    session: str
    ttl_ms: int
    registered_at_ms: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The right to process `partition` from `checkpoint` on, for as long as `epoch` is the partition's epoch.

    The epoch is captured here, once. No effect ever uses one read later: that would turn the fence into an owner check.
    """

    partition: int
    consumer: str
    epoch: int
    checkpoint: int
    ttl_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMove:
    """One step of a plan: a partition, seen at `epoch`, goes from `source` (None: nobody) to `target`."""

    partition: int
    epoch: int
    source: str | None
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message; partition and offset together are its identity."""

    partition: int
    offset: int
    key: str
    value: bytes
    produced_at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFailure:
    """A handler (or the source) raised. `gave_up`: that was the last attempt, the partition goes to another consumer."""

    consumer: str
    partition: int
    offset: int
    epoch: int
    attempt: int
    gave_up: bool
    error: BaseException

"""Values that several packages share. Data only: behaviour belongs to the package that owns it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets of a partition: from `start` to before `end`."""

    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def clamp(self, offset: int) -> int:
        """`offset`, or the nearer end of the range if it lies outside."""
        return min(max(offset, self.start), self.end)


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of a topic; `str()` is its label on the ring and in resource names."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A live agent or worker, as its peers see it. It is live as long as `session`, a session of the store.

    `peer_address`: where an agent takes the streams of others; "" for workers and for agents of a release that had none.
    `text_address`: where it serves the text protocol; "": nowhere.
    `process`: drawn when its process started, so that an agent with a new session is told from one that was started again.
    """

    id: str
    session: str
    address: str = ""
    zone: str = ""
    group: str = "default"
    node: int = 0
    started_at_ms: int = 0
    peer_address: str = ""
    wal_id: str = ""
    process: str = ""
    text_address: str = ""

"""Nouns that several floors share. Data only; behaviour lives with whoever owns it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of a topic; `str()` is its label on the ring and in resource names."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A live agent or worker, as its peers see it. `session` is the store session that vouches for it."""

    id: str
    session: str
    address: str = ""
    zone: str = ""
    group: str = "default"
    node: int = 0
    started_at_ms: int = 0

"""Durability levels: the topic each of them is tested with, and whether the server has it."""

from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.cimpl import NewTopic
from tests.support.server_process import admin
from tests.support.waiting import WAIT_S, until

NOT_ACCEPTED: Final = "durability=quorum is not accepted by this server yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How a topic of this level is made, and what it survives."""

    name: str
    replication_factor: int = -1
    config: dict[str, str] = field(default_factory=dict)
    survives_lost_disk: bool
    copies_needed: int = 1  # in sync, for a disk to be lost


LEVELS: Final = {
    level.name: level
    for level in (
        Level(name="local", survives_lost_disk=False),
        Level(name="object", config={"holdfast.durability": "object"}, survives_lost_disk=True),
        Level(
            name="quorum",
            replication_factor=3,
            config={"holdfast.durability": "quorum", "min.insync.replicas": "2"},
            survives_lost_disk=True,
            copies_needed=3,  # with two, a second disk that is lost leaves no majority of the set
        ),
    )
}


class UnsupportedLevelError(Exception):
    """The server refused a topic of this level."""


def create(bootstrap: str, topic: str, partitions: int, level: Level, **config: str) -> None:
    """Create the topic. `UnsupportedLevelError`: the server has no such level."""
    client = admin(bootstrap)
    wanted = NewTopic(topic, partitions, level.replication_factor, config={**level.config, **config})
    # Agents that have just started do not know each other yet.
    until(
        lambda: len(client.list_topics(timeout=WAIT_S).brokers) >= level.replication_factor, what="all are registered"
    )
    try:
        client.create_topics([wanted])[topic].result(WAIT_S)
    except KafkaException as refused:
        if level.name == "quorum":
            raise UnsupportedLevelError(f"{NOT_ACCEPTED}: {refused.args[0].str()}") from refused
        raise

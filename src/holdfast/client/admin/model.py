"""What `Admin` returns. Data only."""

from typing import NamedTuple

from holdfast.client.admin.topics import PartitionRow


class TopicDescription(NamedTuple):
    """A topic and its partitions."""

    name: str
    topic_id: str
    partitions: tuple[PartitionRow, ...]


class GroupListing(NamedTuple):
    """A group and its state: stable, empty, preparing, completing, dead or unknown."""

    name: str
    state: str


class GroupMember(NamedTuple):
    """A member of a group and the partitions it reads."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]


class GroupDescription(NamedTuple):
    """A group and its members."""

    name: str
    state: str
    protocol: str
    members: tuple[GroupMember, ...]


class BrokerInfo(NamedTuple):
    """A broker and where it listens."""

    id: int
    host: str
    port: int


class ClusterDescription(NamedTuple):
    """The cluster: its id, its brokers, and which of them is the controller."""

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerInfo, ...]

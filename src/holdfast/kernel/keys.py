"""The kernel's keys in the store. One page, so that a person with SQL or etcdctl finds everything.

    lease/holder/{resource}   {"holder", "epoch"}                under the holder's session: removed when it ends
    lease/epoch/{resource}    {"epoch"}                          never lower than before, also if it was deleted in between
    lease/epoch-floor         {"epoch"}                          the highest epoch that was ever deleted: new leases begin above it
    member/{kind}/{id}        {"id", "session", "address", …}    under the member's session
    seen/{kind}/{id}          {"id", …, "seen_at_ms"}            the last heartbeat, for listings only
    node/{id}                 {"node"}                           an agent's numeric id, until it is gone for good
    counter/node              {"next"}
    workload/{topic}          {"topic", "partitions", "group", "replicas", "rotates"}   what the planner places
    plan/{topic}              {"agents", "owners"}               who owns each partition, by index into agents
    suspect/{agent}/{observer}   {"session", …}                  an agent that looks dead to another, under that one's session
    early-end/{agent}         {"session", "ended_at_ms", …}      the last time an agent's session was ended before its TTL
    transfer/{resource}       {"state", "source", "target", "epoch", "since_ms"}   the latest transfer of a lease
    drain/{agent}             {"since_ms"}                       an operator's request: no work for this agent
    assignment/{topic}        {"partitions"}                     an operator's request: agents by partition number
    rotation/{resource}       {"target", …}                      a leader's request: who shall lead next; the rest is the log's

A resource is a path: `planner` for the planner's own lease, `partition/{workload}/{number:05d}` for what the planner places. The
workload of a log partition is its topic; every other kind of lease has one workload, `~{kind}`, which no topic can be called.
"""

from typing import Final, NewType

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.types import TopicPartition

HOLDERS: Final = "lease/holder/"
EPOCHS: Final = "lease/epoch/"
EPOCH_FLOOR: Final = "lease/epoch-floor"
MEMBERS: Final = "member/"
LAST_SEEN: Final = "seen/"
NODES: Final = "node/"
NODE_COUNTER: Final = "counter/node"
WORKLOADS: Final = "workload/"
PLANS: Final = "plan/"
TRANSFERS: Final = "transfer/"
DRAINS: Final = "drain/"
ASSIGNMENTS: Final = "assignment/"
ROTATIONS: Final = "rotation/"
SUSPICIONS: Final = "suspect/"
EARLY_ENDS: Final = "early-end/"
PLANNER: Final = "planner"
PLACED: Final = "partition/"  # resources that the planner places

LeaseKind = NewType("LeaseKind", str)
"""What a placed lease is about: an agent has a handler for each kind."""

LOG_PARTITION: Final = LeaseKind("partition")
_OTHER_KINDS: Final = f"{PLACED}~"


def holder_key(resource: str) -> str:
    """The holder of a lease."""
    return HOLDERS + resource


def epoch_key(resource: str) -> str:
    """The epoch of a lease."""
    return EPOCHS + resource


def member_key(kind: str, member_id: str) -> str:
    """A live member; `kind` is `agent` or `worker`."""
    return members_prefix(kind) + member_id


def members_prefix(kind: str) -> str:
    """All live members of a kind."""
    return f"{MEMBERS}{kind}/"


def last_seen_key(kind: str, member_id: str) -> str:
    """A member's last heartbeat."""
    return f"{LAST_SEEN}{kind}/{member_id}"


def workload_key(topic: str) -> str:
    """What the planner has to place for a topic."""
    return WORKLOADS + topic


def plan_key(topic: str) -> str:
    """The placements of a topic's partitions."""
    return PLANS + topic


def transfer_key(resource: str) -> str:
    """The latest transfer of a lease."""
    return TRANSFERS + resource


def drain_key(agent: str) -> str:
    """The request to drain an agent."""
    return DRAINS + agent


def assignment_key(topic: str) -> str:
    """The placements that operators want for a topic's partitions."""
    return ASSIGNMENTS + topic


def rotation_key(resource: str) -> str:
    """Who shall lead a partition next."""
    return ROTATIONS + resource


def suspicion_key(agent: str, observer: str) -> str:
    """What an agent saw of another that looks dead."""
    return f"{SUSPICIONS}{agent}/{observer}"


def early_end_key(agent: str) -> str:
    """The last early end of an agent's session."""
    return EARLY_ENDS + agent


def partition_resource(partition: TopicPartition) -> str:
    """The lease of a log partition."""
    return placed_resource(partition.topic, partition.number)


def placed_resource(workload: str, number: int) -> str:
    """The lease number `number` of a workload."""
    return f"{PLACED}{workload}/{number:05d}"


def kind_workload(kind: LeaseKind) -> str:
    """The workload of a kind other than log partitions."""
    return f"~{kind}"


def parse_placed_resource(resource: str) -> tuple[LeaseKind, str, int]:
    """Kind, workload and number of a placed lease."""
    workload, number = workload_of(resource)
    kind = LeaseKind(workload[1:]) if workload.startswith("~") else LOG_PARTITION
    return kind, workload, number


def workload_of(resource: str) -> tuple[str, int]:
    """Workload and number of a placed lease."""
    workload, _, number = resource.removeprefix(PLACED).rpartition("/")
    if not resource.startswith(PLACED) or not workload or not number.isdecimal():
        raise InvalidError("resource", resource, f"{PLACED}{{workload}}/{{number}}")
    return workload, int(number)


def is_log_partition(resource: str) -> bool:
    """Whether a placed lease is that of a log partition: `parse_placed_resource` for thousands at a time."""
    return not resource.startswith(_OTHER_KINDS)


def partition_from_resource(resource: str) -> TopicPartition:
    """The log partition whose lease this is."""
    kind, topic, number = parse_placed_resource(resource)
    if kind != LOG_PARTITION:
        raise InvalidError("resource", resource, "the lease of a log partition")
    return TopicPartition(topic, number)

"""The handshake of two agents: who they are, which version they use, what credit the accepting one grants. Pure.

The one rule: an agent is let in only as what the store says it is: a live member, with that WAL, of this cluster. So an unknown
peer cannot append, and neither can a process on an address that another agent had before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from holdfast.agent.peers.frames import MalformedFrameError
from holdfast.vocabulary.types import Member

HELLO_BYTES_MAX: Final = 4_096  # of any frame of the handshake: a stranger cannot make us hold more
NO_SESSION: Final = "has no session"  # how the refusal of an agent that starts or stops ends
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProtocolVersions:
    """The versions of the protocol that an agent speaks, both included."""

    oldest: int
    newest: int


VERSIONS: Final = ProtocolVersions(1, 3)
REPLICATION_VERSION: Final = 2  # from which on messages of replication are taken; before, none were
HEAP_VERSION: Final = 3  # from which on messages of spines are taken


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What the connecting agent says first. Unknown fields are ignored, so that later versions may add some."""

    version: int
    oldest: int = 0  # 0: `version` alone
    cluster: str
    agent: str
    wal_id: str


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The accepting agent's answer: the version to use, and what it is prepared to hold of this stream."""

    version: int
    cluster: str
    agent: str
    wal_id: str
    stream_credit_bytes: int
    partition_credit_bytes: int
    control_credit_bytes: int
    frame_bytes_max: int


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why the accepting agent closes the connection."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentity:
    """An agent as its peers know it: a replica is a WAL, so an agent with another WAL is another peer."""

    cluster: str
    agent: str
    wal_id: str


def choose_version(ours: ProtocolVersions, theirs: ProtocolVersions) -> int | None:
    """The newest version that both speak."""
    version = min(ours.newest, theirs.newest)
    return version if version >= max(ours.oldest, theirs.oldest) else None


def refusal_of(
    hello: Hello, us: PeerIdentity, member: Member | None, versions: ProtocolVersions = VERSIONS
) -> str | None:
    """Why a peer that says `hello` is not let in; None: it is. `member` is what the store says about that agent.

    The peer is told. It gets to know nothing that it would need to be let in: neither the cluster's id nor a WAL's.
    """
    if hello.cluster != us.cluster:
        return f"cluster {hello.cluster!r} is not this cluster"
    if choose_version(versions, versions_of(hello)) is None:
        theirs = versions_of(hello)
        return (
            f"versions {theirs.oldest} to {theirs.newest} are not supported: {versions.oldest} to {versions.newest} are"
        )
    if hello.agent == us.agent:
        return f"agent {hello.agent!r} is this agent"
    if member is None:
        return f"agent {hello.agent!r} is not a live member"
    if not hello.wal_id or member.wal_id != hello.wal_id:
        return f"agent {hello.agent!r} is not registered with WAL {hello.wal_id!r}"
    return None


def mismatch_of(welcome: Welcome, expected: PeerIdentity, versions: ProtocolVersions = VERSIONS) -> str | None:
    """Why what accepted our connection is not the peer we meant; None: it is."""
    found = PeerIdentity(cluster=welcome.cluster, agent=welcome.agent, wal_id=welcome.wal_id)
    if found != expected:
        return f"agent {found.agent!r} with WAL {found.wal_id!r} of cluster {found.cluster!r} listens there"
    if not versions.oldest <= welcome.version <= versions.newest:
        return f"version {welcome.version} was not offered"
    credit = min(welcome.stream_credit_bytes, welcome.partition_credit_bytes, welcome.control_credit_bytes)
    if min(credit, welcome.frame_bytes_max) < 1:
        return "it grants no credit"
    return None


def versions_of(hello: Hello) -> ProtocolVersions:
    """The versions a peer offers."""
    return ProtocolVersions(hello.oldest or hello.version, hello.version)


def encode_handshake(value: Hello | Welcome | Refusal) -> bytes:
    """The body of a handshake's frame."""
    return msgspec.json.encode(value)


def decode_handshake(body: memoryview, kind: type[T]) -> T:
    """The value in a handshake's frame."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise MalformedFrameError(f"{kind.__name__.lower()}: {error}") from None


MemberLookup = Callable[[str], Member | None]
"""The live agent of this id."""

"""What a node's member does next, until its program can start: pure.

The one rule: an empty disk never answers for a member that had data. Raft counts on what a voter has acknowledged; a voter that has
forgotten it can elect a leader without committed entries. So a node without data is a new member, and the old one goes first.
Learners neither vote nor count: one that was added and never started may begin with an empty disk.
"""

from dataclasses import dataclass

import msgspec

from holdfast.stores.etcd.members import EtcdPeer, MemberList


class EtcdMemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which member this node is. Written when it has started."""

    name: str
    cluster: int
    member: int


@dataclass(frozen=True, slots=True)
class EtcdBootstrap:
    """Begin a new cluster of one."""


@dataclass(frozen=True, slots=True)
class StartOwn:
    """Start on the data that are here."""


@dataclass(frozen=True, slots=True)
class StartAdded:
    """Start as the learner that was added, with these members."""

    members: tuple[EtcdPeer, ...]


@dataclass(frozen=True, slots=True)
class AddLearner:
    """Have the cluster add this node as a learner."""


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """Remove the member that this node was; only if nothing answers for it."""

    member: EtcdPeer


@dataclass(frozen=True, slots=True)
class SetAside:
    """Move the data of a removed member out of the way."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done yet."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """An operator has to decide."""

    message: str


Step = EtcdBootstrap | StartOwn | StartAdded | AddLearner | RemoveMember | SetAside | Wait | Refuse


def next_step(
    *,
    name: str,
    peer_url: str,
    has_data: bool,
    record: EtcdMemberRecord | None,
    joins: bool,
    found: MemberList | None,
    replace: bool,
) -> Step:
    """The next step. `found`: the members of the cluster to join, None if nobody answers."""
    if has_data:
        return _with_data(record, found, replace=replace)
    if not joins:
        if record is not None:
            return Refuse(
                f"this node was member {record.member:x} of etcd cluster {record.cluster:x}, and its etcd data are gone: "
                "join the cluster again with --join HOST:PORT --replace, or restore a backup (`holdfast store restore`)"
            )
        return EtcdBootstrap()
    if found is None:
        return Wait("no member answers at the addresses of --join")
    return _without_data(name, peer_url, found, replace=replace)


def _with_data(record: EtcdMemberRecord | None, found: MemberList | None, *, replace: bool) -> Step:
    if record is None or found is None:
        return StartOwn()
    if record.cluster != found.cluster:
        return Refuse(
            f"this node is a member of etcd cluster {record.cluster:x}, and --join names cluster {found.cluster:x}: "
            "give the right --join, or another --data"
        )
    if any(member.id == record.member for member in found.members):
        return StartOwn()
    if replace:
        return SetAside()
    return Refuse(
        f"member {record.name} ({record.member:x}) was removed from the cluster: start with --replace to join as a new member"
    )


def _without_data(name: str, peer_url: str, found: MemberList, *, replace: bool) -> Step:
    for member in found.members:
        if member.name == name:
            return _of_lost_disk(member, replace=replace)
        if peer_url in member.peer_urls and member.name:
            return Refuse(f"peer address {peer_url} is that of member {member.shown}: give another --etcd-peer")
        if peer_url in member.peer_urls:
            return StartAdded(found.members) if member.learner else _of_lost_disk(member, replace=replace)
    learner = next((member for member in found.members if member.learner), None)
    if learner is not None:
        return Wait(f"learner {learner.shown} at {', '.join(learner.peer_urls)} is not promoted yet")
    return AddLearner()


def _of_lost_disk(member: EtcdPeer, *, replace: bool) -> Step:
    if replace:
        return RemoveMember(member)
    return Refuse(
        f"the cluster has a member {member.shown} and its data are not here: a node that has lost them comes back as a new "
        "member only. Start with --replace, which removes the old one first; if that one still runs, give another --name"
    )

"""A group and its clock, without any I/O: calls are names, replies are looked up by name."""

from typing import Any

import pytest

from holdfast.groups.errors import GroupRefusal, GroupRefusedError
from holdfast.groups.group import Group, Reply
from holdfast.groups.model import (
    AssignmentProtocol,
    GroupState,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    SyncRequest,
    SyncResult,
)
from holdfast.groups.settings import GroupSettings
from holdfast.kafka.wire import INT16, encode_length, encode_string

SETTINGS = GroupSettings(initial_delay_ms=200)


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    """A ConsumerProtocolSubscription: version 0, topics, user data."""
    out = INT16.pack(0) + encode_length(len(topics), flexible=False)
    out += b"".join(encode_string(topic, flexible=False) for topic in topics)
    return out + encode_length(len(owned), flexible=False) + owned


def protocols(*names: str, topics: tuple[str, ...] = ("orders",), owned: bytes = b"") -> tuple[AssignmentProtocol, ...]:
    return tuple(AssignmentProtocol(name, subscription(*topics, owned=owned)) for name in names or ("range",))


def join_request(**changes: Any) -> JoinRequest:
    given: dict[str, Any] = {
        "client_id": "app",
        "client_host": "/here",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocols": protocols(),
    }
    return JoinRequest(**{**given, **changes})


class GroupHarness:
    """One group, driven step by step."""

    def __init__(self, **changes: Any) -> None:
        self.settings = GroupSettings(**{"initial_delay_ms": 200, **changes})
        self.group = Group("g", self.settings)
        self.now_ms = 1_000
        self.replies: dict[Any, Reply] = {}
        self.saving: list[int] = []  # changes that were asked to be saved and are not yet
        self._ids = 0

    def join(self, call: str, **changes: Any) -> None:
        self._ids += 1
        try:
            self.group.join(join_request(**changes), call, self.now_ms, new_id=f"{call}-{self._ids}")
        finally:
            self.settle()

    def sync(self, call: str, member_id: str, assignments: dict[str, bytes] | None = None, **changes: Any) -> None:
        given: dict[str, Any] = {"generation": self.group.generation, "assignments": assignments or {}}
        self.group.sync(SyncRequest(member_id=member_id, **{**given, **changes}), call, self.now_ms)
        self.settle()

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> None:
        at = self.group.generation if generation is None else generation
        self.group.heartbeat(member_id, at, instance_id, self.now_ms)

    def leave(self, member_id: str = "", instance_id: str | None = None) -> None:
        self.group.leave(LeaveRequest(member_id, instance_id), self.now_ms)
        self.settle()

    def save(self) -> None:
        """All changes are saved."""
        for change in self.saving:
            self.group.saved(change, self.now_ms)
            self.group.in_store = True
        self.saving = []
        self.settle()

    def advance(self, duration_ms: int, *, beating: tuple[str, ...] = ()) -> None:
        """Let time pass, with every deadline served when it comes; `beating` members send heartbeats meanwhile."""
        until_ms = self.now_ms + duration_ms
        while True:
            due_ms = self.group.next_deadline_ms()
            step_ms = min(until_ms, self.now_ms + 1_000, max(due_ms, self.now_ms) if due_ms is not None else until_ms)
            self.now_ms = step_ms
            for member_id in beating:
                if member_id in self.group.members:
                    self.group.members[member_id].touch(self.now_ms)
            self.group.tick(self.now_ms)
            self.settle()
            if self.now_ms >= until_ms:
                return

    def settle(self) -> None:
        if self.group.take_change():
            self.saving.append(self.group.changes)
        for ticket, reply in self.group.take_replies():
            assert ticket not in self.replies, "answered twice"
            self.replies[ticket] = reply

    def state(self) -> GroupState:
        return self.group.state

    def joined(self, call: str) -> JoinResult:
        reply = self.replies.pop(call)
        assert isinstance(reply, JoinResult), reply
        return reply

    def synced(self, call: str) -> SyncResult:
        reply = self.replies.pop(call)
        assert isinstance(reply, SyncResult), reply
        return reply

    def refusal(self, call: str) -> GroupRefusal:
        reply = self.replies.pop(call)
        assert isinstance(reply, GroupRefusedError), reply
        return reply.refusal

    def stable(self, *calls: str, **changes: Any) -> list[str]:
        """A stable group of these members; their ids, the leader's first."""
        for call in calls:
            self.join(call, **changes)
        self.advance(1_000)
        ids = {call: self.joined(call) for call in calls}
        leader = next(each for each in ids.values() if each.leader == each.member_id)
        self.sync("s", leader.member_id, {each.member_id: each.member_id.encode() for each in ids.values()})
        self.save()
        for each in ids.values():
            if each is not leader:
                self.sync(f"s{each.member_id}", each.member_id)
        assert self.group.state is GroupState.STABLE
        self.replies.clear()
        return sorted((each.member_id for each in ids.values()), key=lambda each: each != leader.member_id)


def refused_with(refusal: GroupRefusal) -> "pytest.RaisesExc[GroupRefusedError]":
    return pytest.raises(GroupRefusedError, check=lambda error: error.refusal is refusal)

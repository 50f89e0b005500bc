"""Errors of groups. Each refusal is one a client can act on; gateways map them in their own table."""

from dataclasses import dataclass
from enum import StrEnum

from holdfast.vocabulary.errors import HoldfastError


class GroupRefusal(StrEnum):
    """Why a request about a group was refused."""

    UNKNOWN_MEMBER = "the member is not in the group"
    ILLEGAL_GENERATION = "the generation is not the group's"
    REBALANCE_IN_PROGRESS = "the group is rebalancing: join again"
    INCONSISTENT_PROTOCOL = "no protocol is supported by all members"
    INVALID_GROUP_ID = "the group id is empty, too long or not valid text"
    INVALID_SESSION_TIMEOUT = "the session timeout is outside the allowed range"
    MEMBER_ID_REQUIRED = "join again with the assigned member id"
    GROUP_FULL = "the group is full"
    FENCED_INSTANCE = "another member has taken over this instance id"
    NOT_EMPTY = "the group has members"
    NOT_FOUND = "unknown group"
    SUBSCRIBED = "the group is subscribed to the topic"
    METADATA_TOO_LARGE = "the metadata of the offset is too long"
    TOO_LARGE = "the member is too large"


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A limit of groups, and what it would have had to allow."""

    setting: str
    limit: int
    needed: int

    def __str__(self) -> str:
        return f"{self.needed} exceeds groups.{self.setting} = {self.limit}"


class GroupRefusedError(HoldfastError):
    """The request was refused. `member_id`: the id to join with, for MEMBER_ID_REQUIRED. `limit`: the setting that refused it."""

    def __init__(
        self, group: str, refusal: GroupRefusal, member_id: str = "", limit: LimitReached | None = None
    ) -> None:
        super().__init__(group, refusal, member_id, limit)
        self.group, self.refusal, self.member_id, self.limit = group, refusal, member_id, limit

    def __str__(self) -> str:
        return f"group {self.group!r}: {self.refusal.value}{'' if self.limit is None else f': {self.limit}'}"


class NotCoordinatorError(HoldfastError):
    """This process does not coordinate the group. Look up its coordinator and retry there."""

    def __init__(self, group: str, shard: int) -> None:
        super().__init__(group, shard)
        self.group, self.shard = group, shard

    def __str__(self) -> str:
        return f"group {self.group!r} (shard {self.shard}) is not coordinated here"


class ShardLoadingError(HoldfastError):
    """This process is about to coordinate the group and still loads its state. Retry here."""

    def __init__(self, shard: int, reason: str = "") -> None:
        super().__init__(shard, reason)
        self.shard, self.reason = shard, reason

    def __str__(self) -> str:
        return f"group shard {self.shard} is loading{': ' if self.reason else ''}{self.reason}"

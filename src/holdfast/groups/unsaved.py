"""A budget of memory for the groups of a process that are not in the store.

Anybody may join groups under any names, so a client decides how many there are. The one rule: nobody keeps others out by joining
alone. New members are refused from half of the budget on, so that groups under way get into the store, and out of here. Before
that, groups that have not got there within `kept_ms` give way, the oldest first: consumers need a fraction of it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from sys import getsizeof
from typing import Final

from holdfast.groups.group import Group
from holdfast.vocabulary.errors import UnavailableError

_log: Final = logging.getLogger(__name__)

# As measured, with the entries in dictionaries and timers.
_GROUP_BYTES: Final = 1_024
_MEMBER_BYTES: Final = 1_024
_PENDING_MEMBER_BYTES: Final = 256


@dataclass(slots=True)
class _Unsaved:
    size_bytes: int
    since_ms: int
    evict: Callable[[str], None]


class UnsavedGroups:
    """The groups without a record or offsets, by id, the oldest first."""

    def __init__(self, bytes_max: int, kept_ms: int) -> None:
        self._bytes_max, self._kept_ms = bytes_max, kept_ms
        self._groups: dict[str, _Unsaved] = {}
        self._refusing = False  # since the last warning
        self.bytes_held = 0

    def check_room(self, group_id: str, now_ms: int, *, new_member: bool) -> None:
        """Raise `UnavailableError` if a member may not join this group, which is not in the store, now."""
        limit = self._bytes_max // 2 if new_member else self._bytes_max
        if self.bytes_held >= limit:
            self._evict(limit, group_id, now_ms)
        if self.bytes_held < limit:
            return
        if not self._refusing:
            _log.warning("%d groups are not in the store: new members are refused", len(self._groups))
            self._refusing = True
        reason = f"{self.bytes_held} bytes of groups that are not in the store reach the limit of {limit}"
        raise UnavailableError("group coordinator", reason)

    def put(self, group: Group, now_ms: int, evict: Callable[[str], None]) -> None:
        """Count a group, as it is now. `evict` drops it, unless it is about to be saved."""
        size_bytes = _size_bytes(group)
        known = self._groups.get(group.id)
        if known is None:
            self._groups[group.id] = _Unsaved(size_bytes, now_ms, evict)
            self.bytes_held += size_bytes
        else:
            self.bytes_held += size_bytes - known.size_bytes
            known.size_bytes = size_bytes

    def discard(self, group_id: str) -> None:
        """The group is in the store, or gone."""
        known = self._groups.pop(group_id, None)
        if known is not None:
            self.bytes_held -= known.size_bytes
        if self.bytes_held < self._bytes_max // 4:
            self._refusing = False

    def _evict(self, limit: int, joining: str, now_ms: int) -> None:
        before, held_before = len(self._groups), self.bytes_held
        for group_id, each in list(self._groups.items()):
            if self.bytes_held < limit or now_ms - each.since_ms < self._kept_ms:
                break
            if group_id != joining:
                each.evict(group_id)
        if self.bytes_held < held_before:
            _log.warning(
                "%d groups gave way to new ones: not in the store after %d ms",
                before - len(self._groups),
                self._kept_ms,
            )


def _size_bytes(group: Group) -> int:
    pending = sum(getsizeof(each) + _PENDING_MEMBER_BYTES for each in group.pending_members)
    members = sum(each.size_bytes + _MEMBER_BYTES for each in group.members.values())
    return _GROUP_BYTES + getsizeof(group.id) + pending + members

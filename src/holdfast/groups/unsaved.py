"""A budget of memory for the groups of a process that are not in the store.

Anybody may join groups under any names, so a client decides how many there are. The one rule: a member that was given its id has
room to join. New members are refused from half of the budget on, so that groups under way get into the store, and out of here.
"""

import logging
from sys import getsizeof
from typing import Final

from holdfast.groups.group import Group
from holdfast.vocabulary.errors import UnavailableError

_log: Final = logging.getLogger(__name__)

# As measured, with the entries in dictionaries and timers.
_GROUP_BYTES: Final = 1_024
_MEMBER_BYTES: Final = 1_024
_PENDING_MEMBER_BYTES: Final = 256


class UnsavedGroups:
    """The groups without a record or offsets, by id."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._sizes: dict[str, int] = {}
        self._refusing = False  # since the last warning
        self.bytes_held = 0

    def check_room(self, *, new_member: bool) -> None:
        """Raise `UnavailableError` if a member may not join such a group now."""
        limit = self._bytes_max // 2 if new_member else self._bytes_max
        if self.bytes_held < limit:
            return
        if not self._refusing:
            _log.warning("%d groups are not in the store: new members are refused", len(self._sizes))
            self._refusing = True
        reason = f"{self.bytes_held} bytes of groups that are not in the store reach the limit of {limit}"
        raise UnavailableError("group coordinator", reason)

    def put(self, group: Group) -> None:
        """Count a group, as it is now."""
        self.discard(group.id)
        size_bytes = self._sizes[group.id] = _size_bytes(group)
        self.bytes_held += size_bytes

    def discard(self, group_id: str) -> None:
        """The group is in the store, or gone."""
        self.bytes_held -= self._sizes.pop(group_id, 0)
        if self.bytes_held < self._bytes_max // 4:
            self._refusing = False


def _size_bytes(group: Group) -> int:
    pending = sum(getsizeof(each) + _PENDING_MEMBER_BYTES for each in group.pending_members)
    members = sum(each.size_bytes + _MEMBER_BYTES for each in group.members.values())
    return _GROUP_BYTES + getsizeof(group.id) + pending + members

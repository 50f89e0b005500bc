"""A budget of memory for what the members of all groups of a process sent: subscriptions and assignments.

The one rule: what a process coordinates already is never refused, only what would be added: new members, and members or assignments
that grow. Groups that are loaded from the store count as well, and may exceed the budget.
"""

from holdfast.groups.errors import GroupRefusal, GroupRefusedError, LimitReached


class GroupMemory:
    """What each group of a process holds."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._groups: dict[str, int] = {}
        self.bytes_held = 0

    def check_room(self, group_id: str, added_bytes: int) -> None:
        """Raise `GroupRefusedError` if a group may not hold so much more."""
        needed = self.bytes_held + added_bytes
        if needed > self._bytes_max:
            limit = LimitReached("memory_bytes_max", self._bytes_max, needed)
            raise GroupRefusedError(group_id, GroupRefusal.GROUP_FULL, limit=limit)

    def put(self, group_id: str, size_bytes: int) -> None:
        """Count a group, as it is now."""
        self.bytes_held += size_bytes - self._groups.pop(group_id, 0)
        if size_bytes:
            self._groups[group_id] = size_bytes

    def discard(self, group_id: str) -> None:
        """The group is gone."""
        self.put(group_id, 0)

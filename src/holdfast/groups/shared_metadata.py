"""The metadata of a group's members, each distinct one kept once: most subscriptions are alike, and a member's protocols share one.

The one rule: whatever a member of the group has was held here first, and is released when the member is gone or has other metadata.
"""

from collections import Counter
from collections.abc import Iterable

from holdfast.groups.model import AssignmentProtocol


class SharedMetadata:
    """Distinct metadata of one group. `size_bytes`: of all of it. `version` changes with what is held."""

    def __init__(self) -> None:
        self._held: dict[bytes, bytes] = {}
        self._uses: dict[bytes, int] = {}
        self.size_bytes = self.version = 0

    def hold(self, protocols: Iterable[AssignmentProtocol]) -> tuple[AssignmentProtocol, ...]:
        """The same protocols, their metadata as it is held."""
        return tuple(AssignmentProtocol(each.name, self._hold(each.metadata)) for each in protocols)

    def release(self, protocols: Iterable[AssignmentProtocol]) -> None:
        """A member no longer has these."""
        for _, metadata in protocols:
            self._uses[metadata] -= 1
            if not self._uses[metadata]:
                del self._uses[metadata], self._held[metadata]
                self.size_bytes -= len(metadata)
                self.version += 1

    def growth_bytes(
        self, protocols: Iterable[AssignmentProtocol], instead_of: Iterable[AssignmentProtocol] = ()
    ) -> int:
        """What holding these would add, instead of what a member has."""
        wanted = {each.metadata for each in protocols}
        uses = Counter(each.metadata for each in instead_of)
        freed = (each for each, count in uses.items() if each not in wanted and self._uses[each] == count)
        return sum(map(len, wanted - self._held.keys())) - sum(map(len, freed))

    def distinct(self) -> list[bytes]:
        """Each metadata once."""
        return list(self._held)

    def _hold(self, metadata: bytes) -> bytes:
        held = self._held.setdefault(metadata, metadata)
        uses = self._uses.get(held, 0)
        self._uses[held] = uses + 1
        if not uses:
            self.size_bytes += len(held)
            self.version += 1
        return held

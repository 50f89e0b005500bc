"""When an agent may raise the epoch of a lease that it has: at once, then after pauses that double while epochs end soon.

A transfer is of one epoch, so that each new one makes it begin again: a disk that is full ends epoch after epoch, and must not keep
the partition from the agent that could serve it.
"""

from collections.abc import Container
from typing import Final

_PAUSES_MAX: Final = 16  # times the first pause
_LASTED: Final = 4  # pauses that an epoch has to last for the next one to be taken at once again


class EpochPauses:
    """Of the leases of one session."""

    def __init__(self, pause_ms: float) -> None:
        self._pause_ms = pause_ms
        self._taken: dict[str, tuple[float, float]] = {}  # by resource: when, and the pause after it

    def take(self, resource: str, now_ms: float) -> bool:
        """Whether a new epoch may be taken now; then it counts as taken."""
        taken_ms, pause_ms = self._taken.get(resource, (now_ms - _LASTED * self._pause_ms, self._pause_ms))
        since_ms = now_ms - taken_ms
        if since_ms < pause_ms:
            return False
        longer = since_ms < _LASTED * pause_ms
        following_ms = min(2 * pause_ms, _PAUSES_MAX * self._pause_ms) if longer else self._pause_ms
        self._taken[resource] = now_ms, following_ms
        return True

    def forget(self, resource: str) -> None:
        """There is a reason for the next one: it is taken at once."""
        self._taken.pop(resource, None)

    def sweep(self, leases: Container[str]) -> None:
        """Forget those that are not ours any more."""
        self._taken = {resource: taken for resource, taken in self._taken.items() if resource in leases}

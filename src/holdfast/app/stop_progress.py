"""What a graceful stop waits for: each part of a server says so when its turn comes. It is for the log alone."""

from collections.abc import Callable


class StopProgress:
    """The part of a server that is being stopped."""

    def __init__(self) -> None:
        self._waits_for: Callable[[], str] = lambda: "its gateways"

    @property
    def waits_for(self) -> str:
        """What is waited for now."""
        return self._waits_for() or "its parts to end"

    def stage(self, waits_for: str) -> None:
        """From now on this is waited for."""
        self._waits_for = lambda: waits_for

    def follow(self, waits_for: Callable[[], str]) -> None:
        """From now on a part is waited for that has stages of its own."""
        self._waits_for = waits_for

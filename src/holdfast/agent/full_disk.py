"""An agent whose disk is full asks to be drained: others lead what they can, until it has space again.

The rules: what it asks for ends with its session, and it withdraws nothing but that. It waits before both, so that a disk that is
full for a moment, or has space for one, moves nothing. An agent alone goes on as it is: nobody else could serve anything.
"""

import logging
from collections.abc import Callable
from typing import Final

from holdfast.contracts.store import Store
from holdfast.kernel.placement_requests import asked_drain, drain_until_session_ends, withdraw_drain
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

_LOOKS: Final = 10  # while it waits
_BACK_FACTOR: Final = 3  # space has to be there for so many times the wait


class FullDiskWatch:
    """Of one agent. `is_full`: whether its disk is, now. `is_leaving`: then it is drained anyway, and nothing is withdrawn."""

    def __init__(
        self,
        agent: str,
        *,
        is_full: Callable[[], bool],
        is_leaving: Callable[[], bool],
        wait_ms: int,
        store: Store,
        clock: Clock,
        random: Random,
    ) -> None:
        self._agent, self._is_full, self._is_leaving, self._wait_ms = agent, is_full, is_leaving, wait_ms
        self._store, self._clock, self._random = store, clock, random
        self._may_have_asked = False  # the outcome is unknown

    async def run(self, session: str) -> None:
        """Until cancelled, under this session."""
        asked: int | None = None
        self._may_have_asked = False
        since_ms = self._clock.boot_ms()  # when it was last otherwise
        while True:
            now_ms, full = self._clock.boot_ms(), self._is_full()
            if self._may_have_asked and not full:
                asked = await self._found(session)
            if full == (asked is not None):
                since_ms = now_ms
            elif full and now_ms - since_ms >= self._wait_ms:
                asked = await self._ask(session)
                since_ms = self._clock.boot_ms()
            elif asked is not None and now_ms - since_ms >= _BACK_FACTOR * self._wait_ms and not self._is_leaving():
                if await self._withdraw(asked):
                    asked = None
                since_ms = self._clock.boot_ms()
            await self._clock.sleep_ms(max(1, self._wait_ms / _LOOKS))

    async def _ask(self, session: str) -> int | None:
        try:
            asked = await drain_until_session_ends(
                self._store, self._agent, session=session, clock=self._clock, random=self._random
            )
        except (UnavailableError, OutcomeUnknownError):
            self._may_have_asked = True
            return None  # asked again, or looked for
        self._may_have_asked = False
        if asked is not None:
            _log.warning("agent %s asks to be drained: its disk has been full for %d ms", self._agent, self._wait_ms)
        return asked

    async def _found(self, session: str) -> int | None:
        """What was asked for although the answer was lost."""
        try:
            asked = await asked_drain(self._store, self._agent, session=session)
        except UnavailableError:
            return None
        self._may_have_asked = False
        return asked

    async def _withdraw(self, asked: int) -> bool:
        try:
            await withdraw_drain(self._store, self._agent, asked, clock=self._clock, random=self._random)
        except (UnavailableError, OutcomeUnknownError):
            return False
        _log.info("agent %s takes work again: its disk has space", self._agent)
        return True

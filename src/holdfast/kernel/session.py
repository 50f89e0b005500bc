"""A held session: keep-alives in the background, and a local deadline that ends before the store's does.

Duties of its holder, in order: check `alive()` right before acting on what the session holds, and again after a slow step, before
acknowledging it; call `report_progress()` from the loop that does the work; stop everything when the body is cancelled.

Only the end of the session ends what runs under it: `keep_running` begins again what a store that is away has ended.

The deadline is hygiene, not safety (docs/safety.md, rule 5): it counts from the *send* of the last answered keep-alive, on a clock
that runs through suspend, with the TTL the store granted, less a margin. Safety comes from fenced effects.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from holdfast.contracts.store import Store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, FencedError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_at_least, check_between
from holdfast.vocabulary.tasks import background_tasks, leaf_errors, raise_if_cancelled

_log: Final = logging.getLogger(__name__)

_RESTART_MS: Final = 500
_SURVIVED: Final = (UnavailableError, OutcomeUnknownError, FencedError)  # of one resource, never of the session


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How long a session lives without a keep-alive, and how often one is sent."""

    ttl_ms: int = 30_000
    renew_ms: int = 10_000
    margin_ms: int = 3_000
    stall_ms: int = 20_000  # no `report_progress()` for so long: no more keep-alives; 0: no check
    retry_ms: int = 500

    def __post_init__(self) -> None:
        check_at_least("ttl_ms", self.ttl_ms, 100)
        check_between("renew_ms", self.renew_ms, 1, self.ttl_ms / 2)
        check_between("margin_ms", self.margin_ms, 0, self.ttl_ms / 2)
        check_at_least("stall_ms", self.stall_ms, 0)
        check_at_least("retry_ms", self.retry_ms, 1)


class HeldSession:
    """A session this process keeps alive. Made by `hold_session`."""

    def __init__(
        self, session_id: str, ttl_ms: int, *, opened_ms: int, clock: Clock, settings: SessionSettings
    ) -> None:
        self.id, self.ttl_ms = session_id, ttl_ms
        self._clock, self._settings = clock, settings
        self._progress_ms = self._renewed_ms = opened_ms
        self.deadline_ms = opened_ms + ttl_ms - settings.margin_ms

    def alive(self) -> bool:
        """Whether the store still has this session for certain. False is final."""
        return self._clock.boot_ms() < self.deadline_ms

    def expiry_error(self) -> ExpiredError | None:
        """The error `check` raises, if it would."""
        if self._clock.boot_ms() < self.deadline_ms:  # `alive`, which each append asks more than once
            return None
        return ExpiredError(f"session {self.id}", "its local deadline has passed")

    def check(self) -> None:
        """Raise unless alive."""
        if (error := self.expiry_error()) is not None:
            raise error

    def report_progress(self) -> None:
        """The working loop is not hung. Called by that loop, never by a timer."""
        self._progress_ms = self._clock.boot_ms()

    @property
    def progress_interval_ms(self) -> int:
        """How often the working loop should call `report_progress()`: well within `stall_ms`."""
        return self._settings.stall_ms // 3 or self.ttl_ms

    def stalled(self) -> bool:
        """Whether the working loop has not reported progress for too long: no keep-alive is sent then."""
        stall_ms = self._settings.stall_ms
        return 0 < stall_ms <= self._clock.boot_ms() - self._progress_ms

    def recently_renewed(self) -> bool:
        """Whether the store has answered the last keep-alive that was due."""
        return self.alive() and self._clock.boot_ms() - self._renewed_ms < 2 * self._settings.renew_ms

    def renewed(self, sent_ms: int) -> None:
        """A keep-alive sent at `sent_ms` was answered. Never brings a session back whose deadline has passed."""
        if self.alive():
            self._renewed_ms = max(self._renewed_ms, sent_ms)
            self.deadline_ms = max(self.deadline_ms, sent_ms + self.ttl_ms - self._settings.margin_ms)


@asynccontextmanager
async def hold_session(
    store: Store, *, clock: Clock, random: Random, settings: SessionSettings
) -> AsyncIterator[HeldSession]:
    """Hold a session for the body. Losing it cancels the body and raises `ExpiredError`; leaving closes it."""
    sent_ms = clock.boot_ms()
    opened = await store.open_session(settings.ttl_ms)
    session = HeldSession(opened.id, opened.ttl_ms, opened_ms=sent_ms, clock=clock, settings=settings)
    try:
        async with background_tasks(
            _keep_alive(store, session, clock, random, settings), _stop_at_deadline(session, clock)
        ):
            yield session
    finally:
        session.deadline_ms = 0
        with suppress(HoldfastError):  # otherwise it expires
            await store.close_session(session.id)


async def _keep_alive(
    store: Store, session: HeldSession, clock: Clock, random: Random, settings: SessionSettings
) -> None:
    pause_ms: float = settings.renew_ms
    while True:
        await clock.sleep_ms(random.jitter(pause_ms, share=0.1))
        if session.stalled():
            pause_ms = settings.retry_ms
            continue
        sent_ms = clock.boot_ms()
        try:
            alive = await store.keep_alive(session.id)
        except (UnavailableError, OutcomeUnknownError):
            pause_ms = settings.retry_ms
            continue
        if not alive:
            session.deadline_ms = 0
            raise ExpiredError(f"session {session.id}", "the store has ended it")
        session.renewed(sent_ms)
        pause_ms = settings.renew_ms


async def _stop_at_deadline(session: HeldSession, clock: Clock) -> None:
    """Stop the body in time even if no keep-alive is ever answered."""
    while session.alive():
        await clock.sleep_ms(session.deadline_ms - clock.boot_ms())
    session.check()


async def keep_running(
    work: Callable[[], Awaitable[None]], what: str, *, session: HeldSession, clock: Clock, random: Random
) -> None:
    """Run `work`, which never returns, for as long as the session lives: a store that is away ends nothing.

    What a store that does not answer, or one lost lease, has ended is begun again after a pause (docs/safety.md, rule 21).
    """
    logged = ""
    while True:
        try:
            return await work()
        except (HoldfastError, BaseExceptionGroup) as error:
            raise_if_cancelled()
            leaves = list(leaf_errors(error))
            if not all(isinstance(each, _SURVIVED) for each in leaves):
                raise
            session.check()
            reason = "; ".join(dict.fromkeys(map(str, leaves)))
            if reason != logged:
                _log.warning("%s failed, retrying: %s", what, reason)
                logged = reason
        await clock.sleep_ms(random.jitter(_RESTART_MS))

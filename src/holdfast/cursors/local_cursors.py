"""The cursors one process owns, session after session. Implements `agent.lease_handlers.LeaseHandlerFactory`."""

from collections.abc import Callable, Collection

from holdfast.contracts.store import Store
from holdfast.cursors.keys import CURSOR_SHARD
from holdfast.cursors.lease_handler import CursorLeaseHandler
from holdfast.cursors.service import CursorService
from holdfast.kernel.session import HeldSession
from holdfast.kernel.shard_count import ensure_shards
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random


class LocalCursors:
    """Gives `service` a handler for as long as there is a session. `placed`: whether this agent has the shards placed."""

    def __init__(
        self,
        service: CursorService,
        *,
        store: Store,
        clock: Clock,
        random: Random,
        topic_exists: Callable[[str], bool],
        placed: bool,
    ) -> None:
        self.service = service
        self._store, self._clock, self._random = store, clock, random
        self._topic_exists, self._placed = topic_exists, placed
        self._handler: CursorLeaseHandler | None = None

    async def prepare(self) -> None:
        """Nothing to do: positions are in the store."""

    async def start(self, session: HeldSession) -> CursorLeaseHandler:
        """Serve the shards that come; where text is served, have them placed."""
        settings = self.service.settings
        if self._placed:
            await ensure_shards(self._store, CURSOR_SHARD, settings.shards, clock=self._clock, random=self._random)
        self._handler = self.service.leading = CursorLeaseHandler(
            store=self._store,
            session=session,
            clock=self._clock,
            random=self._random,
            settings=settings,
            counters=self.service.counters,
            topic_exists=self._topic_exists,
        )
        return self._handler

    def stop(self) -> None:
        """Own nothing."""
        self._handler = self.service.leading = None

    def topics_changed(self, names: Collection[str]) -> None:
        """Cursors of deleted topics are removed soon."""
        if self._handler is not None:
            self._handler.topics_changed(names)

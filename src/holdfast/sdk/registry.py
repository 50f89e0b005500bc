"""Registry: a registry of partitions bound to a connection, with the makers of its consumers and coordinators."""

from collections.abc import Callable

from holdfast.contracts.store import Store
from holdfast.registry import (
    ConsumerCoordinator,
    ConsumerEngine,
    DeliveryFailure,
    EngineSettings,
    Handler,
    MessageSource,
    RegistrySettings,
    RegistryStore,
)
from holdfast.vocabulary.runtime import Runtime


class Registry(RegistryStore):
    """Numbered partitions shared by consumers, each with one owner at a time and a fenced checkpoint. Made by `Holdfast.registry`.

    Call `initialize()` once per program, then run a `consumer` and, in at least one process, a `coordinator`.
    """

    def __init__(self, store: Store, *, settings: RegistrySettings, runtime: Runtime) -> None:
        super().__init__(store, clock=runtime.clock, random=runtime.random, settings=settings)
        self._runtime = runtime

    def consumer(
        self,
        name: str,
        *,
        source: MessageSource,
        handler: Handler,
        settings: EngineSettings | None = None,
        on_failure: Callable[[DeliveryFailure], None] | None = None,
    ) -> ConsumerEngine:
        """A consumer called `name`: run it with `async with consumer.following():`."""
        return ConsumerEngine(
            self,
            name,
            source=source,
            handler=handler,
            clock=self._runtime.clock,
            random=self._runtime.random,
            settings=settings,
            on_failure=on_failure,
        )

    def coordinator(self) -> ConsumerCoordinator:
        """A coordinator that shares the partitions out: run it with `async with coordinator.running():`."""
        return ConsumerCoordinator(self, clock=self._runtime.clock, random=self._runtime.random)

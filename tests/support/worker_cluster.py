"""Several workers in one process: on the memory store under a fake clock, or on a real engine under the real one."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec
from tests.support.in_process_driver import DriverStage, InProcessDriver
from tests.support.waiting import evaluate

from holdfast.contracts.store import Put, Store
from holdfast.log.topics import Topics
from holdfast.pipeline.catalog.keys import pipeline_key, revision_key
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.catalog.stored_parts import pipeline_value, revision_value
from holdfast.pipeline.catalog.worker_status import (
    SlotStatus,
    WorkerRecord,
    list_assignments,
    list_statuses,
    list_workers,
)
from holdfast.pipeline.model.column_mapping import Mapping
from holdfast.pipeline.model.definition import (
    ClickHouseConfig,
    Generation,
    KafkaConfig,
    Pipeline,
    PipelineState,
    Revision,
    registry_namespace,
)
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.pipeline.workers.worker import PipelineWorker, WorkerIdentity, running_worker
from holdfast.registry import RegistrySettings, RegistryStore, RegistryView
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import Clock, FakeClock
from holdfast.vocabulary.random import Random


class RunningWorker:
    """One worker of the world: a task that can be stopped gracefully, cut off from the store, or crash."""

    def __init__(self, world: "WorkerCluster", name: str, settings: WorkerSettings, store: Store) -> None:
        self.world, self.name, self.settings = world, name, settings
        self.store = FaultyStore(store, random=world.random)
        self.stage = DriverStage(world.clock)
        self.worker: PipelineWorker | None = None
        self._leave = asyncio.Event()
        self.task = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        identity = WorkerIdentity(id=self.name, host="here", pid=1, version="0")
        async with running_worker(
            self.store,
            identity=identity,
            start_driver=self.stage.start_driver,
            settings=self.settings,
            clock=self.world.clock,
            random=self.world.random,
        ) as worker:
            self.worker = worker
            await self._leave.wait()

    @property
    def driver(self) -> InProcessDriver:
        assert self.stage.driver is not None
        return self.stage.driver

    def leave(self) -> None:
        """Stop gracefully."""
        self._leave.set()

    def crash(self) -> None:
        """Cut off from the store for good and gone, driver and all: what it held stays until its session ends."""
        self.store.reachable = False
        if self.stage.driver is not None:
            self.stage.driver.die("its worker crashed")
        self.task.cancel()
        del self.world.hired[self.name]
        self.world.crashed.append(self)


class WorkerCluster:
    """A store, its pipelines, and workers."""

    def __init__(self, store: Store, clock: Clock, random: Random) -> None:
        self.store, self.clock, self.random = store, clock, random
        self.topics = Topics(store, clock=clock, random=random)
        self.catalog = PipelineStore(store, clock=clock, random=random)
        self.hired: dict[str, RunningWorker] = {}
        self.crashed: list[RunningWorker] = []
        self.settings = WorkerSettings()
        self.new_client: Callable[[], Awaitable[Store]]

    def hire(self, *names: str, **settings: object) -> list[RunningWorker]:

        for name in names:
            changed = replace(self.settings, **settings)  # type: ignore[arg-type]
            self.hired[name] = RunningWorker(self, name, changed, self.store)
        return [self.hired[name] for name in names]

    async def hire_apart(self, *names: str) -> None:
        """Workers with a client of the store each."""
        for name in names:
            self.hired[name] = RunningWorker(self, name, self.settings, await self.new_client())

    async def dismiss(self) -> None:
        """Cancel everybody, and see them go."""
        everybody = [*self.hired.values(), *self.crashed]
        for hired in everybody:
            hired.task.cancel()
        for _ in range(600):
            if all(hired.task.done() for hired in everybody):
                break
            if isinstance(self.clock, FakeClock):
                await self.clock.run_for_ms(100)
            else:
                await self.clock.sleep_ms(100)
        stuck = [hired.name for hired in everybody if not hired.task.done()]
        assert not stuck, f"{stuck} did not end within a minute of being cancelled"
        await asyncio.gather(*(hired.task for hired in everybody), return_exceptions=True)

    async def pipeline(
        self,
        pipeline_id: str,
        *,
        partitions: int = 4,
        replicas: int = 1,
        desired: str = "started",
        generations: tuple[Generation, ...] = (Generation(number=1),),
        topic: bool = True,
        name: str = "",
        engine: str = "fast",
        brokers: tuple[str, ...] = (),
    ) -> None:
        if topic:
            await self.topics.create(f"topic-{pipeline_id}", partitions)
        revision = Revision(
            version=1,
            source=KafkaConfig(topic=f"topic-{pipeline_id}", brokers=brokers),
            sink=ClickHouseConfig(table="t"),
            mapping=Mapping(columns=()),
        )
        stored = Pipeline(
            id=pipeline_id,
            name=name or pipeline_id,
            revision=1,
            problems=(),
            state=PipelineState(desired=desired, replicas=replicas),  # type: ignore[arg-type]
            generations=generations,
            engine=engine,
        )
        await self.store.commit(
            apply=[
                Put(pipeline_key(pipeline_id), pipeline_value(stored)),
                Put(revision_key(pipeline_id, 1), revision_value(revision, 0)),
            ]
        )

    async def edit(self, pipeline_id: str, **changes: object) -> None:
        """Change the stored pipeline as its catalog would, without the parts a revision is made of."""
        pipeline = await self.catalog.get(pipeline_id)
        value = pipeline_value(msgspec.structs.replace(pipeline, **changes))
        await self.store.commit(apply=[Put(pipeline_key(pipeline_id), value)])

    def registry(self, pipeline_id: str, generation: int = 1, partitions: int = 4) -> RegistryStore:
        settings = RegistrySettings(namespace=registry_namespace(pipeline_id, generation), partitions=partitions)
        return RegistryStore(self.store, clock=self.clock, random=self.random, settings=settings)

    async def view(self, pipeline_id: str, generation: int = 1) -> RegistryView:
        return await self.registry(pipeline_id, generation).snapshot()

    async def owners(self, pipeline_id: str, generation: int = 1) -> dict[int, str | None]:
        """Partition → slot, of living claims."""
        view = await self.view(pipeline_id, generation)
        return {
            number: None if state.owner is None or number not in view.heartbeats else state.owner.rpartition(".")[2]
            for number, state in view.partitions.items()
        }

    async def epochs(self, pipeline_id: str, generation: int = 1) -> dict[int, int]:
        return {number: state.epoch for number, state in (await self.view(pipeline_id, generation)).partitions.items()}

    async def all_owned(self, pipeline_id: str, generation: int = 1) -> bool:
        owners = await self.owners(pipeline_id, generation)
        return bool(owners) and None not in owners.values()

    async def holders(self, pipeline_id: str) -> dict[int, str]:
        return {each.slot: each.worker_id for each in await list_assignments(self.store, pipeline_id)}

    async def statuses(self, pipeline_id: str = "") -> dict[str, SlotStatus]:
        return {each.slot: each for each in await list_statuses(self.store, pipeline_id)}

    async def workers(self) -> dict[str, WorkerRecord]:
        return {each.id: each for each in await list_workers(self.store)}

    def acting(self) -> dict[tuple[str, str], list[tuple[str, int]]]:
        """Who may act on which partition now, and under which epoch."""
        found: dict[tuple[str, str], list[tuple[str, int]]] = {}
        for hired in self.hired.values():
            if hired.stage.driver is not None:
                for piece, epoch in hired.stage.driver.acts_on().items():
                    found.setdefault(piece, []).append((hired.name, epoch))
        return found

    def check(self) -> None:
        """Nobody acts beside another."""
        for piece, actors in self.acting().items():
            assert len(actors) == 1, f"{piece} is acted on by {actors}"

    async def run_ms(self, duration_ms: int) -> None:
        for _ in range(max(1, duration_ms // 100)):
            if isinstance(self.clock, FakeClock):
                await self.clock.run_for_ms(100)
            else:
                await self.clock.sleep_ms(100)
            self.check()
            for hired in self.hired.values():
                if hired.task.done():
                    hired.task.result()

    async def run_until(self, condition: Callable[[], object], *, within_ms: int = 120_000) -> None:
        """Let time pass, with `check` at each step, until the condition holds; it may be async. Fails if it never does."""
        for _ in range(within_ms // 100):
            if await evaluate(condition):
                return
            await self.run_ms(100)
        raise AssertionError("the condition did not come true in time")

"""One worker's slots, runs and claims, brought in line with what is wanted: a pass at a time, each step safe to die after.

The one rule: nothing is given away before it is let go. A slot that leaves first halts its runs, a halted run first releases its
partitions, and only then is the slot's lease released; a process that dies in between leaves leases and claims that end with its
session, and intents that outlive both.
"""

import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.contracts.store import Session
from holdfast.kernel.session import HeldSession
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.catalog.worker_status import WorkerRecord, run_name
from holdfast.pipeline.model.definition import Generation, Pipeline, active_generations
from holdfast.pipeline.model.driver_protocol import (
    DriverReady,
    FromDriver,
    PartitionsReleased,
    SlotFailed,
    SlotFinished,
    SlotHalted,
    SlotProgress,
)
from holdfast.pipeline.workers.cluster_view import ClusterView
from holdfast.pipeline.workers.desired_slots import DesiredSlots, PartitionCounts
from holdfast.pipeline.workers.driver_supervisor import DriverSupervisor
from holdfast.pipeline.workers.generation_registry import GenerationRegistry, NewRegistry
from holdfast.pipeline.workers.held_slots import HeldSlots
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.pipeline.workers.slot_assignment import SlotId
from holdfast.pipeline.workers.slot_run import SlotRun
from holdfast.pipeline.workers.status_publisher import StatusPublisher
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, InvalidError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify

_log: Final = logging.getLogger(__name__)
_HALT_GRACE_MS: Final = 5_000  # for the driver to say so


class Reconciler:
    """What one worker does under one session. `about`: what of its record does not change."""

    def __init__(
        self,
        *,
        about: WorkerRecord,
        session: HeldSession,
        outlook: ClusterView,
        slots: HeldSlots,
        keeper: DriverSupervisor,
        counts: PartitionCounts,
        catalog: PipelineStore,
        publisher: StatusPublisher,
        new_registry: NewRegistry,
        settings: WorkerSettings,
        notify: Notify,
        clock: Clock,
        random: Random,
    ) -> None:
        self._about, self._session, self._outlook = about, session, outlook
        self.slots, self._keeper, self._counts = slots, keeper, counts
        self._catalog, self._publisher, self._new_registry = catalog, publisher, new_registry
        self._settings, self._notify, self._clock, self._random = settings, notify, clock, random
        self.runs: dict[str, SlotRun] = {}
        self._registries: dict[str, GenerationRegistry] = {}
        self._wanted = DesiredSlots()
        self.stopping = False

    # --- a pass

    async def reconcile(self) -> None:
        """Bring what is here nearer to what is wanted. Raises what a store raises; the next pass goes on from there."""
        started = {} if self.stopping else self._outlook.started()
        self._wanted = await self._counts.wanted(started)
        await self.slots.place(self._wanted.slots, able=not self._keeper.trouble)
        self._line_up(started)
        await self._let_go()
        # A driver that died is tried again even if its slots are with others: a worker that is not able gets none.
        self._keeper.want(self.slots.expecting or (bool(started) and bool(self._keeper.trouble)))
        self._begin(started)
        await self._share(started)
        await self._retire(started)
        await self._publish()

    def _line_up(self, started: Mapping[str, Pipeline]) -> None:
        """A run for every slot that stays and every generation; a halt for every other run."""
        wanted: set[str] = set()
        for slot in self.slots.staying:
            pipeline = started.get(slot.pipeline_id)
            for generation in active_generations(pipeline) if pipeline is not None else ():
                name = run_name(slot.pipeline_id, generation.number, self.slots.label(slot))
                wanted.add(name)
                if name not in self.runs:
                    self.runs[name] = self._new_run(slot, generation)
        for name, run in self.runs.items():
            if name not in wanted:
                self._halt(run)

    def _new_run(self, slot: SlotId, generation: Generation) -> SlotRun:
        return SlotRun(
            slot=slot,
            label=self.slots.label(slot),
            generation=generation.number,
            worker_id=self._about.id,
            lease=self.slots.held[slot],
            since_ms=self._clock.now_ms(),
        )

    def _halt(self, run: SlotRun) -> None:
        said = run.halt(self._clock.boot_ms(), within_ms=self._settings.halt_ms, grace_ms=_HALT_GRACE_MS)
        if said is not None:
            self._keeper.say(said)

    async def _let_go(self) -> None:
        """Release partitions nothing is under way for, then runs without partitions, then slots without runs."""
        for run in list(self.runs.values()):
            if run.releasable:
                await self._release(run)
            if run.halted and not run.releasable:
                await self._publisher.forget(run)
                del self.runs[run.name]
        in_use = {run.namespace for run in self.runs.values()}
        for namespace in [each for each in self._registries if each not in in_use]:
            await self._registries.pop(namespace).close()
        await self.slots.release(busy=[run.slot for run in self.runs.values()])

    async def _release(self, run: SlotRun) -> None:
        try:
            await self._registries[run.namespace].release(run)
        except (CorruptError, InvalidError) as error:
            _log.error("what slot %s owns ends with the session: %s", run.name, error)
            run.releasable.clear()

    def _begin(self, started: Mapping[str, Pipeline]) -> None:
        """Tell the driver of runs it does not know, once it is ready."""
        now_ms = self._clock.boot_ms()
        for run in self.runs.values():
            pipeline = started.get(run.slot.pipeline_id)
            counted = (run.slot.pipeline_id, run.generation) in self._wanted.partitions
            run.blocked = "" if counted else self._wanted.blocked.get(run.slot.pipeline_id, "")
            if self._keeper.ready and pipeline and counted and run.may_begin(now_ms, pipeline.revision):
                self._keeper.say(run.tell())
                self._keeper.say(run.claims(self._session.deadline_ms))

    async def _share(self, started: Mapping[str, Pipeline]) -> None:
        """Share the partitions of every generation that is worked on here."""
        by_registry: dict[str, list[SlotRun]] = {}
        for run in self.runs.values():
            by_registry.setdefault(run.namespace, []).append(run)
        for namespace, runs in by_registry.items():
            registry = self._registry(namespace, runs[0])
            if registry is None or runs[0].slot.pipeline_id not in started or not self._keeper.ready:
                continue
            sharing = [run for run in runs if run.shares]
            consumers = self._consumers(runs[0].slot.pipeline_id, runs[0].generation)
            try:
                await registry.share_out(sharing, consumers, Session(self._session.id, self._session.ttl_ms))
            except (CorruptError, InvalidError) as error:  # of one registry: the others go on
                _log.error("registry %s cannot be shared out: %s", namespace, error)
            finally:
                self.send_claims()

    def send_claims(self) -> None:
        """Tell the driver what its runs own now, and until when, where that is news to it."""
        until_ms = self._session.deadline_ms
        for run in self.runs.values():
            if run.told and run.halt_until_ms is None and run.has_news(until_ms) and self._session.alive():
                self._keeper.say(run.claims(until_ms))

    def _registry(self, namespace: str, run: SlotRun) -> GenerationRegistry | None:
        known = self._registries.get(namespace)
        partitions = self._wanted.partitions.get((run.slot.pipeline_id, run.generation))
        if known is None and partitions is not None:
            known = self._registries[namespace] = self._new_registry(namespace, partitions)
        elif known is not None and (trouble := known.trouble):
            _log.error("registry %s is read again: %s", namespace, trouble)
            known.follow()
        return known

    def _consumers(self, pipeline_id: str, generation: int) -> set[str]:
        """Others whose Spark is up: who holds a slot, held one a moment ago, or runs without leases."""
        workers = self._outlook.workers()
        ready = {each.id for each in workers.values() if each.driver == "ready" and each.id != self._about.id}
        labels = {f"~{each}" for each in ready if workers[each].mode == "no-leases"}
        elsewhere = {slot: holder for slot, holder in self.slots.elsewhere().items() if slot.pipeline_id == pipeline_id}
        labels |= {str(slot.number) for slot, holder in elsewhere.items() if holder in ready}
        if self._settings.leases:
            wanted = {SlotId(pipeline_id, number) for number in range(self._wanted.slots.get(pipeline_id, 0))}
            free = wanted - elsewhere.keys() - self.slots.staying.keys()
            labels |= {str(slot.number) for slot in free if self.slots.passing(slot)}
        return {run_name(pipeline_id, generation, label) for label in labels}

    async def _retire(self, started: Mapping[str, Pipeline]) -> None:
        """A backfill whose ends are reached is done."""
        finished = {run.namespace: run for run in self.runs.values() if run.state == "finished"}
        for namespace, run in sorted(finished.items()):
            pipeline = started.get(run.slot.pipeline_id)
            found = [each for each in active_generations(pipeline) if each.number == run.generation] if pipeline else []
            if found and found[0].kind == "backfill" and await self._registries[namespace].reached(found[0]):
                try:
                    await self._catalog.retire(run.slot.pipeline_id, run.generation)
                except InvalidError as error:
                    _log.info("generation %d of %s is not retired: %s", run.generation, run.slot.pipeline_id, error)

    async def _publish(self) -> None:
        for run in list(self.runs.values()):
            warnings = self._wanted.warnings.get(run.slot.pipeline_id, ())
            if not await self._publisher.run(run, warnings, every_ms=self._settings.status_ms):
                self.slots.leaving.add(run.slot)
        await self._publisher.worker(self.record(), every_ms=self._settings.interval_ms)

    def record(self) -> WorkerRecord:
        """What the others are told of this worker."""
        left_ms = self._session.deadline_ms + self._settings.margin_ms - self._clock.boot_ms()
        ready = self._keeper.ready
        return msgspec.structs.replace(
            self._about,
            able=not self._keeper.trouble,
            trouble=self._keeper.trouble,
            lease_until_ms=self._clock.now_ms() + left_ms if self._settings.leases else None,
            slots=tuple(lease.resource for _, lease in sorted(self.slots.held.items()) if lease is not None),
            driver=self._keeper.state,
            spark_version=ready.spark_version if ready else "",
            spark_ui_url=ready.ui_url if ready else "",
        )

    # --- what the driver says

    def heard(self, message: FromDriver) -> None:
        """Take in a line of the driver's."""
        run = None if isinstance(message, DriverReady) else self.runs.get(getattr(message, "slot", ""))
        match message:
            case PartitionsReleased() if run is not None:
                run.on_released(message)
            case SlotProgress() if run is not None:
                run.on_progress(message)
                return
            case SlotFinished() if run is not None:
                run.finished()
            case SlotFailed() if run is not None:
                self._failed(run, message)
            case SlotHalted() if run is not None:
                run.stopped()
        self._notify.notify()

    def _failed(self, run: SlotRun, message: SlotFailed) -> None:
        pipeline = self._outlook.started().get(run.slot.pipeline_id)
        pause_ms = backoff_ms(
            run.attempts,
            base_ms=self._settings.retry_base_ms,
            max_ms=self._settings.retry_max_ms,
            random=self._random,
        )
        recipe = pipeline.revision if pipeline is not None else 0
        run.on_failed(message, recipe=recipe, retry_at_ms=self._clock.boot_ms() + round(pause_ms))
        again = "when the pipeline is edited" if message.lasting else f"in {pause_ms / 1000:.1f} s"
        _log.error("slot %s failed: %s; again %s", run.name, message.reason, again)

    def driver_died(self, why: str) -> None:
        """Nobody does anything for any run any more: all partitions can be released."""
        for run in self.runs.values():
            if run.told:
                run.attempts += 1
                run.stopped_working(f"the Spark driver died: {why}")
            run.give_all()
        self._notify.notify()

    def check_liveness(self) -> None:
        """Kill a driver that hangs or does not halt a run in time."""
        self._keeper.check_liveness()
        now_ms = self._clock.boot_ms()
        for run in self.runs.values():
            if run.told and run.halt_until_ms is not None and now_ms >= run.halt_until_ms:
                self._keeper.terminate(f"it did not halt {run.name} in time")

    def idle_ms(self, at_most_ms: float) -> float:
        """How long it is until something here is due."""
        now_ms = self._clock.boot_ms()
        due = [run.retry_at_ms - now_ms for run in self.runs.values() if not run.told and run.retry_at_ms > now_ms]
        return min([at_most_ms, *due])

    async def close(self) -> None:
        """Everything here stops. What is held in the store goes with the session."""
        for run in self.runs.values():
            self._halt(run)
        try:
            while self._keeper.exists and any(run.told for run in self.runs.values()):
                self.check_liveness()
                await self._notify.wait_ms(self._clock, 100)
        finally:
            for registry in self._registries.values():
                await registry.close()

"""Reconciles one worker's slots, runs and claims with the desired state, one pass at a time; a crash between any two steps is safe.

The one rule: release from the inside out. A slot that leaves first halts its runs, a halted run first releases its partitions, and
only then is the slot's lease released. A process that dies in between leaves leases and claims that expire with its session, and
intents that outlive both.
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
from holdfast.pipeline.workers.cluster_view import WorkerClusterView
from holdfast.pipeline.workers.desired_slots import DesiredSlots, PartitionCounts
from holdfast.pipeline.workers.driver_supervisor import DriverSupervisor
from holdfast.pipeline.workers.generation_registry import GenerationRegistry, NewRegistry
from holdfast.pipeline.workers.held_slots import HeldSlots
from holdfast.pipeline.workers.retired_generations import RetiredGenerations
from holdfast.pipeline.workers.run_log import RunLog
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.pipeline.workers.slot_assignment import SlotId
from holdfast.pipeline.workers.slot_run import SlotRun
from holdfast.pipeline.workers.status_publisher import StatusPublisher
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, InvalidError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify

_log: Final = logging.getLogger(__name__)
_HALT_GRACE_MS: Final = 5_000  # for the driver's `SlotHalted` to arrive


class Reconciler:
    """One worker under one session. `record`: the constant fields of its published record."""

    def __init__(
        self,
        *,
        record: WorkerRecord,
        session: HeldSession,
        view: WorkerClusterView,
        slots: HeldSlots,
        supervisor: DriverSupervisor,
        counts: PartitionCounts,
        catalog: PipelineStore,
        publisher: StatusPublisher,
        new_registry: NewRegistry,
        settings: WorkerSettings,
        notify: Notify,
        clock: Clock,
        random: Random,
    ) -> None:
        self._record, self._session, self._view = record, session, view
        self.slots, self._supervisor, self._counts = slots, supervisor, counts
        self._catalog, self._publisher, self._new_registry = catalog, publisher, new_registry
        self._settings, self._notify, self._clock, self._random = settings, notify, clock, random
        self.runs: dict[str, SlotRun] = {}
        self._registries: dict[str, GenerationRegistry] = {}
        self._retired = RetiredGenerations(
            catalog, view, interval_ms=settings.retired_interval_ms, clock=clock, random=random
        )
        self._desired = DesiredSlots()
        self._run_log = RunLog()
        self.stopping = False

    # --- a pass

    async def reconcile(self) -> None:
        """One pass. Errors of the store are raised; the next pass continues from there."""
        started = {} if self.stopping else self._view.started()
        self._desired = await self._counts.desired(started)
        self._run_log.pipelines(started, self._desired.slots, stopping=self.stopping)
        await self.slots.assign(self._desired.slots, able=not self._supervisor.failure, stopping=self.stopping)
        self._match_runs(started)
        await self._release_ended()
        # A driver that died is restarted even if other workers have its slots: a worker that is not able gets none.
        self._supervisor.need(self.slots.needs_driver or (bool(started) and bool(self._supervisor.failure)))
        self._start_runs(started)
        await self._assign_partitions(started)
        await self._retire_backfills(started)
        await self._retired.clear_when_due()
        await self._publish()

    def _match_runs(self, started: Mapping[str, Pipeline]) -> None:
        """A run for every slot that stays and every active generation; a halt for every other run."""
        desired: set[str] = set()
        for slot in self.slots.staying:
            pipeline = started.get(slot.pipeline_id)
            for generation in active_generations(pipeline) if pipeline is not None else ():
                name = run_name(slot.pipeline_id, generation.number, self.slots.label(slot))
                desired.add(name)
                if name not in self.runs:
                    self.runs[name] = self._new_run(slot, generation)
        for name, run in self.runs.items():
            if name not in desired:
                self._halt(run)

    def _new_run(self, slot: SlotId, generation: Generation) -> SlotRun:
        return SlotRun(
            slot=slot,
            label=self.slots.label(slot),
            pipeline_name=self._view.name_of(slot.pipeline_id),
            generation=generation.number,
            worker_id=self._record.id,
            lease=self.slots.held[slot],
            since_ms=self._clock.now_ms(),
        )

    def _halt(self, run: SlotRun) -> None:
        message = run.halt(self._clock.boot_ms(), within_ms=self._settings.halt_ms, grace_ms=_HALT_GRACE_MS)
        if message is not None:
            self._supervisor.send(message)

    async def _release_ended(self) -> None:
        """Release idle partitions, then runs without partitions, then slots without runs."""
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
            _log.error("%s: partitions cannot be released and expire with the session: %s", run.title, error)
            run.releasable.clear()

    def _start_runs(self, started: Mapping[str, Pipeline]) -> None:
        """Start runs in the driver, once it is ready."""
        now_ms = self._clock.boot_ms()
        for run in self.runs.values():
            pipeline = started.get(run.slot.pipeline_id)
            counted = (run.slot.pipeline_id, run.generation) in self._desired.partitions
            run.blocked = "" if counted else self._desired.blocked.get(run.slot.pipeline_id, "")
            if self._supervisor.ready and pipeline and counted and run.may_start(now_ms, pipeline.revision):
                self._supervisor.send(run.start_message())
                self._supervisor.send(run.claims_message(self._session.deadline_ms))

    async def _assign_partitions(self, started: Mapping[str, Pipeline]) -> None:
        """Claim and revoke partitions of every generation with a run here."""
        by_registry: dict[str, list[SlotRun]] = {}
        for run in self.runs.values():
            by_registry.setdefault(run.namespace, []).append(run)
        for namespace, runs in by_registry.items():
            registry = self._registry(namespace, runs[0])
            if registry is None or runs[0].slot.pipeline_id not in started or not self._supervisor.ready:
                continue
            sharing = [run for run in runs if run.shares]
            consumers = self._consumers(runs[0].slot.pipeline_id, runs[0].generation)
            try:
                await registry.grow(self._desired.partitions.get((runs[0].slot.pipeline_id, runs[0].generation), 0))
                await registry.assign(sharing, consumers, Session(self._session.id, self._session.ttl_ms))
            except (CorruptError, InvalidError) as error:  # of one registry: the others continue
                _log.error("%s: partitions cannot be assigned: %s", runs[0].title, error)
            finally:
                self.send_claims()

    def send_claims(self) -> None:
        """Send the driver the claims that have changed or were renewed."""
        until_ms = self._session.deadline_ms
        for run in self.runs.values():
            if not run.started or run.halt_until_ms is not None or not self._session.alive():
                continue
            if run.partitions_changed():
                self._run_log.partitions(run)
            if run.claims_changed(until_ms):
                self._supervisor.send(run.claims_message(until_ms))

    def _registry(self, namespace: str, run: SlotRun) -> GenerationRegistry | None:
        known = self._registries.get(namespace)
        partitions = self._desired.partitions.get((run.slot.pipeline_id, run.generation))
        if known is None and partitions is not None:
            known = self._registries[namespace] = self._new_registry(namespace, partitions)
        elif known is not None and (failure := known.failure):
            _log.error("%s: watch of its partitions failed, restarting it: %s", run.title, failure)
            known.follow()
        return known

    def _consumers(self, pipeline_id: str, generation: int) -> set[str]:
        """Slots of other workers whose Spark is up: held, held a moment ago, or without leases."""
        workers = self._view.workers()
        ready = {each.id for each in workers.values() if each.driver == "ready" and each.id != self._record.id}
        labels = {f"~{each}" for each in ready if workers[each].mode == "no-leases"}
        others = {
            slot: holder for slot, holder in self.slots.held_by_others().items() if slot.pipeline_id == pipeline_id
        }
        labels |= {str(slot.number) for slot, holder in others.items() if holder in ready}
        if self._settings.leases:
            desired = {SlotId(pipeline_id, number) for number in range(self._desired.slots.get(pipeline_id, 0))}
            free = desired - others.keys() - self.slots.staying.keys()
            labels |= {str(slot.number) for slot in free if self.slots.is_moving(slot)}
        return {run_name(pipeline_id, generation, label) for label in labels}

    async def _retire_backfills(self, started: Mapping[str, Pipeline]) -> None:
        """Retire backfills that have reached their ends."""
        finished = {run.namespace: run for run in self.runs.values() if run.state == "finished"}
        for namespace, run in sorted(finished.items()):
            pipeline = started.get(run.slot.pipeline_id)
            found = [each for each in active_generations(pipeline) if each.number == run.generation] if pipeline else []
            if found and found[0].kind == "backfill" and await self._registries[namespace].has_reached_end(found[0]):
                try:
                    await self._catalog.retire(run.slot.pipeline_id, run.generation)
                    _log.info("pipeline %s: backfill, generation %d, finished", run.pipeline_name, run.generation)
                except InvalidError as error:
                    _log.info("pipeline %s: generation %d not retired: %s", run.pipeline_name, run.generation, error)

    async def _publish(self) -> None:
        for run in list(self.runs.values()):
            self._run_log.state(run)
            warnings = self._desired.warnings.get(run.slot.pipeline_id, ())
            if not await self._publisher.run(run, warnings, every_ms=self._settings.status_ms):
                self.slots.leave(run.slot, "its lease has another holder")
        await self._publisher.worker(self.record(), every_ms=self._settings.interval_ms)

    def record(self) -> WorkerRecord:
        """The published record of this worker."""
        left_ms = self._session.deadline_ms + self._settings.margin_ms - self._clock.boot_ms()
        ready = self._supervisor.ready
        return msgspec.structs.replace(
            self._record,
            able=not self._supervisor.failure,
            trouble=self._supervisor.failure,
            lease_until_ms=self._clock.now_ms() + left_ms if self._settings.leases else None,
            slots=tuple(lease.resource for _, lease in sorted(self.slots.held.items()) if lease is not None),
            driver=self._supervisor.state,
            spark_version=ready.spark_version if ready else "",
            spark_ui_url=ready.ui_url if ready else "",
        )

    # --- messages of the driver

    def on_message(self, message: FromDriver) -> None:
        """Handle a message of the driver's."""
        run = None if isinstance(message, DriverReady) else self.runs.get(getattr(message, "slot", ""))
        match message:
            case PartitionsReleased() if run is not None:
                run.on_released(message)
            case SlotProgress() if run is not None:
                run.on_progress(message)
                self._run_log.state(run)
                if not self._counts.seen(run.slot.pipeline_id, run.generation, message.source_partitions):
                    return
                _log.info("%s: the source has %d partitions now", run.title, message.source_partitions)
            case SlotFinished() if run is not None:
                run.on_finished()
            case SlotFailed() if run is not None:
                self._on_failed(run, message)
            case SlotHalted() if run is not None:
                run.on_halted()
        self._notify.notify()

    def _on_failed(self, run: SlotRun, message: SlotFailed) -> None:
        pipeline = self._view.started().get(run.slot.pipeline_id)
        pause_ms = backoff_ms(
            run.attempts,
            base_ms=self._settings.retry_base_ms,
            max_ms=self._settings.retry_max_ms,
            random=self._random,
        )
        revision = pipeline.revision if pipeline is not None else 0
        run.on_failed(message, revision=revision, retry_at_ms=self._clock.boot_ms() + round(pause_ms))
        retry = "once the pipeline is edited" if message.lasting else f"in {pause_ms / 1000:.1f} s"
        self._run_log.state(run, retry=retry)

    def on_driver_death(self, why: str) -> None:
        """No run is under way any more: all partitions can be released."""
        for run in self.runs.values():
            if run.started:
                run.attempts += 1
                run.on_stopped(f"the Spark driver died: {why}")
            run.release_all()
        self._notify.notify()

    def check_liveness(self) -> None:
        """Kill a driver that hangs or does not halt a run in time."""
        self._supervisor.check_liveness()
        now_ms = self._clock.boot_ms()
        for run in self.runs.values():
            if run.started and run.halt_until_ms is not None and now_ms >= run.halt_until_ms:
                self._supervisor.terminate(f"it did not halt {run.title} in time")

    def idle_ms(self, at_most_ms: float) -> float:
        """How long until the next retry is due."""
        now_ms = self._clock.boot_ms()
        due = [run.retry_at_ms - now_ms for run in self.runs.values() if not run.started and run.retry_at_ms > now_ms]
        return min([at_most_ms, *due])

    async def close(self) -> None:
        """Halt every run. What is held in the store expires with the session."""
        for run in self.runs.values():
            self._halt(run)
        try:
            while self._supervisor.exists and any(run.started for run in self.runs.values()):
                self.check_liveness()
                await self._notify.wait_ms(self._clock, 100)
        finally:
            await self._counts.close()
            for registry in self._registries.values():
                await registry.close()

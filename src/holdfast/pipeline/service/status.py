"""The status of a pipeline: its slots as workers publish them, its progress as the registry has it.

The one rule: checkpoints come from the registry, the source of truth; everything else is what a live worker published last. What no
worker publishes (lag, while none runs) is null.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from holdfast.contracts.store import Store
from holdfast.pipeline.catalog.worker_status import SlotStatus, WorkerRecord, list_statuses, list_workers
from holdfast.pipeline.model.definition import (
    PIPELINE_REGISTRY,
    Generation,
    Pipeline,
    active_generations,
    live_generation,
    registry_namespace,
)
from holdfast.pipeline.model.driver_protocol import StreamProgress
from holdfast.pipeline.service.responses import Response
from holdfast.pipeline.service.rewind_rules import changed_table
from holdfast.registry import PartitionState
from holdfast.registry.queries import partitions_by_namespace
from holdfast.registry.queries import partitions_of as registry_partitions

NO_LEASES: Final = (
    "workers run without leases: every worker runs one instance of this pipeline, and replicas are ignored; "
    "partitions are still claimed by epoch"
)

State = Literal["stopped", "stopping", "incomplete", "waiting", "starting", "running", "blocked", "failed"]


class SlotPartition(Response, frozen=True):
    """Progress of one partition. `end` and the lags are null while no worker publishes them."""

    generation: int
    partition: int
    checkpoint: int
    owner: str | None = None
    epoch: int = 0
    pending: bool = False
    """A range is unfinished."""
    end: int | None = None
    lag_rows: int | None = None
    lag_ms: int | None = None


class GenerationStatus(Response, frozen=True):
    """Progress of an active generation."""

    number: int
    kind: str
    partitions: int
    lag_rows: int | None = None
    done: bool = False


class PipelineStatus(Response, frozen=True):
    """The status of a pipeline. Counts are since the current slots were started."""

    id: str
    name: str
    state: State
    desired: str
    replicas: int
    revision: int = msgspec.field(name="recipe")
    rows: int = 0
    batches: int = 0
    filtered: int = 0
    dlq_rows: int = 0
    bytes_objects: int = 0
    bytes_agents: int = 0
    lag_rows: int | None = None
    lag_ms: int | None = None
    slots_running: int = 0
    reasons: tuple[str, ...] = ()
    """Why it is blocked, failed, incomplete or waiting."""
    warnings: tuple[str, ...] = ()
    engine: str = ""
    """`fast` or `structured-streaming`; empty: the pipeline has no revision."""
    engine_reason: str = ""
    stream: StreamProgress | None = None
    """Of a streaming query that runs."""
    mode: Literal["leases", "no-leases", "none"] = "none"
    banner: str = ""
    generations: tuple[GenerationStatus, ...] = ()
    slots: tuple[SlotStatus, ...] = ()
    partitions: tuple[SlotPartition, ...] = ()


async def status_of(store: Store, pipeline: Pipeline) -> PipelineStatus:
    """One pipeline's status."""
    slots = await list_statuses(store, pipeline.id)
    return aggregate(pipeline, slots, await list_workers(store), await progress_of(store, pipeline))


async def statuses_of(store: Store, pipelines: Sequence[Pipeline]) -> list[PipelineStatus]:
    """The status of many pipelines, for listings and metrics."""
    slots, workers, progress = (
        await list_statuses(store),
        await list_workers(store),
        await partitions_by_namespace(store, PIPELINE_REGISTRY),
    )
    mine: dict[str, list[SlotStatus]] = {}
    for slot in slots:
        mine.setdefault(slot.pipeline_id, []).append(slot)
    return [
        aggregate(
            pipeline,
            mine.get(pipeline.id, ()),
            workers,
            {
                each.number: progress.get(registry_namespace(pipeline.id, each.number), ())
                for each in active_generations(pipeline)
            },
        )
        for pipeline in pipelines
    ]


async def progress_of(store: Store, pipeline: Pipeline) -> dict[int, list[PartitionState]]:
    """The partitions of each active generation."""
    return {each.number: await partitions_of(store, pipeline.id, each.number) for each in active_generations(pipeline)}


async def partitions_of(store: Store, pipeline_id: str, generation: int) -> list[PartitionState]:
    """The partitions of one generation, by number; empty before a worker has started it."""
    return await registry_partitions(store, registry_namespace(pipeline_id, generation))


def aggregate(
    pipeline: Pipeline,
    slots: Sequence[SlotStatus],
    workers: Sequence[WorkerRecord],
    progress: Mapping[int, Sequence[PartitionState]],
) -> PipelineStatus:
    """The status from what was read. No I/O."""
    current = [slot for slot in slots if any(slot.generation == each.number for each in active_generations(pipeline))]
    partitions = tuple(_partitions(progress, slots))
    streams = [slot.stream for slot in current if slot.stream is not None]
    lags = [each.lag_rows for each in partitions if each.lag_rows is not None]
    lags += [each.lag_rows for each in streams]
    ages = [each.lag_ms for each in partitions if each.lag_ms is not None]
    state, reasons = _state(pipeline, current, slots, workers)
    mode = _mode(workers, slots)
    return PipelineStatus(
        id=pipeline.id,
        name=pipeline.name,
        state=state,
        desired=pipeline.state.desired,
        replicas=pipeline.state.replicas,
        revision=pipeline.revision,
        rows=sum(slot.rows for slot in slots),
        batches=sum(slot.batches for slot in slots),
        filtered=sum(slot.filtered for slot in slots),
        dlq_rows=sum(slot.dlq_rows for slot in slots),
        bytes_objects=sum(slot.bytes_objects for slot in slots),
        bytes_agents=sum(slot.bytes_agents for slot in slots),
        lag_rows=sum(lags) if lags else None,
        lag_ms=max(ages) if ages else None,
        slots_running=sum(1 for slot in current if slot.state == "running"),
        reasons=reasons,
        warnings=tuple(dict.fromkeys(_warnings(pipeline, slots, mode, partitions))),
        engine=pipeline.engine if pipeline.revision else "",
        engine_reason=pipeline.engine_reason if pipeline.revision else "",
        stream=streams[-1] if streams else None,
        mode=mode,
        banner=NO_LEASES if mode == "no-leases" else "",
        generations=tuple(_generation(each, partitions) for each in active_generations(pipeline)),
        slots=tuple(sorted(slots, key=lambda slot: (slot.generation, slot.slot))),
        partitions=partitions,
    )


def _partitions(
    progress: Mapping[int, Sequence[PartitionState]], slots: Sequence[SlotStatus]
) -> Iterable[SlotPartition]:
    published = {(slot.generation, int(number)): seen for slot in slots for number, seen in slot.partitions.items()}
    for generation, states in sorted(progress.items()):
        for state in states:
            seen = published.get((generation, state.id))
            yield SlotPartition(
                generation=generation,
                partition=state.id,
                checkpoint=state.checkpoint,
                owner=state.owner,
                epoch=state.epoch,
                pending=state.intent is not None,
                end=None if seen is None else seen.end,
                lag_rows=None if seen is None else max(0, seen.end - max(state.checkpoint, seen.checkpoint)),
                lag_ms=None if seen is None else seen.lag_ms,
            )


def _generation(generation: Generation, partitions: Sequence[SlotPartition]) -> GenerationStatus:
    mine = [each for each in partitions if each.generation == generation.number]
    if generation.kind == "backfill":
        at = {each.partition: each.checkpoint for each in mine}
        left = sum(
            max(0, end - max(at.get(int(number), 0), generation.starts.get(number, 0)))
            for number, end in generation.ends.items()
        )
        return GenerationStatus(
            number=generation.number, kind="backfill", partitions=len(mine), lag_rows=left, done=left == 0
        )
    lags = [each.lag_rows for each in mine if each.lag_rows is not None]
    return GenerationStatus(
        number=generation.number, kind="live", partitions=len(mine), lag_rows=sum(lags) if lags else None
    )


def _state(
    pipeline: Pipeline,
    current: Sequence[SlotStatus],
    slots: Sequence[SlotStatus],
    workers: Sequence[WorkerRecord],
) -> tuple[State, tuple[str, ...]]:
    if pipeline.state.desired == "stopped":
        if slots:
            return "stopping", tuple(f"slot {slot.slot} is being released by {slot.worker_id}" for slot in slots)
        return ("stopped", ()) if pipeline.revision and not pipeline.problems else ("incomplete", pipeline.problems)
    for state in ("failed", "blocked"):
        found = [slot for slot in current if slot.state == state]
        if found:
            return state, tuple(dict.fromkeys(slot.reason for slot in found if slot.reason))
    if any(slot.state in ("running", "finished") for slot in current):
        return "running", ()
    if current:
        return "starting", ()
    if not workers:
        return "waiting", ("no worker is running: start one with holdfast serve --roles worker",)
    unable = tuple(f"{worker.id}: {worker.trouble}" for worker in workers if not worker.able)
    return "waiting", unable if len(unable) == len(workers) else ("no worker has taken a slot yet",)


def _mode(workers: Sequence[WorkerRecord], slots: Sequence[SlotStatus]) -> Literal["leases", "no-leases", "none"]:
    if any(worker.mode == "no-leases" for worker in workers) or any(slot.slot.startswith("~") for slot in slots):
        return "no-leases"
    return "leases" if workers else "none"


def _warnings(
    pipeline: Pipeline, slots: Sequence[SlotStatus], mode: str, partitions: Sequence[SlotPartition]
) -> Iterable[str]:
    for slot in slots:
        yield from slot.warnings
    if pipeline.problems and pipeline.revision:
        yield f"the edited parts do not fit together; revision {pipeline.revision} stays in use: {'; '.join(pipeline.problems)}"
    live = live_generation(pipeline)
    if live is not None and (moved := changed_table(live)):
        yield moved
    if mode == "no-leases" and pipeline.state.replicas > 1:
        yield f"replicas {pipeline.state.replicas} is ignored: workers run without leases"
    unfinished = [str(each.partition) for each in partitions if each.pending and each.owner is None]
    if unfinished and pipeline.state.desired == "stopped" and not slots:
        yield (
            f"unfinished ranges of partitions {', '.join(unfinished[:20])}: their records are kept until the pipeline is started, "
            "rewound or deleted"
        )

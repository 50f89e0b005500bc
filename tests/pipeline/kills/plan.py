"""What may be done to pipelines at work, as values: who is hit, how, and at which step of a batch.

The one rule: everything but the chance of the operating system follows from the seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.vocabulary.random import SeededRandom

FAST, STREAMING = "fast", "structured-streaming"

TASK_STEPS = tuple(
    f"pipeline.{step}" for step in ("read", "mapped", "inserting", "inserted", "dlq-inserted", "task-done")
)
"""Those that a task reaches; the others are the driver's own."""

FAST_STEPS = (
    *("pipeline.planned", "pipeline.begun", *TASK_STEPS[:2], "pipeline.recorded", *TASK_STEPS[2:]),
    *("pipeline.job-done", "pipeline.committed", "pipeline.checkpointed"),
)
"""The failpoints of a batch of the fast path, in their order."""

START_STEPS = tuple(f"stream.{step}" for step in ("claimed", "copied", "taken-over"))
"""Those that a streaming query reaches when it starts: somebody must have died before."""

STREAM_STEPS = (
    *START_STEPS,
    *(f"stream.{step}" for step in ("planned", "staged", "begun", "dlq-inserted")),
    *(f"stream.{step}" for step in ("inserting", "inserted", "pieces-inserted", "done")),
)
"""The failpoints of a streaming query in output mode append, in their order."""

STEPS = (*FAST_STEPS, *STREAM_STEPS)
TARGETS = ("worker", "driver", "jvm", "executor")
ACTIONS = ("kill", "stop")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `target` is hit when a process has reached `step`; without a step at any time."""

    target: str
    action: str
    step: str = ""
    beside: tuple[str, ...] = ()
    """Where other pipelines of the same driver are then: tasks are killed there, threads of the driver held."""

    def __str__(self) -> str:
        steps = " and ".join(filter(None, (self.step, *self.beside)))
        return f"{self.target} {self.action}" + (f" at {steps}" if steps else "")


def at_fast_steps() -> list[Fault]:
    """Every step of the fast path, kill and stop, of each of the four."""
    return [Fault(target, action, step) for step in FAST_STEPS for target in TARGETS for action in ACTIONS]


def at_stream_steps() -> list[Fault]:
    """The same of a streaming query."""
    return [Fault(target, action, step) for step in STREAM_STEPS for target in TARGETS for action in ACTIONS]


def zombies() -> list[Fault]:
    """Who is frozen while somebody else takes over, and then goes on where it was.

    `task`: its worker is killed meanwhile, so that nobody ends it. `machine`: a worker and all it started, as when it is suspended.
    """
    return [
        *(Fault("task", "zombie", step) for step in TASK_STEPS),
        *(Fault("machine", "zombie", step) for step in STEPS),
        Fault("machine", "zombie", "pipeline.inserting", ("pipeline.inserted", "stream.inserted")),
    ]


def of_servers() -> list[Fault]:
    """ClickHouse and the store go away, come back, and are killed while they are written to."""
    steps = ("pipeline.inserting", "pipeline.inserted", "pipeline.task-done", "stream.inserting", "stream.inserted")
    return [
        *(Fault("clickhouse", "kill", step) for step in steps),
        Fault("clickhouse", "down"),
        Fault("clickhouse", "stop", "pipeline.inserting"),
        Fault("clickhouse", "stop", "stream.inserting"),
        Fault("store", "stop"),
        Fault("store", "stop", "pipeline.begun"),
        Fault("store", "stop", "stream.begun"),
        Fault("store", "kill", "pipeline.job-done"),
        Fault("store", "kill", "stream.pieces-inserted"),
    ]


def of_people() -> list[Fault]:
    """What somebody does while it runs."""
    return [
        Fault("pipeline", "scale"),
        Fault("table", "missing"),
        *(Fault("drift", policy, "pipeline.begun") for policy in ("add-column", "overflow", "dlq")),
        Fault("topic", "recreated"),
        *(Fault("topic", "recreated", step) for step in ("pipeline.begun", "pipeline.recorded", "stream.begun")),
    ]


def meets(fault: Fault, engines: Sequence[str]) -> bool:
    """Whether pipelines of these engines come to where the fault is."""
    known = {"pipeline": FAST, "stream": STREAMING}
    needed = {known[step.partition(".")[0]] for step in (fault.step, *fault.beside) if step}
    if fault.target in ("pipeline", "table", "drift"):
        needed.add(FAST)
    if fault.target == "topic":  # which has pipelines of both
        needed |= {FAST, STREAMING}
    return needed <= set(engines)


STEPS_FAMILIES = ("steps", "stream-steps")
FAMILIES = {
    "steps": at_fast_steps,
    "stream-steps": at_stream_steps,
    "zombies": zombies,
    "servers": of_servers,
    "people": of_people,
}


def everything(families: Sequence[str] = tuple(FAMILIES)) -> list[Fault]:
    """All faults of these families."""
    return [fault for family in families for fault in FAMILIES[family]()]


def drawn(seed: int, families: Sequence[str] = tuple(FAMILIES)) -> Iterator[Fault]:
    """Without end, in an order of the seed's: families take turns, those of the steps between any two of the others."""
    random = SeededRandom(seed)
    turns = {family: _shuffled(FAMILIES[family](), random) for family in families}
    steps = [family for family in STEPS_FAMILIES if family in families]
    others = [family for family in families if family not in steps]
    while True:
        for family in others or [""]:
            for each in steps:
                yield next(turns[each])
            if family:
                yield next(turns[family])


def _shuffled(faults: list[Fault], random: SeededRandom) -> Iterator[Fault]:
    while True:
        yield from random.random.sample(faults, len(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How it is run. `engines`: one pipeline each; those of one engine share a table."""

    seconds: float = 600
    seed: int = 1
    engines: tuple[str, ...] = (FAST, FAST, STREAMING, STREAMING)
    partitions: int = 4
    replicas: int = 2
    records_per_s: int = 400
    poisoned_share: float = 0.04
    workers: int = 2
    lease_ms: int = 8_000
    away_s: float = 60.0
    """How long ClickHouse is down."""
    writes_on: bool = True
    """Whether the writer goes on while a zombie sleeps."""
    planted: bool = False
    """Whether bugs can be planted in its processes."""


SHORT = Plan(
    seconds=0,
    engines=(FAST, FAST),
    partitions=1,
    replicas=1,
    records_per_s=200,
    poisoned_share=0.1,
    workers=1,
    writes_on=False,
)
"""What CI does. Spark starts take most of the time, so there is one worker, and one that succeeds it."""

TELLING = Fault("machine", "zombie", "pipeline.inserting", ("pipeline.inserted",))
"""Of two pipelines on one table, one has a zombie that inserts too late, the other an executor that dies after its insert."""

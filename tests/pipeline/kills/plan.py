"""What may be done to a pipeline at work, as values: who is hit, how, and at which step of a batch.

The one rule: everything but the chance of the operating system follows from the seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.vocabulary.random import SeededRandom

TASK_STEPS = ("read", "mapped", "inserting", "inserted", "dlq-inserted", "task-done")
"""Those that a task reaches; the others are the driver's own."""

STEPS = ("planned", "begun", *TASK_STEPS[:2], "recorded", *TASK_STEPS[2:], "job-done", "committed", "checkpointed")
"""The failpoints of a batch, in their order, without the prefix `pipeline.`."""

TARGETS = ("worker", "driver", "jvm", "executor")
ACTIONS = ("kill", "stop")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `target` is hit when a process has reached `step`; without a step at any time."""

    target: str
    action: str
    step: str = ""

    def __str__(self) -> str:
        return f"{self.target} {self.action}" + (f" at {self.step}" if self.step else "")


def at_steps() -> list[Fault]:
    """Every step, kill and stop, of each of the four."""
    return [Fault(target, action, step) for step in STEPS for target in TARGETS for action in ACTIONS]


def zombies() -> list[Fault]:
    """Who is frozen while somebody else takes over, and then goes on where it was.

    `task`: its worker is killed meanwhile, so that nobody ends it. `machine`: a worker and all it started, as when it is suspended.
    """
    return [Fault("task", "zombie", step) for step in TASK_STEPS] + [Fault("machine", "zombie", step) for step in STEPS]


def of_servers() -> list[Fault]:
    """ClickHouse and the store go away, come back, and are killed while they are written to."""
    killed = [Fault("clickhouse", "kill", step) for step in ("inserting", "inserted", "task-done")]
    return [
        *killed,
        Fault("clickhouse", "down"),
        Fault("clickhouse", "stop", "inserting"),
        Fault("store", "stop"),
        Fault("store", "stop", "begun"),
        Fault("store", "kill", "job-done"),
    ]


def of_people() -> list[Fault]:
    """What somebody does while it runs."""
    return [
        Fault("pipeline", "scale"),
        Fault("table", "missing"),
        *(Fault("drift", policy) for policy in ("add-column", "overflow", "dlq")),
    ]


STEPS_FAMILY = "steps"
FAMILIES = {STEPS_FAMILY: at_steps, "zombies": zombies, "servers": of_servers, "people": of_people}


def everything(families: Sequence[str] = tuple(FAMILIES)) -> list[Fault]:
    """All faults of these families."""
    return [fault for family in families for fault in FAMILIES[family]()]


def drawn(seed: int, families: Sequence[str] = tuple(FAMILIES)) -> Iterator[Fault]:
    """Without end, in an order of the seed's: families take turns, the largest between any two of the others."""
    random = SeededRandom(seed)
    turns = {family: _shuffled(FAMILIES[family](), random) for family in families}
    while True:
        for family in families:
            if family != STEPS_FAMILY and STEPS_FAMILY in families:
                yield next(turns[STEPS_FAMILY])
            yield next(turns[family])


def _shuffled(faults: list[Fault], random: SeededRandom) -> Iterator[Fault]:
    while True:
        yield from random.random.sample(faults, len(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How it is run."""

    seconds: float = 600
    seed: int = 1
    families: tuple[str, ...] = tuple(FAMILIES)
    partitions: int = 4
    replicas: int = 2
    records_per_s: int = 400
    poisoned_share: float = 0.04
    workers: int = 2
    lease_ms: int = 8_000
    away_s: float = 60.0
    """How long ClickHouse is down."""


SHORT = Plan(seconds=0, away_s=4.0, records_per_s=300)

TELLING = (
    Fault("executor", "kill", "inserted"),
    Fault("task", "zombie", "inserting"),
    Fault("driver", "kill", "job-done"),
)
"""What CI does. Spark starts take most of the time, so few of them end one."""

"""Random schedules of a `World`. How often which step is taken differs from seed to seed, so that rare combinations happen, too."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.support.replication.history import ViolationError
from tests.support.replication.world import Agent, Bugs, World

from holdfast.vocabulary.errors import CorruptError


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a world is."""

    agents: int = 3
    sizes: tuple[int, ...] = (3,)
    steps: int = 150
    epochs: int = 5
    lost_disks: int = 1
    drops: bool = False


SHAPES: Final = (
    Shape(),
    Shape(agents=4, sizes=(2, 3), drops=True, epochs=6),
    Shape(agents=2, sizes=(2,)),
    Shape(agents=4, drops=True, lost_disks=0),
    Shape(sizes=(1, 2, 3), lost_disks=0),
)


class Outcome(NamedTuple):
    """What a schedule showed."""

    seed: int
    violation: str
    steps: tuple[str, ...]
    acknowledged: int
    opened: int


def shape_of(seed: int) -> Shape:
    """Seeds go round all shapes."""
    return SHAPES[seed % len(SHAPES)]


def run(seed: int, shape: Shape | None = None, bugs: Bugs | None = None) -> Outcome:
    """Run one schedule, up to its first violation."""
    shape = shape or shape_of(seed)
    world = World(seed, agents=shape.agents, sizes=shape.sizes, bugs=bugs)
    chance = world.random
    weights = {name: base * chance.choice((0.2, 1, 1, 3)) for name, base in _WEIGHTS.items()}
    total = sum(weights.values())  # an agent that can do little does little
    world.eager = chance.choice((0.0, 0.7, 1.0))
    taken: list[str] = []
    violation = ""
    try:
        for _ in range(9 * shape.steps):
            if len(taken) == shape.steps:
                break
            agent = chance.choice(world.agents)
            left = chance.random() * total
            for name in _enabled(world, shape, agent):
                left -= weights[name]
                if left < 0:
                    taken.append(f"{name} {agent.name}")
                    _STEPS[name](world, agent)
                    break
    except (ViolationError, CorruptError, AssertionError) as error:
        violation = f"{type(error).__name__}: {error}"
    return Outcome(seed, violation, tuple(taken), len(world.history.visible), world.stored.opened_epoch)


def first_violation(seeds: Iterable[int], bugs: Bugs | None = None) -> Outcome | None:
    """The first schedule of `seeds` that breaks an invariant."""
    outcomes = (run(seed, bugs=bugs) for seed in seeds)
    return next((each for each in outcomes if each.violation), None)


_WEIGHTS: Final = {
    "acquire": 2,
    "send": 6,
    "deliver": 20,
    "exchange": 10,
    "deliver again": 2,
    "fsync": 20,
    "open": 10,
    "append": 6,
    "reserve": 8,
    "give back": 0.5,
    "publish": 1,
    "hand over": 0.5,
    "reconnect": 1.5,
    "crash": 0.15,
    "refuse writes": 0.2,
    "lose disk": 0.1,
    "drop log": 0.7,
}

_STEPS: Final[dict[str, Callable[[World, Agent], None]]] = {
    "acquire": World.acquire,
    "send": World.send,
    "deliver": lambda world, _: world.deliver(world.random.randrange(len(world.network)), again=False),
    "exchange": lambda world, _: world.exchange(),
    "deliver again": lambda world, _: world.deliver(world.random.randrange(len(world.network)), again=True),
    "fsync": lambda world, agent: world.fsync(agent, world.random.choice((1, 1, 2, 9))),
    "open": World.open,
    "append": World.append,
    "reserve": World.reserve,
    "give back": World.give_back,
    "publish": World.publish,
    "hand over": lambda world, agent: world.hand_over(agent, world.random.choice(world.agents)),
    "reconnect": lambda world, agent: world.reconnect(agent, world.random.choice(list(world.homes))),
    "crash": World.crash,
    "refuse writes": World.refuse_writes,
    "lose disk": World.lose_disk,
    "drop log": World.drop_log,
}


def _enabled(world: World, shape: Shape, agent: Agent) -> list[str]:
    names = ["crash"]
    if world.epoch < shape.epochs:
        names.append("acquire")
    if agent.queue:
        names += ("fsync", "refuse writes")
    if world.lost_disks < shape.lost_disks:
        names.append("lose disk")
    if shape.drops and len(agent.replica.log) and world.stored.opened_epoch:
        names.append("drop log")
    if world.network:
        names += ("deliver", "deliver again")
    if world.takeovers:
        names.append("exchange")
    if agent.takeover is not None or agent.leader is not None:
        names += ("send", "reconnect")
    if agent.takeover is not None and agent.takeover.open_commit is not None:
        names.append("open")
    if agent.leader is not None:
        names += _enabled_for_leader(world, shape, agent)
    return names


def _enabled_for_leader(world: World, shape: Shape, agent: Agent) -> list[str]:
    leader, names = agent.leader, list[str]()
    assert leader is not None
    in_charge, drained = agent.taken_over_at == world.epoch, leader.hw == leader.log.position.offset
    if agent.reserved:
        names.append("append")
        if drained and leader.hw == leader.published.offset:
            names.append("give back")
    elif in_charge:
        names.append("reserve")
    if leader.hw > leader.published.offset:
        names.append("publish")
    if drained and in_charge and world.epoch < shape.epochs:
        names.append("hand over")
    return names

"""Searching the model: everything within bounds, or random walks whose violations are shortened."""

import random  # noqa: TID251 (a seed is a schedule)
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tests.model.effects import apply
from tests.model.enabled import steps
from tests.model.invariants import check
from tests.model.state import Limits, State, Step, ViolationError, initial

_ACQUIRES_LESS = 0.7


class Explored(NamedTuple):
    """How much was seen. `schedule` leads to the violation, if there is one; `complete`: there was nothing more to see."""

    states: int
    transitions: int
    complete: bool
    schedule: tuple[Step, ...] = ()
    violation: str = ""


def explore(limits: Limits, *, states_max: int) -> Explored:
    """Breadth first, so that a violation is found by a shortest schedule."""
    first = initial(limits)
    came_from: dict[State, tuple[State, Step] | None] = {first: None}
    waiting, transitions = deque([first]), 0
    while waiting and len(came_from) < states_max:
        state = waiting.popleft()
        for step in steps(state, limits):
            transitions += 1
            try:
                after = apply(state, step, limits)
                if after in came_from:
                    continue
                check(after, limits)
            except ViolationError as violation:
                return Explored(len(came_from), transitions, False, (*_path(came_from, state), step), str(violation))
            came_from[after] = state, step
            waiting.append(after)
    return Explored(len(came_from), transitions, not waiting)


def walk(limits: Limits, *, seed: int, length: int) -> Explored:
    """One random schedule, shortened if it ends in a violation."""
    chance, state, taken = random.Random(seed), initial(limits), list[Step]()
    for _ in range(length):
        enabled = list(steps(state, limits))
        if not enabled:
            break
        taken.append(_likely(enabled, chance))
        try:
            state = apply(state, taken[-1], limits)
            check(state, limits)
        except ViolationError:
            return _shortened(taken, limits)
    return Explored(len(taken), len(taken), False)


def _likely(enabled: Sequence[Step], chance: random.Random) -> Step:
    """By name first: there are many deliveries, and few takeovers. Those of newer epochs, and longer ones, more often."""
    name = chance.choice(sorted({str(each[0]) for each in enabled}))
    if name == "acquire" and chance.random() < _ACQUIRES_LESS:
        name = str(chance.choice(enabled)[0])
    of_name = [each for each in enabled if each[0] == name]
    return max(chance.sample(of_name, min(2, len(of_name))), key=repr) if name == "deliver" else chance.choice(of_name)


def replay(schedule: Sequence[Step], limits: Limits) -> str | None:
    """The violation a schedule ends in; None: it ends in none, or a step of it is not possible."""
    state = initial(limits)
    for step in schedule:
        if step not in steps(state, limits):
            return None
        try:
            state = apply(state, step, limits)
            check(state, limits)
        except ViolationError as violation:
            return str(violation)
    return None


def _shortened(schedule: Sequence[Step], limits: Limits) -> Explored:
    """Without the steps it does not need."""
    kept = list(schedule)
    at = len(kept) - 1
    while at >= 0:
        without = kept[:at] + kept[at + 1 :]
        if replay(without, limits) is not None:
            kept = without
            at = min(at, len(kept))
        at -= 1
    return Explored(len(schedule), len(schedule), False, tuple(kept), replay(kept, limits) or "")


def _path(came_from: dict[State, tuple[State, Step] | None], state: State) -> list[Step]:
    found: list[Step] = []
    while (before := came_from[state]) is not None:
        state, step = before
        found.append(step)
    return found[::-1]

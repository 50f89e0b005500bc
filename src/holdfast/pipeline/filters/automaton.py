"""Matches a pattern by walking all its possibilities at once. Sets of states met before are remembered, so that most characters
cost one look-up.

The one rule: the work for a text is bounded. A walk that makes too many new sets gives up and says so, whatever the pattern.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from holdfast.pipeline.filters.patterns import MATCH, Edge, Either, One, Pattern, read_pattern

WORK_MAX: Final = 200_000
"""States looked at for one text, not counting what was known already."""
REMEMBERED_MAX: Final = 5_000
"""Steps remembered per pattern. With more it starts over, so that memory is bounded too."""


class TooMuchWork(Exception):  # noqa: N818 - becomes the fault of one record
    """This pattern and this text would take too long."""


class _Set:
    """Some states of the pattern at once."""

    __slots__ = ("matched", "states", "then")

    def __init__(self, states: frozenset[int]) -> None:
        self.states = states
        self.matched = MATCH in states
        self.then: dict[str, _Set] = {}


class Automaton:
    """A pattern, ready to look for itself in texts."""

    def __init__(self, pattern: Pattern) -> None:
        self._states, self._start = pattern.states, pattern.start
        self._forget()

    def _forget(self) -> None:
        self._sets: dict[frozenset[int], _Set] = {}
        self._steps = 0
        self._first = self._set(self._closure([self._start], begin=True))
        self._again = self._closure([self._start], begin=False)

    def found_in(self, text: str) -> bool:
        """Whether the pattern matches anywhere in the text. May raise `TooMuchWork`."""
        if self._steps > REMEMBERED_MAX:
            self._forget()
        now, work = self._first, 0
        if now.matched:
            return True
        for character in text:
            following = now.then.get(character)
            if following is None:
                work += len(now.states) + len(self._again) + 1
                if work > WORK_MAX:
                    raise TooMuchWork
                following = self._step(now, character)
            if following.matched:
                return True
            now = following
        return MATCH in self._closure(now.states, begin=not text, end=True)

    def _step(self, now: _Set, character: str) -> _Set:
        taken = []
        for number in now.states:
            state = self._states[number]
            if isinstance(state, One) and state.chars.has(character):
                taken.append(state.then)
        following = self._set(self._closure(taken, begin=False) | self._again)
        now.then[character] = following
        self._steps += 1
        return following

    def _set(self, states: frozenset[int]) -> _Set:
        known = self._sets.get(states)
        if known is None:
            known = self._sets[states] = _Set(states)
        return known

    def _closure(self, numbers: Iterable[int], *, begin: bool, end: bool = False) -> frozenset[int]:
        """These states and all they are without taking a character. `Edge`s wait in it for the end."""
        found: set[int] = set()
        waiting = list(numbers)
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.add(number)
            if number == MATCH:
                continue
            state = self._states[number]
            if isinstance(state, Either):
                waiting += (state.one, state.other)
            elif isinstance(state, Edge) and (end if state.at_end else begin):
                waiting.append(state.then)
        return frozenset(found)


@lru_cache(maxsize=100)
def automaton(pattern: str) -> Automaton:
    """The automaton of a pattern's text, made once. `BadPattern` if it is none."""
    return Automaton(read_pattern(pattern))

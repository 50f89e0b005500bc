"""Messages on their way between a heap and its dead letters: what left, and what arrived. Pure.

The one rule: a MOVE in a log and an enqueue of a mover belong together, one to one, and the mover's came second.
"""

from collections.abc import Callable, Iterable

from holdfast.heap.dedup import INTERNAL
from holdfast.heap.records import Enqueue, Move
from holdfast.sim.heap.driven.topic import place_of, source_of

Place = tuple[int, int]
"""A partition of either heap, and an offset there."""


class MovedMessages:
    """Follows moves. `broken` is told of the rule that is, and why."""

    def __init__(self, letters: int, broken: Callable[[str, str], None]) -> None:
        self._letters, self._say = letters, broken
        self._left: dict[Place, tuple[bytes, int]] = {}  # payload and destination of each MOVE
        self._arrived: dict[Place, Place] = {}  # where each MOVE's message is

    def left(self, place: int, at: int, move: Move, payload: bytes) -> None:
        """A MOVE is appended."""
        self._left[place, at] = payload, place_of(move.topic, move.partition, self._letters)

    def arrived(self, place: int, at: int, enqueue: Enqueue) -> None:
        """A mover's message is appended at its destination."""
        assert enqueue.producer is not None
        topic_id, number = enqueue.producer.producer.removeprefix(f"{INTERNAL}move/").split("/")
        move = source_of(topic_id, int(number)), enqueue.producer.sequence
        name = enqueue.payload.decode()
        if self._left.get(move) != (enqueue.payload, place):
            self._broken(f"message {name} is at {at} of p{place}, and did not leave p{move[0]} at {move[1]}")
        known = self._arrived.setdefault(move, (place, at))
        if known != (place, at):
            self._broken(f"message {name} that left once is at {known[1]} of p{known[0]} and at {at} of p{place}")

    def told(self, place: int, moves: Iterable[int]) -> None:
        """The outbox forgets moves."""
        for at in moves:
            if (place, at) in self._left and (place, at) not in self._arrived:
                self._broken(f"what left p{place} at {at} is forgotten, and is nowhere")

    def cut(self, place: int, offset: int) -> None:
        """What a log has from an offset on is gone."""
        for move, arrived in [*self._arrived.items()]:
            if arrived[0] == place and arrived[1] >= offset:
                del self._arrived[move]
            elif move[0] == place and move[1] >= offset:
                self._broken(f"what left p{place} at {move[1]} has arrived, and did not leave")
        self._left = {move: left for move, left in self._left.items() if move[0] != place or move[1] < offset}

    def end(self) -> None:
        """Everything is done."""
        for place, at in self._left.keys() - self._arrived.keys():
            self._broken(f"what left p{place} at {at} has not arrived")

    def _broken(self, what: str) -> None:
        self._say("moved-once", what)

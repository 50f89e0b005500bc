"""A leader's messages to its members, over a network, and their answers. Decides nothing: `Leader` does.

The one rule: what was appended meanwhile goes in one message. A member has few unanswered messages, and what is appended while it
has that many is gathered; appends of one turn of the loop are, too. A member that a message could not be sent to, or that lost
one, is asked where it is before anything else is sent: when it is connected again, or at the next `retry`.

The agent's own disk is a member like any other, but for one thing: if a write is refused there, the leader ends.
"""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from holdfast.log.replication.catch_up_rate import CatchUpRate
from holdfast.log.replication.leader import Ended, Leader
from holdfast.log.replication.messages import Announce, Answer, Append, Base
from holdfast.log.replication.network import ReplicaNetwork
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.settings import MIB

BYTES_MAX: Final = 1 * MIB  # of the entries in one message, unless a single one is larger
UNANSWERED_MAX: Final = 4


class MemberStreams:
    """The members and learners of one leader. `on_progress` is called after every answer, and when the leader has ended.

    A `ReplicaListener` from its construction to `close`.
    """

    __slots__ = (
        "_attempts",
        "_clock",
        "_leader",
        "_learner_rate",
        "_lost",
        "_network",
        "_stop_listening",
        "_turns",
        "_unanswered",
        "_woken",
        "on_progress",
    )

    def __init__(
        self, leader: Leader, network: ReplicaNetwork, *, clock: Clock, on_progress: Callable[[], None]
    ) -> None:
        self._leader, self._network, self._clock = leader, network, clock
        self.on_progress = on_progress
        everybody = (*leader.members, *leader.learners)
        self._attempts = dict.fromkeys(everybody, 0)  # what was sent before the last one is not waited for
        self._unanswered = dict.fromkeys(everybody, 0)
        self._lost = {each for each in everybody if not network.is_connected(each)}
        self._learner_rate: CatchUpRate | None = None
        self._turns: dict[str, Callable[[], int]] = {}
        self._woken = False
        self._stop_listening = network.listen(self)
        self.wake()

    def is_reachable(self, member: str) -> bool:
        """Whether it is sent what is appended now."""
        return member not in self._lost

    def wake(self) -> None:
        """There is something to send: it goes at the end of this turn of the loop."""
        if not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._send_all)

    def announce(self) -> None:
        """Tell members that have everything of the high watermark and of what is published."""
        for member in self._unanswered:
            self._send(member, announce=True)

    def retry(self) -> None:
        """Ask those again that lost a message, as far as they can be reached."""
        for member in [each for each in self._lost if self._network.is_connected(each)]:
            self._begin_again(member)

    def teach(self, learners: Collection[str], rate: CatchUpRate | None) -> None:
        """These are the learners from now on, and no others. Those of all leaders take turns at `rate`; None: like members."""
        self._learner_rate = rate
        for gone in self._leader.learners.difference(learners):
            self._attempts[gone] += 1  # whatever it still answers is late
            del self._unanswered[gone]
            self._lost.discard(gone)
            self._stop_turns(gone)
        self._leader.teach(learners)
        for each in self._leader.learners - self._unanswered.keys():
            self._attempts.setdefault(each, 0)
            self._unanswered[each] = 0
            if not self._network.is_connected(each):
                self._lost.add(each)
        if self._leader.learners:
            self.wake()

    def close(self) -> None:
        """Send nothing more, and listen to nobody."""
        self._stop_listening()
        self._stop_listening = _nobody_listens
        self._lost = set(self._unanswered)
        for learner in list(self._turns):
            self._stop_turns(learner)
        self.on_progress = _nobody_listens

    def connected(self, wal_id: str) -> None:
        """What was sent before may be lost."""
        if wal_id in self._unanswered:
            self._begin_again(wal_id)

    def disconnected(self, wal_id: str) -> None:
        """Its messages are answered by None, each."""

    def heard(self, wal_id: str) -> None:
        """A member that is sent nothing keeps up all the same."""
        if wal_id in self._unanswered:
            self._leader.heard(wal_id, self._clock.boot_ms())

    def _begin_again(self, member: str) -> None:
        self._attempts[member] += 1
        self._unanswered[member] = 0
        self._lost.discard(member)
        self._leader.reconnected(member)
        self.wake()

    def _send_all(self) -> None:
        self._woken = False
        for member in self._unanswered:
            self._send(member)

    def _send(self, member: str, *, announce: bool = False) -> None:
        if member in self._lost or member not in self._unanswered:
            return
        if self._learner_rate is not None and member in self._leader.learners:
            self._learner_rate.ask(self._turns.setdefault(member, partial(self._send_in_turn, member)))
            return
        leader = self._leader
        while (announce or leader.is_behind(member)) and self._send_one(member, announce=announce) is not None:
            pass

    def _send_one(self, member: str, *, announce: bool = False) -> Append | Base | Announce | None:
        """Send the next message, and return it; None: there is none, or too many are unanswered."""
        if self._unanswered[member] >= UNANSWERED_MAX:
            return None
        message = self._leader.next_message(member, BYTES_MAX, announce=announce)
        if message is None:
            return None
        if isinstance(message, Announce):
            self._network.send(member, message, _no_answer)
            return message
        self._unanswered[member] += 1
        self._network.send(member, message, partial(self._answered, member, self._attempts[member]))
        return message

    def _send_in_turn(self, member: str) -> int:
        """A learner's turn: one message, and the next one in its next turn."""
        if member in self._lost or member not in self._unanswered:
            return 0
        sent = self._send_one(member, announce=True)
        if sent is not None:
            self._send(member)
        return sent.size_bytes if isinstance(sent, Append) else 0

    def _stop_turns(self, member: str) -> None:
        turn = self._turns.pop(member, None)
        if turn is not None and self._learner_rate is not None:
            self._learner_rate.withdraw(turn)

    def _answered(self, member: str, attempt: int, answer: Answer | None) -> None:
        if attempt == self._attempts[member]:
            self._unanswered[member] -= 1
            if answer is None:
                self._lose(member)
        if answer is None:
            return
        self._leader.handle(member, answer, self._clock.boot_ms())
        self._send(member)
        self.on_progress()

    def _lose(self, member: str) -> None:
        """A message was lost: nothing that was sent is waited for, and nothing more is sent before it is asked where it is."""
        self._attempts[member] += 1
        self._unanswered[member] = 0
        self._lost.add(member)
        if member == self._network.wal_id:
            self._leader.end(Ended("the disk of this agent refused a write"))  # what was refused may be on other disks
            self.on_progress()


def _no_answer(_: Answer | None) -> None:
    """An announcement has none."""


def _nobody_listens() -> None:
    """It is closed."""

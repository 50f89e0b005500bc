"""A leader's part: who has what of its log, what to send to whom, what is acknowledged, who is in sync. No I/O.

The one rule: the high watermark is the highest offset that max(w, min.insync) members of the epoch's fixed set have fsynced, and
only once that entry is of this leader's own epoch. The in-sync set says who keeps up; it never lowers w.

The leader's own disk is a member like any other: its messages go to the replica of this agent, whose answers count for it. After
`ended` is set nothing is appended, sent or acknowledged any more; appends that were not have an unknown outcome. A restarted agent
takes a new epoch: it may have sent entries that its own disk lost. So does one whose own write was refused.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.log.replication.entry_log import EntryLog, find_fork
from holdfast.log.replication.messages import Ack, Announce, Answer, Append, Base, Mismatch, Reject
from holdfast.log.replication.positions import NOWHERE, PartitionKey, Position, ReplicaEntry, epoch_start
from holdfast.log.replication.quorum import reached_by, write_quorum
from holdfast.log.wal.frames import Buffer
from holdfast.vocabulary.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a leader or a takeover is over. `promised`: the epoch that a replica has promised, 0 if that is not the reason.

    A promise above the epoch in the store means that the store went backwards.
    """

    reason: str
    promised: int = 0


_NEVER_MS: Final = float("-inf")


@dataclass(slots=True)
class _Member:
    """What is known of a replica."""

    sent: Position  # up to here it was sent something, if nothing was lost
    caught_up_at_ms: float
    acked: Position = NOWHERE  # matched and fsynced under this epoch
    needs_base: bool = False
    probing: bool = True  # it is not known what it has: one message at a time
    waiting: bool = False  # for the answer to that one
    announced: tuple[int, Position] = (0, NOWHERE)
    mark: tuple[int, float] = (0, 0.0)  # the high watermark at some time: whoever reaches it had caught up then


class Leader:
    """One epoch of a partition, from the choice of its log to its end."""

    def __init__(
        self,
        partition: PartitionKey,
        epoch: int,
        log: EntryLog,
        members: Sequence[str],
        *,
        now_ms: float,
        learners: Iterable[str] = (),
        min_insync: int = 1,
        covered_to: int = 0,
        cover: Callable[[int, int], Sequence[Buffer]] | None = None,
    ) -> None:
        """`covered_to`: the first offset to give out, if the log ends before; `cover` makes batches without records up to it."""
        if log.position.epoch >= epoch:
            raise InvalidError("epoch of a leader", epoch, f"above that of its log, {log.position.epoch}")
        self.partition, self.epoch, self.log = partition, epoch, log
        self.members = tuple(members)  # fixed for the epoch
        self.learners = set(learners) - set(members)  # get everything, and are not counted
        self.hw = log.base.offset
        self.ended: Ended | None = None
        self.opened = False
        self.needed = 0  # how many members must have an append
        self.require(min_insync)
        recovered = log.position
        log.append(epoch_start(epoch, recovered.offset))
        if cover is not None and recovered.offset < covered_to:
            covered = cover(recovered.offset, covered_to)
            log.append(ReplicaEntry(epoch, recovered.offset, covered_to - recovered.offset, covered))
        self.start = log.position  # where the epoch begins: on w members before it serves
        # Everybody is taken to have the whole log until it says otherwise.
        self._recovered = recovered
        self._members = {each: _Member(recovered, now_ms) for each in members}
        self._members |= {each: _Member(recovered, _NEVER_MS) for each in self.learners}

    @property
    def published(self) -> Position:
        return self.log.base

    @property
    def may_open(self) -> bool:
        """Whether w members have the epoch-start entry: the offset alone would not show it."""
        return self.ended is None and len(self.matched) >= write_quorum(len(self.members))

    def open(self) -> None:
        """The open commit is known to have been made: serve."""
        self.opened = True
        self.hw = self.start.offset

    @property
    def matched(self) -> tuple[str, ...]:
        """The members that have the whole log up to the epoch-start entry."""
        return tuple(each for each in self.members if self._members[each].acked >= self.start)

    def acked(self, member: str) -> Position:
        """What a member or learner has."""
        return self._members[member].acked

    def append(self, count: int, payload: Sequence[Buffer], checksum: int | None = None) -> ReplicaEntry:
        """Number an entry: `next_message` sends it, to this agent's own disk as well, at once."""
        if self.ended is not None or not self.opened:
            raise InvalidError("append", "before the epoch was opened or after its end", "a leader that serves")
        entry = ReplicaEntry(self.epoch, self.log.position.offset, count, payload, checksum)
        self.log.append(entry)
        return entry

    def require(self, min_insync: int) -> None:
        """So many members must have an append from now on, if that is more than w."""
        self.needed = max(write_quorum(len(self.members)), min_insync)

    def is_behind(self, member: str) -> bool:
        """Whether `next_message` may have more for it than the high watermark and what is published."""
        state = self._members[member]
        return state.sent != self.log.position or state.probing or state.needs_base

    def next_message(self, member: str, bytes_max: int, *, announce: bool = True) -> Append | Base | Announce | None:
        """The next thing to send to a member, as if what was sent before had arrived; None: nothing.

        `announce`: also if that is nothing but the high watermark and what is published, which the next `Append` tells as well.
        """
        state = self._members[member]
        if self.ended is not None or (state.probing and state.waiting):
            return None
        if not announce and state.sent == self.log.position and not state.probing and not state.needs_base:
            return None  # it was sent everything, as almost always
        state.waiting = state.probing
        if state.needs_base:
            state.needs_base, state.sent = False, self.log.base
            return Base(partition=self.partition, epoch=self.epoch, published=self.log.base)
        if state.sent < self.log.base:
            state.sent = self.log.base  # released meanwhile: let it say whether it has that
        published = self.log.base
        news = (self.hw, published)
        if state.sent == self.log.position and not state.probing:
            if not announce or state.announced == news or state.acked.epoch != self.epoch:
                return None
            state.announced = news
            return Announce(partition=self.partition, epoch=self.epoch, hw=self.hw, published=published)
        previous = state.sent
        # What a learner has is asked without entries: one that answers nothing would be sent them again and again.
        entries = () if state.probing and member in self.learners else self.log.after(previous, bytes_max)
        if entries:
            state.sent = entries[-1].position
        state.announced = news
        return Append(
            partition=self.partition,
            epoch=self.epoch,
            previous=previous,
            entries=entries,
            hw=self.hw,
            published=published,
        )

    def reconnected(self, member: str) -> None:
        """What was sent may be lost: begin again behind what is known to be there."""
        state = self._members[member]
        state.sent = state.acked if state.acked > NOWHERE else self._recovered
        state.announced, state.needs_base, state.probing, state.waiting = (0, NOWHERE), False, True, False

    def handle(self, member: str, answer: Answer, now_ms: float) -> None:
        """An answer of a member or learner, perhaps late or repeated."""
        if answer.epoch != self.epoch or member not in self._members or self.ended is not None:
            return
        if isinstance(answer, Ack):
            self._acked(member, answer.matched, now_ms)
        elif isinstance(answer, Reject) and answer.promised > self.epoch:
            self.end(Ended(f"replica {member} has promised epoch {answer.promised}", answer.promised))
        elif isinstance(answer, Mismatch):
            self._find_fork(member, answer)

    def end(self, reason: Ended) -> None:
        """Stop leading. Appends that were not acknowledged have an unknown outcome."""
        self.ended = self.ended or reason

    def release(self, offset: int) -> None:
        """The commit that publishes everything below `offset` is known to have been made."""
        if offset > self.hw:
            raise InvalidError("published offset", offset, f"at most the high watermark {self.hw}")
        position = self.log.position_at(offset)
        if position > self.log.base:
            self.log.release(position)

    def in_sync(self, now_ms: float, lag_ms: float) -> tuple[str, ...]:
        """The members that keep up: out after `lag_ms` below the high watermark, in again when they reach it."""
        return tuple(each for each in self.members if now_ms - self._members[each].caught_up_at_ms < lag_ms)

    def taught(self, now_ms: float, lag_ms: float) -> set[str]:
        """The learners that have the log up to the high watermark, or had it less than `lag_ms` ago: the rest is on its way."""
        states = ((each, self._members[each]) for each in self.learners)
        return {
            each
            for each, state in states
            if state.acked.epoch == self.epoch
            and (state.acked.offset >= self.hw or now_ms - state.caught_up_at_ms < lag_ms)
        }

    def teach(self, learners: Collection[str]) -> None:
        """These are its learners from now on, and no others. Whoever may become a member gets the log first."""
        for gone in self.learners.difference(learners):
            del self._members[gone]
        self.learners = set(learners) - set(self.members)
        for each in self.learners - self._members.keys():
            self._members[each] = _Member(self._recovered, _NEVER_MS)

    def heard(self, member: str, now_ms: float) -> None:
        """Its connection is alive: a member that has everything and is sent nothing is in sync all the same."""
        state = self._members[member]
        if state.acked.epoch != self.epoch:
            return
        offset, at_ms = state.mark
        if state.acked.offset >= self.hw:
            state.caught_up_at_ms = now_ms
        elif state.acked.offset >= offset:  # under load it is always a little behind, and may keep up all the same
            state.caught_up_at_ms = max(state.caught_up_at_ms, at_ms)
        if state.acked.offset >= offset:
            state.mark = (self.hw, now_ms)

    def _find_fork(self, member: str, answer: Mismatch) -> None:
        state = self._members[member]
        if state.acked > answer.position:
            if member not in self.learners:
                return  # late: it has matched since
            # or it has dropped its log, as only a replica may that is not counted
            state.acked, state.caught_up_at_ms = NOWHERE, _NEVER_MS
        state.probing, state.waiting = True, False
        fork = find_fork(self.log, answer.base, answer.position, answer.epochs)
        if fork is None or fork < self.log.base:
            state.needs_base = True
        else:
            state.sent = fork

    def _acked(self, member: str, matched: Position, now_ms: float) -> None:
        if matched > self.log.position:
            self.end(Ended(f"replica {member} has {matched}, and the log ends at {self.log.position}"))
            return
        state = self._members[member]
        state.acked = max(state.acked, matched)
        state.sent = max(state.sent, matched)
        state.probing = state.waiting = False
        if self.opened:
            states = self._members
            reached = reached_by([states[each].acked for each in self.members], self.needed)
            if reached is not None and reached.epoch == self.epoch:
                self.hw = max(self.hw, reached.offset)
        self.heard(member, now_ms)

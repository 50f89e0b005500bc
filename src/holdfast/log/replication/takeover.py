"""A takeover of a replicated partition: seal, choose, fetch, replicate, open. A state machine without I/O.

Before it begins, the lease is acquired (the commit is known, not merely sent), every older leader of this process has ended with
its producer state, and the record was read after that commit. Then `sends` are messages to send now, `handle` takes the answers,
and `open_commit` is the commit to make, fenced by the lease and the record's version, once there is one. When it is known to have
been made, `committed` returns the leader, which serves.

Before that nothing is appended, acknowledged, published or read above what is published. The one rule: there is one set to seal,
the one that served last. An epoch that never opened has acknowledged nothing, and nobody needs its set.

Nobody else ever had this epoch. A replica that has entries of it, or of a higher one, knows more than the store, which was put back
in time: they would be taken for ours, and what we acknowledge would not be there. Members that need not be sealed are asked all the
same, while the log is sent to them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from holdfast.log.replication.entry_log import EntryLog
from holdfast.log.replication.leader import Ended, Leader
from holdfast.log.replication.messages import (
    Answer,
    Mismatch,
    ReadTail,
    Reject,
    Request,
    Seal,
    Sealed,
    TailEntries,
    WrongWal,
)
from holdfast.log.replication.positions import NOWHERE, PartitionKey, Position
from holdfast.log.replication.quorum import seal_quorum
from holdfast.log.segments.model import EpochStart
from holdfast.log.wal.frames import Buffer
from holdfast.vocabulary.errors import CorruptError, InvalidError


class Phase(Enum):
    """How far a takeover is."""

    SEALING = "sealing"
    FETCHING = "fetching"
    REPLICATING = "replicating"
    SERVING = "serving"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """What the store knows of a partition, read after the lease was acquired.

    `opened_replicas`: the set of the last epoch that served; nobody, if there was none. `handed_over`: where the log of a
    source ended that was drained and moved the lease here. `unclean_epoch`: entries of it and of later epochs do not count, because
    it began without what others may have, and was not opened; 0: there is none.
    """

    published: Position = NOWHERE
    reserved: int = 0
    opened_epoch: int = 0
    opened_replicas: tuple[str, ...] = ()
    handed_over: Position | None = None
    unclean_epoch: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing can have been acknowledged above `published`."""
        return not self.opened_replicas or self.reserved <= self.published.offset


Cover = Callable[[int, int], Sequence[Buffer]]
"""Batches without records for the offsets from one to another."""


class OpenCommit(NamedTuple):
    """The fenced commit that opens an epoch: its set, and the offset where it starts, which is reserved."""

    epoch: int
    replicas: tuple[str, ...]
    start: int


class Send(NamedTuple):
    """A message to the replica `to`, a WAL id; this agent's own among them."""

    to: str
    message: Request


class QuorumTakeover:
    """One epoch of a partition, until it serves."""

    def __init__(
        self,
        partition: PartitionKey,
        epoch: int,
        stored: StoredState,
        members: Sequence[str],
        *,
        own: EntryLog,
        min_insync: int = 1,
        learners: Sequence[str] = (),
        tail_bytes_max: int = 1 << 20,
    ) -> None:
        if stored.opened_epoch >= epoch:
            raise InvalidError("epoch of a takeover", epoch, f"above the last that was opened, {stored.opened_epoch}")
        self.partition, self.epoch, self.stored = partition, epoch, stored
        self.members, self.learners = tuple(members), tuple(learners)
        self.phase = Phase.SEALING
        self.ended: Ended | None = None
        self.leader: Leader | None = None
        self._min_insync, self._tail_bytes_max = min_insync, tail_bytes_max
        self._asked: set[str] = set()
        self._sealed: dict[str, Position] = {}
        self._fetching = ("", NOWHERE)  # from whom, up to where
        self._log = EntryLog(stored.published)
        self._own = own
        self._cover: Cover | None = None  # set: those that have promised are enough
        self._sends: list[Send] = []

    def begin(self, now_ms: float) -> None:
        """Decide whether anything has to be sealed."""
        if self.stored.clean:
            self._replicate(now_ms)
        elif self.stored.handed_over is not None and self._own.position == self.stored.handed_over:
            self._take(self._own)
            self._replicate(now_ms)
        else:
            self.resend(self.stored.opened_replicas)

    def sends(self) -> list[Send]:
        """The messages to send now; each once. While it replicates, `leader.next_message` has them."""
        taken, self._sends = self._sends, []
        return taken

    def resend(self, replicas: Sequence[str]) -> None:
        """These can be reached (again): what they were asked may be lost."""
        for each in replicas:
            if self.phase is Phase.SEALING and each in self.stored.opened_replicas and each not in self._sealed:
                self._seal((each,))
            elif self.phase is Phase.FETCHING and each == self._fetching[0]:
                self._fetch()
            elif self.leader is not None and each in (*self.members, *self.learners):
                self.leader.reconnected(each)

    def lost(self, replica: str, now_ms: float) -> None:
        """The replica cannot be reached: fetch from another, if those that are sealed without it are enough."""
        if self.phase not in (Phase.SEALING, Phase.FETCHING):
            return
        self._sealed.pop(replica, None)
        if self.phase is Phase.FETCHING and replica == self._fetching[0]:
            self.phase, self._log, self._cover = Phase.SEALING, EntryLog(self.stored.published), None
            self._choose(now_ms)

    def go_on_without_others(self, cover: Cover, now_ms: float) -> None:
        """A person gives up what only those have that have not promised. It starts at what is reserved.

        A log that does not reach the last epoch that served may differ from what was read, and does not count.
        """
        if self.phase is Phase.SEALING:
            self._cover = cover
            self._choose(now_ms)

    def handle(self, sender: str, answer: Answer, now_ms: float) -> None:
        """An answer of the replica `sender`, perhaps late or repeated."""
        if answer.epoch != self.epoch or self.ended is not None:
            return
        if isinstance(answer, Sealed) and self._is_of_another(answer.position):
            self.end(Ended(f"replica {sender} has entries of epoch {answer.position.epoch}", answer.position.epoch))
        elif self.leader is not None:
            self.leader.handle(sender, answer, now_ms)
            if self.leader.ended is not None:
                self.end(self.leader.ended)
        elif isinstance(answer, Reject):
            if answer.promised > self.epoch:
                self.end(Ended(f"replica {sender} has promised epoch {answer.promised}", answer.promised))
        elif isinstance(answer, Sealed):
            self._on_sealed(sender, answer, now_ms)
        elif isinstance(answer, TailEntries):
            self._on_entries(sender, answer, now_ms)
        elif isinstance(answer, Mismatch) and sender == self._fetching[0]:
            raise CorruptError(
                f"replica {sender}",
                f"its log ends at {self._fetching[1]} and lacks what is published, {self.stored.published}",
            )
        elif isinstance(answer, WrongWal):
            self._sealed.pop(sender, None)

    @property
    def sealed(self) -> tuple[str, ...]:
        """Those of the set that served last that have promised, in the order of the set."""
        return tuple(each for each in self.stored.opened_replicas if each in self._sealed)

    @property
    def open_commit(self) -> OpenCommit | None:
        """The commit to make now; None: not yet, or not any more."""
        if self.phase is not Phase.REPLICATING or self.leader is None or not self.leader.may_open:
            return None
        return OpenCommit(self.epoch, self.members, self.leader.start.offset)

    def committed(self) -> Leader:
        """The open commit is known to have been made. The leader serves; its producer state comes from footer and log."""
        assert self.leader is not None
        self.leader.open()
        self.phase = Phase.SERVING
        return self.leader

    def end(self, reason: Ended) -> None:
        """It is over: the lease is lost, the commit was refused, or a replica has promised a higher epoch."""
        self.ended, self.phase = self.ended or reason, Phase.ENDED
        if self.leader is not None:
            self.leader.end(reason)

    def _seal(self, replicas: Iterable[str]) -> None:
        for each in replicas:
            self._asked.add(each)
            self._sends.append(Send(each, Seal(partition=self.partition, epoch=self.epoch, wal_id=each)))

    def _is_of_another(self, position: Position) -> bool:
        """Whether a replica with a log up to here has entries of this epoch that are not ours: before it serves there is one."""
        if self.phase is Phase.SERVING:
            return False
        return position > self.leader.start if self.leader is not None else position.epoch >= self.epoch

    def _on_sealed(self, sender: str, answer: Sealed, now_ms: float) -> None:
        if self.phase is Phase.SEALING and sender in self.stored.opened_replicas:
            self._sealed[sender] = self._counted(answer)
            self._choose(now_ms)

    def _counted(self, sealed: Sealed) -> Position:
        """Where a log ends, without what an unclean takeover added that was not opened."""
        unclean, at = self.stored.unclean_epoch, sealed.base
        if not unclean or sealed.position.epoch < unclean:
            return sealed.position
        for before, after in pairwise((EpochStart(sealed.base.epoch, sealed.base.offset), *sealed.epochs)):
            if after.epoch >= unclean:
                return max(at, Position(before.epoch, after.start_offset))
        return at

    def _choose(self, now_ms: float) -> None:
        """Take the highest position, by epoch first, once enough of the set that served last have promised."""
        sealed = self._sealed
        if self._cover is not None:
            last = self.stored.opened_epoch
            sealed = {each: position for each, position in sealed.items() if position.epoch >= last}
        elif len(sealed) < seal_quorum(len(self.stored.opened_replicas)):
            return
        owner = max(sealed, key=self._rank, default="")
        if not owner or sealed[owner] <= self.stored.published:
            self._replicate(now_ms)
            return
        self.phase, self._fetching = Phase.FETCHING, (owner, self._sealed[owner])
        self._fetch()

    def _rank(self, replica: str) -> Position:
        return self._sealed[replica]

    def _fetch(self) -> None:
        tail = ReadTail(
            partition=self.partition, epoch=self.epoch, start=self._log.position, bytes_max=self._tail_bytes_max
        )
        self._sends.append(Send(self._fetching[0], tail))

    def _on_entries(self, sender: str, answer: TailEntries, now_ms: float) -> None:
        owner, end = self._fetching
        if self.phase is not Phase.FETCHING or sender != owner or answer.previous != self._log.position:
            return  # late: it was asked again, or somebody else was
        for entry in answer.entries:
            if entry.position <= end:
                self._log.append(entry)
        if self._log.position == end:
            self._replicate(now_ms)
        elif answer.entries:
            self._fetch()
        else:
            raise CorruptError(f"replica {sender}", f"its log ends at {answer.position}, and it was sealed at {end}")

    def _take(self, own: EntryLog) -> None:
        if not own.contains(self.stored.published):
            raise CorruptError(
                "replicated log", f"it ends at {own.position} and lacks what is published, {self.stored.published}"
            )
        for entry in own.after(self.stored.published):
            self._log.append(entry)

    def _replicate(self, now_ms: float) -> None:
        self.phase = Phase.REPLICATING
        if self.stored.opened_epoch:  # before that there were no replicas
            self._seal(each for each in self.members if each not in self._asked)
        self.leader = Leader(
            self.partition,
            self.epoch,
            self._log,
            self.members,
            now_ms=now_ms,
            learners=self.learners,
            min_insync=self._min_insync,
            covered_to=self.stored.reserved if self._cover is not None else 0,
            cover=self._cover,
        )

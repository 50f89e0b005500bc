"""One replica of a host: messages that wait until it is read from the WAL, there is room in the WAL, or there is memory.

The one rule: a message is answered once, and never from within `take`. Messages are handled in the order in which they came, except
those without entries, which do not wait for memory: the protocol allows any order, and what is published makes room.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from holdfast.log.errors import NotLeaderError
from holdfast.log.partition.watermark import Watermark
from holdfast.log.replication.entries_budget import EntriesBudget
from holdfast.log.replication.messages import Announce, Answer, Append, Base, Request
from holdfast.log.replication.network import OnAnswer
from holdfast.log.replication.positions import PartitionKey
from holdfast.log.replication.replica import Replica
from holdfast.log.replication.replica_wal import ReplicaWal
from holdfast.log.replication.settings import ReplicaCounters, ReplicaSettings
from holdfast.log.wal import Wal
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, HoldfastError, InvalidError

_log: Final = logging.getLogger(__name__)

_OF_A_LEADER: Final = (Append, Base, Announce)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostResources:
    """What the replicas of a host share. `start` runs a task for as long as the host is open."""

    wal: Wal
    wal_id: str
    clock: Clock
    settings: ReplicaSettings
    counters: ReplicaCounters
    budget: EntriesBudget
    start: Callable[[Coroutine[Any, Any, None]], object]


class _Waiting(NamedTuple):
    """A message, from the agent with the WAL `sender`; its entries count as `size_bytes`."""

    message: Request
    sender: str
    on_answer: OnAnswer
    size_bytes: int
    since_ms: int


class HostedReplica:
    """One partition."""

    def __init__(self, partition: PartitionKey, resources: HostResources) -> None:
        self.partition = partition
        self.failure = ""  # why it cannot be read from the WAL
        self.visible = Watermark(0)  # the end of what readers see of the log
        self.written_at_ms = 0  # when a leader sent something last
        self._resources = resources
        self._wal_replica: ReplicaWal | None = None
        self._waiting: deque[_Waiting] = deque()
        self._serving = False
        self._full = False  # the first that waits does so for memory
        self._handling = False
        self._closed = False
        self._leader_hw = 0  # the high watermark that the leader named last
        self._leader = (0, "")  # epoch of the last message of a leader, and the WAL of its agent
        self._charged_bytes = 0

    @property
    def replica(self) -> Replica | None:
        """What it promised and has; None: it is not read yet, or cannot be."""
        return None if self._wal_replica is None else self._wal_replica.replica

    @property
    def waiting(self) -> int:
        """Messages that wait."""
        return len(self._waiting)

    @property
    def size_bytes(self) -> int:
        """Its entries in memory."""
        replica = self.replica
        return 0 if replica is None else replica.log.size_bytes

    @property
    def lag(self) -> int:
        """How many offsets its log ends below the leader's high watermark, as of the leader's last message."""
        replica = self.replica
        return 0 if replica is None else max(0, self._leader_hw - replica.log.position.offset)

    @property
    def leader(self) -> str:
        """The WAL of the agent that leads the promised epoch; "": nobody has sent anything as such."""
        epoch, wal_id = self._leader
        return wal_id if self.replica is not None and epoch == self.replica.promised else ""

    async def open(self) -> None:
        """Read it from the WAL. One that cannot be read says so, and answers nothing."""
        resources = self._resources
        try:
            self._wal_replica = await ReplicaWal.open(resources.wal, resources.wal_id, self.partition)
        except (CorruptError, OSError) as error:
            self.failure = str(error)
            _log.error("replica of %s cannot be read and answers nothing: %s", name_of(self.partition), error)
        self._charge()
        self._show()

    async def begin_anew(self, opened_epoch: int, opened_replicas: tuple[str, ...], published: int) -> bool:
        """One that cannot be read drops its log and keeps its promise, if the store says that nobody needs what it had."""
        resources = self._resources
        if not self.failure or self._closed:
            return False
        try:
            mine = await ReplicaWal.begin_anew(
                resources.wal,
                resources.wal_id,
                self.partition,
                opened_epoch=opened_epoch,
                counted=resources.wal_id in opened_replicas,
                published=published,
            )
        except (CorruptError, OSError):
            return False
        if mine is None:
            return False
        self._wal_replica, self.failure = mine, ""
        self._charge()
        self._show()
        return True

    def take(self, message: Request, sender: str, on_answer: OnAnswer) -> None:
        """Handle a message now, or as soon as possible."""
        size_bytes = message.size_bytes if isinstance(message, Append) else 0
        now_ms = self._resources.clock.boot_ms()
        item = _Waiting(message, sender, on_answer, size_bytes, now_ms)
        if self._closed:
            self._refuse(item, "closed")
            return
        open_now = self._wal_replica is not None and self._resources.wal.has_room(size_bytes)
        if open_now and (not self._waiting or (self._full and not size_bytes)) and self._fits(item):
            self._handle(item)
            return
        self._resources.counters.waits += 1
        self._waiting.append(item)
        if not self._serving:
            self._serving = True
            self._resources.start(self._serve())

    def drop(self, opened_epoch: int, opened_replicas: tuple[str, ...], published: int) -> bool:
        """Drop the log if the store says that nobody counts it. The promise stays."""
        dropped = self._wal_replica is not None and self._wal_replica.drop(opened_epoch, opened_replicas, published)
        self._charge()
        self._show()
        return dropped

    def release_published(self, published: int) -> None:
        """Release what a dropped log left in the WAL, up to what is published."""
        if self._wal_replica is not None:
            self._wal_replica.release_published(published)

    def discard(self) -> None:
        """The topic was deleted: nothing of it is needed any more."""
        if self._wal_replica is not None:
            self._wal_replica.discard()
        self._resources.budget.charge(-self._charged_bytes)
        self._charged_bytes = 0

    def close(self) -> None:
        """Take nothing more; what waits is not answered."""
        self._closed = True
        waiting, self._waiting = list(self._waiting), deque()
        for item in waiting:
            self._answer(item, None)

    async def _serve(self) -> None:
        """Handle what waits, in order."""
        try:
            if self._wal_replica is None and not self.failure:
                await self.open()
            while self._waiting and not self._closed:
                if self.failure:
                    self._refuse(self._waiting.popleft(), "corrupt")
                else:
                    await self._handle_next(self._waiting[0])
        except HoldfastError:  # the WAL is closed, or has failed and ends the process
            self.close()
        except Exception:  # of one partition: it answers nothing more, and nobody waits for it
            _log.exception("replica of %s failed and answers nothing", name_of(self.partition))
            self.failure = "it failed"
            self.close()
        finally:
            self._serving = False

    async def _handle_next(self, item: _Waiting) -> None:
        budget, wait_ms = self._resources.budget, self._resources.settings.entries_wait_ms
        self._full = True
        try:
            self._announce(item)
            while not self._fits(item) and not self._closed:
                left_ms = item.since_ms + wait_ms - self._resources.clock.boot_ms()
                if left_ms <= 0:
                    self._waiting.popleft()
                    self._refuse(item, "no memory")
                    return
                await budget.freed.wait_ms(self._resources.clock, left_ms)
        finally:
            self._full = False
        await self._resources.wal.room(item.size_bytes)
        if not self._closed:
            self._waiting.popleft()
            self._handle(item)

    def _fits(self, item: _Waiting) -> bool:
        """Whether its entries may be kept. Those of the agent's own leader are in its memory anyway."""
        own = item.sender == self._resources.wal_id
        return own or not item.size_bytes or self._resources.budget.fits(item.size_bytes)

    def _announce(self, item: _Waiting) -> None:
        """What the leader says of its progress counts at once, though its entries have to wait: it may make room for them."""
        message, replica = item.message, self._wal_replica
        if isinstance(message, Append) and not self._fits(item) and replica is not None:
            progress = Announce(
                partition=self.partition, epoch=message.epoch, hw=message.hw, published=message.published
            )
            self._handle(item._replace(message=progress, on_answer=_nobody))

    def _handle(self, item: _Waiting) -> None:
        replica, message = self._wal_replica, item.message
        assert replica is not None
        self._handling = True
        try:
            replica.handle(message, partial(self._answer, item))
        except (InvalidError, CorruptError) as error:
            what = f"{type(message).__name__} of {item.sender} for {name_of(self.partition)}"
            _log.warning("%s refused: %s", what, error)
            self._refuse(item, "invalid")
        except HoldfastError:  # the WAL is closed, or has failed and ends the process
            self._refuse(item, "WAL")
        finally:
            self._handling = False
        self._note_leader(item, replica.replica)
        self._charge()
        self._show()

    def _note_leader(self, item: _Waiting, replica: Replica) -> None:
        message = item.message
        if isinstance(message, _OF_A_LEADER) and message.epoch == replica.promised:
            self._leader = message.epoch, item.sender
            if not isinstance(message, Base):
                self._leader_hw = message.hw
            self.written_at_ms = item.since_ms

    def _charge(self) -> None:
        """Count the entries that another agent's leader has sent."""
        own, mine = self._leader[1] == self._resources.wal_id, self._wal_replica
        size_bytes = 0 if own or mine is None else mine.replica.log.size_bytes
        if size_bytes != self._charged_bytes:
            self._resources.budget.charge(size_bytes - self._charged_bytes)
            self._charged_bytes = size_bytes

    def _refuse(self, item: _Waiting, reason: str) -> None:
        self._resources.counters.refuse(reason)
        self._answer(item, None)

    def _answer(self, item: _Waiting, answer: Answer | None) -> None:
        if self._handling or answer is None:
            # Later in the loop: whoever is called must not find a replica that is just deciding or taking something back.
            asyncio.get_running_loop().call_soon(self._call_back, item, answer)
        else:
            self._call_back(item, answer)

    def _call_back(self, item: _Waiting, answer: Answer | None) -> None:
        if answer is None:
            self._charge()  # a write that failed has taken entries back
        self._show()
        item.on_answer(answer)

    def _show(self) -> None:
        """Set what is visible: up to the high watermark, as far as the log is there. It goes back with a log that begins again."""
        if self._wal_replica is None:
            return
        replica = self._wal_replica.replica
        visible = min(replica.hw, replica.log.position.offset)
        if visible == self.visible.value:
            return
        if visible < self.visible.value:
            before, self.visible = self.visible, Watermark(visible)
            before.fail_above(
                -1, NotLeaderError(name_of(self.partition), self.partition[1], reason="its log began again")
            )
        else:
            self.visible.set(visible)


def name_of(partition: PartitionKey) -> str:
    """A partition as logs show it, and as the key of its messages between agents."""
    return f"{partition[0].hex()}:{partition[1]}"


def _nobody(_: Answer | None) -> None:
    """It was an announcement."""

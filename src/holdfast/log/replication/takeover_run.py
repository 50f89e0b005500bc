"""A takeover over a network: sends what `Takeover` wants sent, gives it the answers, and waits until it may be opened.

The one rule: an epoch is replicated once. What one attempt has sent stays with the replicas, and a second one that chose another
log would give a position two histories. So an attempt that came as far as replicating calls `on_replicating` first, and when it
fails, the next one needs a new epoch. One that failed before that, while it was sealing or fetching, may be repeated.
"""

from collections.abc import Callable

from holdfast.log.errors import TO_REPLICATE, TO_SEAL
from holdfast.log.replication.leader import Ended
from holdfast.log.replication.member_streams import MemberStreams
from holdfast.log.replication.messages import Answer, Sealed
from holdfast.log.replication.network import ReplicaNetwork
from holdfast.log.replication.quorum import seal_quorum, write_quorum
from holdfast.log.replication.takeover import Cover, Phase, QuorumTakeover
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.tasks import Notify


class TakeoverRun:
    """One takeover. `streams` are its leader's, from when there is one. A `ReplicaListener`."""

    def __init__(
        self, takeover: QuorumTakeover, network: ReplicaNetwork, *, clock: Clock, on_replicating: Callable[[], None]
    ) -> None:
        self.takeover = takeover
        self.streams: MemberStreams | None = None
        self._network, self._clock, self._on_replicating = network, clock, on_replicating
        self._answered = Notify()
        self._failure: HoldfastError | None = None
        self._stop_listening: Callable[[], None] = lambda: None

    @property
    def ready(self) -> bool:
        """Whether the open commit may be made."""
        return self.takeover.open_commit is not None

    @property
    def waits_for(self) -> tuple[str, int, tuple[str, ...], tuple[str, ...]]:
        """For what it needs replicas, how many, and which of them have answered, which have not."""
        takeover = self.takeover
        if takeover.leader is not None:
            everybody, answering = takeover.members, takeover.leader.matched
            return TO_REPLICATE, write_quorum(len(everybody)), answering, _without(everybody, answering)
        everybody, answering = takeover.stored.opened_replicas, takeover.sealed
        return TO_SEAL, seal_quorum(len(everybody)), answering, _without(everybody, answering)

    async def until_ready(self, wait_ms: float) -> None:
        """Return when it is `ready` or has ended, or nobody has answered for `wait_ms`. Raises what the answers are wrong about."""
        self._stop_listening = self._network.listen(self)
        self.takeover.begin(self._clock.boot_ms())
        self._proceed()
        await self._wait(wait_ms)

    async def go_on_without_others(self, cover: Cover, wait_ms: float) -> None:
        """The same, with those that have promised so far. See `Takeover.go_on_without_others`."""
        self.takeover.go_on_without_others(cover, self._clock.boot_ms())
        self._proceed()
        await self._wait(wait_ms)

    async def _wait(self, wait_ms: float) -> None:
        while not self.ready and self.takeover.ended is None:
            if not await self._answered.wait_ms(self._clock, wait_ms):
                return
            if self._failure is not None:
                raise self._failure

    def close(self, reason: str) -> None:
        """It is given up."""
        self._leave()
        self.takeover.end(Ended(reason))
        if self.streams is not None:
            self.streams.close()

    def connected(self, wal_id: str) -> None:
        """What it was asked may be lost."""
        if self.streams is None:
            self.takeover.resend([wal_id])
            self._proceed()

    def disconnected(self, wal_id: str) -> None:
        """Another one may have what was to be fetched from it."""
        if self.streams is None:
            self.takeover.lost(wal_id, self._clock.boot_ms())
            self._proceed()

    def heard(self, wal_id: str) -> None:
        """Nothing is expected of it yet."""

    def _proceed(self) -> None:
        """Send what is to be sent; from the choice of the log on, that is the leader's."""
        for to, message in self.takeover.sends():
            self._network.send(to, message, lambda answer, to=to: self._on_answer(to, answer))  # type: ignore[misc]
        leader = self.takeover.leader
        if leader is not None and self.streams is None:
            self._leave()
            self._on_replicating()
            self.streams = MemberStreams(leader, self._network, clock=self._clock, on_progress=self._on_progress)

    def _leave(self) -> None:
        self._stop_listening()
        self._stop_listening = lambda: None

    def _on_answer(self, sender: str, answer: Answer | None) -> None:
        if self.takeover.phase is Phase.ENDED or (self.streams is not None and not isinstance(answer, Sealed)):
            return  # late
        if answer is None:
            self.takeover.lost(sender, self._clock.boot_ms())
        else:
            self._answered.notify()
            try:
                self.takeover.handle(sender, answer, self._clock.boot_ms())
            except HoldfastError as error:
                self._failure = error
                return
        self._proceed()

    def _on_progress(self) -> None:
        leader = self.takeover.leader
        if leader is not None and leader.ended is not None:
            self.takeover.end(leader.ended)
        self._answered.notify()


def _without(everybody: tuple[str, ...], some: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in everybody if each not in some)

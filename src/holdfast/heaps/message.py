"""A message that this client has leased."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.heap.errors import LeaseLostError
from holdfast.heap.model import PoppedMessage
from holdfast.heap.records import Headers
from holdfast.heap.wire import LostLease, NackRequest, ReleaseRequest
from holdfast.heaps import tracing
from holdfast.vocabulary.errors import OutcomeUnknownError

if TYPE_CHECKING:
    from holdfast.heaps.leases import Leases


class Message(msgspec.Struct, gc=False, eq=False):
    """A message, leased to this client until it is settled, and renewed until then.

    As a context manager it is acknowledged at the end of the body, and negatively if the body raises; unless it was settled there.
    `lost` is set when the lease was lost: somebody else may have the message now, and settling it raises `LeaseLostError`.
    `rank_bound`: it was among so many of the best that were ready, of a heap of several partitions.
    """

    # gc=False: a client has thousands of them. Of what they refer to, only `_leases` refers to them, until they are settled.
    _popped: PoppedMessage
    visibility_ms: int
    _leases: "Leases"
    lease_deadline_ms: int = 0  # by the clock of the leader that said so
    asked_ms: float = 0  # by this client's boot clock: before the pop was sent
    on_lost: "Callable[[Message], None] | None" = None
    _lost: asyncio.Event | None = None  # made when somebody asks for it
    _why: LostLease | None = None
    _settled: bool = False
    is_unknown: bool = False  # whether it was acknowledged: answers were lost, and its lease may have ended
    ack_unanswered: bool = False  # an ack was sent, and its answer lost
    may_have_ended: bool = False  # the same of a nack, a release or a move
    _span: AbstractContextManager[Any] | None = None  # of the body

    @property
    def id(self) -> str:
        """Its id, a ULID."""
        return self._popped.message_id

    @property
    def topic(self) -> str:
        """The heap it is in."""
        return self._popped.topic

    @property
    def partition(self) -> int:
        """The partition it is in."""
        return self._popped.partition

    @property
    def payload(self) -> bytes:
        """What was enqueued."""
        return self._popped.payload

    @property
    def priority(self) -> int:
        """Its priority."""
        return self._popped.priority

    @property
    def enqueued_ms(self) -> int:
        """When it was enqueued."""
        return self._popped.enqueued_ms

    @property
    def lease_token(self) -> bytes:
        """What names its lease."""
        return self._popped.lease_token

    @property
    def leased_ms(self) -> int:
        """How long it is leased, from the pop to the deadline that is known, renewals included."""
        return self.visibility_ms + self.lease_deadline_ms - self._popped.lease_deadline_ms

    @property
    def attempts(self) -> int:
        """How often it failed before."""
        return self._popped.attempts

    @property
    def max_retries(self) -> int:
        """How often it is tried again before it becomes a dead letter."""
        return self._popped.max_retries

    @property
    def partition_key(self) -> str | None:
        """What chose its partition."""
        return self._popped.partition_key

    @property
    def headers(self) -> Headers:
        """Its headers."""
        return self._popped.headers

    @property
    def rank_bound(self) -> int:
        """It was among so many of the best that were ready; 0: of a heap of one partition."""
        return self._popped.rank_bound

    @property
    def fairness_key(self) -> str | None:
        """Whose message it is, where the heap is fair to keys."""
        return self._popped.fairness_key

    def __repr__(self) -> str:
        return f"<Message {self.id} of {self.topic}, priority {self.priority}, {len(self.payload)} bytes>"

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease was lost."""
        if self._lost is None:
            self._lost = asyncio.Event()
            if self._why is not None:
                self._lost.set()
        return self._lost

    @property
    def is_lost(self) -> bool:
        """Whether the lease was lost."""
        return self._why is not None

    @property
    def settled(self) -> bool:
        """Whether it was acknowledged, given back or refused."""
        return self._settled

    async def ack(self) -> None:
        """The work is done: the message is gone. Returns when that is durable. `LeaseLostError`.

        `OutcomeUnknownError`: answers were lost. If `is_unknown`, it is gone, and its lease may have ended before: it was done, by
        this consumer or another one, or is a dead letter. Otherwise nobody could be asked.
        """
        self.begin_settling()
        await self._settle(self._leases.ack(self), is_ack=True)

    async def nack(self, *, backoff: float | None = None, reason: str = "") -> None:
        """The work failed: it is tried again after `backoff` seconds, or the heap's own pause, or becomes a dead letter."""
        self.begin_settling()
        backoff_ms = None if backoff is None else round(backoff * 1000)
        request = NackRequest(
            topic=self.topic,
            partition=self.partition,
            tokens=[self.lease_token],
            backoff_ms=backoff_ms,
            reason=_utf8(reason),
        )
        await self._settle(self._leases.settle(request))

    async def release(self) -> None:
        """It was not worked on: it waits again at once, and no attempt is counted."""
        self.begin_settling()
        request = ReleaseRequest(topic=self.topic, partition=self.partition, tokens=[self.lease_token])
        await self._settle(self._leases.settle(request))

    async def move_to_dead_letters(self, reason: str = "") -> None:
        """The work cannot be done: it becomes a dead letter now, or is gone where there are none."""
        self.begin_settling()
        await self._settle(self._leases.move(self, _utf8(reason)))

    def resume(self) -> None:
        """Hold the lease further, after an ack, nack or release that failed for another reason than a lost lease."""
        if self._why is None:
            self._settled = False
            self._leases.keep((self,))

    @property
    def lost_reason(self) -> str:
        """Why the lease was lost; "" while it was not."""
        return "" if self._why is None else self._why.reason

    def mark_lost(self, why: LostLease) -> None:
        """The lease is somebody else's, or nobody's."""
        self._why = why
        if self._lost is not None:
            self._lost.set()
        if self.on_lost is not None:
            self.on_lost(self)

    def begin_settling(self) -> None:
        """It is settled once. `LeaseLostError`: it is lost, or was settled before."""
        if self._why is not None:
            self._settled = True
            raise self._why.error(self.topic)
        if self._settled:
            raise LeaseLostError(self.topic, self.id, "it was settled before")
        self._settled = True

    async def _settle(self, answer: Awaitable[LostLease | int | None], *, is_ack: bool = False) -> None:
        try:
            found = await answer
        except OutcomeUnknownError:
            self.may_have_ended = self.may_have_ended or not is_ack
            raise
        finally:
            self._leases.forget((self,))
        if isinstance(found, LostLease):
            self.mark_lost(found)
            raise found.error(self.topic)

    async def __aenter__(self) -> "Message":
        self.begin_work()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_work(kind, error, trace)
        await self.settle_after(error)

    def begin_work(self) -> None:
        """The body begins: its span is the current one (`tracing`)."""
        self._span = tracing.work_on(self)
        if self._span is not None:
            self._span.__enter__()

    def end_work(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The body has ended, in the same task or thread."""
        span, self._span = self._span, None
        if span is not None:
            span.__exit__(kind, error, trace)

    async def settle_after(self, error: BaseException | None) -> None:
        """Settle it as a body ended, unless it was settled there."""
        if self._settled:
            return
        if error is None:
            await self.ack()
        elif isinstance(error, asyncio.CancelledError):
            await asyncio.shield(self._given_back())
        elif self._why is None:
            await self.nack(reason=f"{type(error).__name__}: {error}"[:500])

    async def _given_back(self) -> None:
        if self._why is None:
            await self.release()


def _utf8(text: str) -> str:
    """A text that can be sent: what an exception says may have half a surrogate pair."""
    return text.encode(errors="replace").decode()

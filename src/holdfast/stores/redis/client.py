"""RedisClient: two connections to one server, writes in batches, reads in pipelines; the guard checks every response.

The one rule: a commit is sent once. Reads and session calls may be repeated, and are, within the timeout of the operation. A batch
stores its outcome under its lane, over that of the batch before, whose response arrived; after a lost response the lane is kept for
`resolve`, and a new one begins. So the server keeps one outcome per client, not one per commit.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from redis.exceptions import NoScriptError, ResponseError

from holdfast.stores.batcher import PendingWrite, WriteBatcher, WriteBatchLimits
from holdfast.stores.errors import AnswerLostError
from holdfast.stores.redis.connection import RedisConnection, RequestNotSentError, pack
from holdfast.stores.redis.error_replies import ADVICE, REPLICA, code_of
from holdfast.stores.redis.key_layout import LOAD_SCRIPTS, SCRIPTS, KeyLayout
from holdfast.stores.redis.settings import RedisAddress, RedisSettings
from holdfast.stores.redis.write_batch import BatchCall, Outcome, RedisWrite
from holdfast.stores.version_guard import VersionGuard
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random

T = TypeVar("T")

STORE: Final = "redis store"
_ANSWER_SHARE: Final = 0.8  # of the operation's timeout: a write queued behind a stuck batch must fail in time
_PAUSES_MS: Final = (20.0, 150.0)  # between attempts


class RedisClient:
    """All requests of one open store. Writes keep their order; reads do not wait for writes."""

    def __init__(
        self,
        address: RedisAddress,
        layout: KeyLayout,
        settings: RedisSettings,
        *,
        guard: VersionGuard,
        clock: Clock,
        random: Random,
        on_due: Callable[[int], None],
    ) -> None:
        self._service, self._settings = address.shown, settings
        self._guard, self._clock, self._random, self._on_due = guard, clock, random, on_due
        answer_ms = settings.timeout_ms * _ANSWER_SHARE
        self._write_connection = RedisConnection(address, timeout_ms=answer_ms, on_connect=self._on_connect)
        self._read_connection = RedisConnection(address, timeout_ms=answer_ms, on_connect=self._on_connect)
        limits = WriteBatchLimits(writes_max=settings.batch_writes_max, bytes_max=settings.batch_bytes_max)
        self._writes: WriteBatcher[RedisWrite, Outcome] = WriteBatcher(STORE, self._run_writes, limits)
        self._reads: WriteBatcher[bytes, Any] = WriteBatcher(STORE, self._run_reads)
        self._call = BatchCall(layout, settings, guard.incarnation)
        self._read_meta = pack("HMGET", layout.meta, "incarnation", "head")
        self._lane, self._batches = random.token(), 0
        self._submitted = 0  # writes that wait for their answer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send requests during the body; close the connections afterwards."""
        try:
            async with self._writes.running(), self._reads.running():
                yield
        finally:
            await self._write_connection.close()
            await self._read_connection.close()

    async def commit(self, write: RedisWrite) -> Outcome:
        """Send a write once. Raises `UnavailableError` if it was not done, `OutcomeUnknownError` if that is unknown."""
        if not self._submitted:
            return await self._submit(write)  # it is sent at once, and the connection enforces the timeout
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                return await self._submit(write)
        except TimeoutError:
            if write.outcome is not None:
                return write.outcome  # the response arrived together with the timeout
            reason = f"no answer from {self._service} within {self._settings.timeout_ms} ms"
            if write.id:
                self._begin_lane()  # the outcome of the batch in flight must be kept for `resolve`
                raise OutcomeUnknownError(write.id, reason) from None
            raise UnavailableError(self._service, f"{reason}; the commit was not sent") from None

    async def write(self, new: Callable[[], RedisWrite]) -> Outcome:
        """Send an idempotent write."""
        return await self.retry_until_answered(lambda: self._submit(new()))

    async def read(self, command: bytes) -> Any:
        """The response to a packed command that may be repeated."""
        return await self.retry_until_answered(lambda: self._reads.submit("", command, size_bytes=len(command)))

    async def retry_until_answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Up to three attempts within the timeout; then `UnavailableError` with the last reason."""
        tried = ""
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                for pause_ms in _PAUSES_MS:
                    try:
                        return await attempt()
                    except (UnavailableError, OutcomeUnknownError) as error:
                        tried = error.reason
                    await self._clock.sleep_ms(self._random.jitter(pause_ms))
                try:
                    return await attempt()
                except OutcomeUnknownError as error:
                    raise UnavailableError(self._service, error.reason) from None
        except TimeoutError:
            reason = f"no answer within {self._settings.timeout_ms} ms"
            raise UnavailableError(self._service, f"{reason} ({tried})" if tried else reason) from None

    async def _submit(self, write: RedisWrite) -> Outcome:
        self._submitted += 1
        try:
            return await self._writes.submit("", write, size_bytes=len(write.packed))
        finally:
            self._submitted -= 1

    async def _run_writes(self, batch: Sequence[PendingWrite[RedisWrite, Outcome]]) -> Sequence[Outcome | Exception]:
        self._batches += 1
        for place, pending in enumerate(batch):
            pending.id = pending.work.id = f"{self._lane}.{self._batches}.{place}"
        known_version = self._guard.check()
        request = self._call.pack(self._lane, self._batches, known_version, [pending.work for pending in batch])
        try:
            (reply,) = await self._write_connection.execute(request, 1)
            if isinstance(reply, NoScriptError):
                await self._write_connection.drop()  # connecting again loads the scripts
                (reply,) = await self._write_connection.execute(request, 1)
        except RequestNotSentError as error:
            raise self._unavailable(error) from None
        except AnswerLostError as error:
            self._begin_lane()
            return [OutcomeUnknownError(pending.id, str(error)) for pending in batch]
        if isinstance(reply, ResponseError):
            raise self._explain(reply)
        return self._read_outcomes(batch, reply, known_version)

    def _read_outcomes(
        self, batch: Sequence[PendingWrite[RedisWrite, Outcome]], reply: list[Any], known_version: int
    ) -> Sequence[Outcome]:
        if reply[0] == b"refused":
            self._begin_lane()
            raise UnavailableError(self._service, "nothing was done: a resolve overtook this batch; retry the commit")
        if reply[0] == b"back":
            raise self.regression_error(*reply[1:], known_version=known_version)
        status, *conflicts = reply
        _, head, due_in_ms, *words = status.split(b" ")
        self._guard.observe(int(head), known_version=known_version)
        self._on_due(int(due_in_ms))
        return self._call.read([pending.work for pending in batch], words, conflicts)

    async def _run_reads(self, batch: Sequence[PendingWrite[bytes, Any]]) -> Sequence[Any]:
        known_version = self._guard.check()
        request = b"".join((*(pending.work for pending in batch), self._read_meta))
        try:
            *replies, meta = await self._read_connection.execute(request, len(batch) + 1)
        except (RequestNotSentError, AnswerLostError) as error:
            raise self._unavailable(error) from None
        self._observe_meta(meta, known_version)  # after the reads, so that a store emptied before them is detected
        if any(isinstance(reply, NoScriptError) for reply in replies):
            await self._read_connection.drop()
        return [self._explain(reply) if isinstance(reply, ResponseError) else reply for reply in replies]

    async def _on_connect(self, connection: RedisConnection) -> None:
        known_version = self._guard.check()
        request = LOAD_SCRIPTS + pack("ROLE") + self._read_meta
        *loaded, role, meta = await connection.exchange(request, len(SCRIPTS) + 2)
        for reply in loaded:
            if isinstance(reply, ResponseError):
                raise reply
        if not isinstance(role, ResponseError) and role[0] != b"master":
            name = "replica" if role[0] == b"slave" else role[0].decode()
            self._guard.fail(f"{self._service} became a {name}: another server may have taken its place")
        self._observe_meta(meta, known_version)

    def regression_error(self, head: int, incarnation: bytes, *, known_version: int) -> CorruptError:
        """A script found another or an older store than this client's: stop every holder."""
        try:
            self._observe_meta([None if incarnation == b"none" else incarnation, head], known_version)
            self._guard.fail(f"version {head} in a script after {known_version}")
        except CorruptError as fault:
            return fault

    def _observe_meta(self, meta: Any, known_version: int) -> None:
        if isinstance(meta, ResponseError):
            raise self._explain(meta)
        incarnation, head = meta
        if incarnation is None or head is None:
            self._guard.fail(f"its keys are missing from {self._service}")
        self._guard.observe(int(head), known_version=known_version, incarnation=incarnation.decode())

    def _begin_lane(self) -> None:
        self._lane, self._batches = self._random.token(), 0

    def _unavailable(self, error: Exception) -> UnavailableError:
        return UnavailableError(self._service, f"{error}; check that the server is running and reachable")

    def _explain(self, error: ResponseError) -> HoldfastError:
        code = code_of(error)
        if code in ADVICE:
            return UnavailableError(self._service, f"{ADVICE[code]} ({error})")
        try:
            if code == REPLICA:
                self._guard.fail(f"{self._service} became a replica: another server may have taken its place")
            self._guard.fail(f"a script failed midway, as when another program writes to the namespace: {error}")
        except CorruptError as fault:
            return fault

"""Fetch sessions (KIP-227): a consumer of many partitions names them once, then sends and receives only changes.

Pure: time is an argument. An unknown session or a wrong epoch is an error code, after which the client starts over. The number of
sessions is limited, and that of their partitions; the one idle for longest is evicted first.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_EPOCH, NO_OFFSET

FINAL_EPOCH: Final = -1  # no session, and the end of one
INITIAL_EPOCH: Final = 0  # the first fetch of a session
_EPOCH_MAX: Final = 2**31 - 1

FetchKey = tuple[str | UUID, int]  # topic (as the client names it) and partition


class FetchPartition(NamedTuple):
    """One partition of a fetch request."""

    key: FetchKey
    offset: int
    bytes_max: int
    leader_epoch: int = NO_EPOCH


class LastSent(NamedTuple):
    """What a client last got of a partition, besides records."""

    high_watermark: int = NO_OFFSET
    start_offset: int = NO_OFFSET
    code: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class FetchSession:
    """The partitions of one client."""

    id: int
    epoch: int
    used_at_ms: int
    by_id: bool  # topics by id; a client that changes to names, or back, needs another session
    wanted: dict[FetchKey, FetchPartition] = field(default_factory=dict)
    last_sent: dict[FetchKey, LastSent] = field(default_factory=dict)

    def move_to_end(self, key: FetchKey) -> None:
        """The partition had records: others come first next time."""
        self.wanted[key] = self.wanted.pop(key)


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What to fetch. `full`: the response lists every partition, not only those that changed."""

    named: Sequence[FetchPartition]
    session: FetchSession | None
    full: bool

    @property
    def wanted(self) -> Sequence[FetchPartition]:
        """Listed when they are read: not while the request waits for that."""
        return self.named if self.full or self.session is None else tuple(self.session.wanted.values())


class FetchSessions:
    """The sessions of one node."""

    def __init__(self, draw_id: Callable[[], int], *, count_max: int, idle_ms: int, partitions_max: int) -> None:
        self._draw_id, self._count_max, self._idle_ms = draw_id, count_max, idle_ms
        self._partitions_max = partitions_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        self.partitions = 0  # of all sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(
        self,
        session_id: int,
        epoch: int,
        wanted: Sequence[FetchPartition],
        forgotten: Iterable[FetchKey],
        now_ms: int,
        *,
        by_id: bool,
    ) -> FetchPlan | ErrorCode:
        """The partitions of this request and of its session."""
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._close(session_id)
            session = self._open(wanted, now_ms, by_id=by_id) if epoch == INITIAL_EPOCH else None
            return FetchPlan(wanted, session, full=True)
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        self.partitions -= len(session.wanted)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.used_at_ms = now_ms
        self._sessions.move_to_end(session_id)
        for each in wanted:
            session.wanted[each.key] = each
        for key in forgotten:
            session.wanted.pop(key, None)
            session.last_sent.pop(key, None)
        self.partitions += len(session.wanted)
        if self.partitions > self._partitions_max:
            self._close(session_id)  # the client starts over, without a session
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return FetchPlan((), session, full=False)

    def _open(self, wanted: Sequence[FetchPartition], now_ms: int, *, by_id: bool) -> FetchSession | None:
        if not wanted or not self._make_room(now_ms, len(wanted)):
            return None
        session_id = self._draw_id()
        while session_id in self._sessions or session_id == 0:
            session_id = self._draw_id()
        session = FetchSession(session_id, 1, now_ms, by_id, {each.key: each for each in wanted})
        self._sessions[session_id] = session
        self.partitions += len(session.wanted)
        return session

    def _make_room(self, now_ms: int, partitions: int) -> bool:
        while len(self._sessions) >= self._count_max or self.partitions + partitions > self._partitions_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_at_ms < self._idle_ms:
                return False
            self._close(oldest.id)
        return True

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.wanted)

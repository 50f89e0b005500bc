"""Planted bugs: a rule of the protocol each, broken in the real replica, leader or takeover, or in the world around them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

from tests.model.schedules import read_schedules
from tests.model.state import Step as ModelStep
from tests.support.replication.world import Bugs

from holdfast.log.replication import takeover as takeover_module
from holdfast.log.replication.entry_log import EntryLog
from holdfast.log.replication.leader import Leader
from holdfast.log.replication.messages import Ack, Append, Base, Request
from holdfast.log.replication.positions import NOWHERE, Position, ReplicaEntry
from holdfast.log.replication.quorum import seal_quorum
from holdfast.log.replication.replica import Record, Replica, ReplicaState, ReplicaStep, Truncation
from holdfast.log.replication.takeover import QuorumTakeover


@dataclass(frozen=True, slots=True)
class Mutant:
    """(owner, name, replacement) of what is patched; and a schedule of the model or a seed on which it shows."""

    shows_on: str | int | tuple[ModelStep, ...]
    patches: tuple[tuple[object, str, Any], ...] = ()
    bugs: Bugs = field(default_factory=Bugs)

    @property
    def schedule(self) -> tuple[ModelStep, ...]:
        """In the steps of the model; empty: there is a seed."""
        if isinstance(self.shows_on, int):
            return ()
        return _SCHEDULES[self.shows_on] if isinstance(self.shows_on, str) else self.shows_on

    @property
    def seed(self) -> int:
        return self.shows_on if isinstance(self.shows_on, int) else 0

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The bug is there during the body."""
        patchers = [patch.object(owner, name, replacement) for owner, name, replacement in self.patches]
        for each in patchers:
            each.start()
        try:
            yield
        finally:
            for each in reversed(patchers):
                each.stop()


_leader_init, _replicate, _append, _base = Leader.__init__, QuorumTakeover._replicate, Replica._append, Replica._base


def _one_is_enough(leader: Leader, *args: Any, **options: Any) -> None:
    _leader_init(leader, *args, **options)
    leader.needed = 1


def _without_epoch_start(leader: Leader, partition: Any, epoch: int, log: EntryLog, *args: Any, **options: Any) -> None:
    before = log.snapshot()
    _leader_init(leader, partition, epoch, log, *args, **options)
    log.restore(before)
    leader.start = log.position


def _any_epoch_counts(leader: Leader, member: str, matched: Position, now_ms: float) -> None:
    state = leader._members[member]
    state.acked = max(state.acked, matched)
    state.sent, state.probing, state.waiting = max(state.sent, matched), False, False
    acked = sorted((leader._members[each].acked.offset for each in leader.members), reverse=True)
    leader.hw = max(leader.hw, acked[leader.needed - 1])


def _longest(takeover: QuorumTakeover, replica: str) -> tuple[int, int]:
    epoch, offset = takeover._sealed[replica]
    return offset, epoch


def _serve_own_log(takeover: QuorumTakeover, now_ms: float) -> None:
    if takeover._own.contains(takeover.stored.published):
        takeover._take(takeover._own)
    takeover._replicate(now_ms)


def _stamped_again(takeover: QuorumTakeover, now_ms: float) -> None:
    entries = [ReplicaEntry(takeover.epoch, *entry[1:]) for entry in takeover._log.entries if entry.count]
    takeover._log = EntryLog(takeover._log.base, entries)
    with patch.object(Leader, "__init__", _stamped_leader):
        _replicate(takeover, now_ms)


def _stamped_leader(leader: Leader, partition: Any, epoch: int, log: EntryLog, *args: Any, **options: Any) -> None:
    entries = log.entries
    _leader_init(leader, partition, epoch, EntryLog(log.base), *args, **options)
    leader.log = EntryLog(log.base, entries)
    leader.start = leader.log.position
    for each in leader._members.values():
        each.sent = log.base


def _own_set_size(takeover: QuorumTakeover, now_ms: float) -> None:
    if len(takeover._sealed) >= seal_quorum(len(takeover.members)):
        owner = max(takeover._sealed, key=takeover._rank)
        if takeover._sealed[owner] <= takeover.stored.published:
            takeover._replicate(now_ms)
        else:
            takeover.phase, takeover._fetching = takeover_module.Phase.FETCHING, (owner, takeover._sealed[owner])
            takeover._fetch()


def _promise_in_memory(replica: Replica, epoch: int) -> list[Record]:
    replica.promised = max(replica.promised, epoch)
    return []


def _no_promise(replica: Replica, message: Request) -> ReplicaStep:
    replica.promised = min(replica.promised, message.epoch)
    return _handle(replica, message)


_handle = Replica.handle


def _truncates_always(replica: Replica, message: Append) -> ReplicaStep:
    step = _append(replica, message)
    if isinstance(step.answer, Ack) and replica.log.position > message.last >= replica.log.base:
        truncation = Truncation(message.last, replica.log.position.offset)
        replica.log.truncate(message.last)
        return ReplicaStep((*step.records, truncation), step.answer, step.matched, step.hw)
    return step


def _never_truncates_on_disk(replica: Replica, message: Append) -> ReplicaStep:
    step = _append(replica, message)
    records = tuple(each for each in step.records if not isinstance(each, Truncation))
    return ReplicaStep(records, step.answer, step.matched, step.hw)


def _late_base_resets(replica: Replica, message: Base) -> ReplicaStep:
    records = replica._promise(message.epoch)
    replica.log.reset(message.published)
    records.append(ReplicaState(replica.promised, message.published, reset=True))
    ack = Ack(partition=replica.partition, epoch=message.epoch, matched=message.published)
    return ReplicaStep(tuple(records), ack, (message.epoch, message.published))


def _hw_of_unmatched(replica: Replica) -> Any:
    step = replica._steps[0]
    answer = _durable(replica)
    replica.hw = max(replica.hw, min(step.hw, replica.log.position.offset))
    return answer


_durable = Replica.durable


def _drops_whenever(replica: Replica, opened_epoch: int, opened_replicas: tuple[str, ...]) -> ReplicaStep | None:
    return _dropped(replica, max(replica.promised, opened_epoch))


def _drops_in_recovery(replica: Replica, opened_epoch: int, opened_replicas: tuple[str, ...]) -> ReplicaStep | None:
    return None if replica.wal_id in opened_replicas else _dropped(replica, max(replica.promised, opened_epoch))


def _drops_promise(replica: Replica, opened_epoch: int, opened_replicas: tuple[str, ...]) -> ReplicaStep | None:
    if replica.wal_id in opened_replicas or replica.promised > opened_epoch:
        return None
    return _dropped(replica, 0)


def _dropped(replica: Replica, promised: int) -> ReplicaStep:
    undo = (replica.promised, replica.log.snapshot())
    replica.promised = promised
    replica.log.reset(NOWHERE)
    return replica._queued(ReplicaStep((ReplicaState(promised, NOWHERE, reset=True),), None), undo)


def _keeps_what_failed(replica: Replica, written: Sequence[Record] = ()) -> None:
    replica._steps.clear()


_OPENED: Final[tuple[ModelStep, ...]] = (
    ("acquire", 0, (0, 1, 2)), ("deliver", 1, 0, 1), ("deliver", 1, 1, 1), ("open", 1),
)  # fmt: skip
_STAMPED: Final = (
    *_OPENED, ("append", 1, 1), ("append", 1, 2), ("deliver", 1, 0, 3), ("deliver", 1, 1, 3), ("advance", 1),
    ("acquire", 0, (0, 1, 2)), ("seal", 2, 0), ("seal", 2, 1), ("deliver", 2, 1, 1),
    ("acquire", 2, (0, 1, 2)), ("seal", 3, 1), ("seal", 3, 2), ("deliver", 3, 1, 9), ("deliver", 3, 2, 9), ("open", 3),
)  # fmt: skip
_FORGOTTEN: Final = (
    *_OPENED, ("acquire", 0, (0, 1, 2)), ("seal", 2, 0), ("seal", 2, 2), ("deliver", 2, 2, 2), ("deliver", 2, 1, 2), ("open", 2),
    ("acquire", 3, (0, 1, 3)), ("seal", 3, 2), ("seal", 3, 0), ("deliver", 3, 3, 3), ("deliver", 3, 0, 3), ("open", 3),
    ("drop", 2), ("append", 2, 1), ("deliver", 2, 2, 3), ("deliver", 2, 1, 3), ("advance", 2),
)  # fmt: skip
_UNMATCHED: Final = (
    *_OPENED, ("append", 1, 1), ("deliver", 1, 0, 2), ("append", 1, 2), ("deliver", 1, 2, 3),
    ("acquire", 1, (0, 1, 2)), ("seal", 2, 0), ("seal", 2, 1), ("deliver", 2, 0, 3), ("deliver", 2, 1, 3), ("open", 2),
    ("append", 2, 3), ("deliver", 2, 0, 4), ("deliver", 2, 1, 4), ("advance", 2), ("deliver", 2, 2, 1),
)  # fmt: skip
_SCHEDULES: Final = read_schedules()

MUTANTS: Final[dict[str, Mutant]] = {
    "acknowledged before a majority has it": Mutant(
        "acknowledged by the leader alone", ((Leader, "__init__", _one_is_enough),)
    ),
    "acknowledged before the fsync": Mutant(1172, bugs=Bugs(answers_before_fsync=True)),
    "longest tail instead of the highest epoch": Mutant(
        "longest instead of highest epoch", ((QuorumTakeover, "_rank", _longest),)
    ),
    "served before the seal": Mutant(3, ((QuorumTakeover, "begin", _serve_own_log),)),
    "promise not fsynced": Mutant("promise lost in a restart", ((Replica, "_promise", _promise_in_memory),)),
    "no promise": Mutant(42, ((Replica, "handle", _no_promise),)),
    "entries stamped again": Mutant(_STAMPED, ((QuorumTakeover, "_replicate", _stamped_again),)),
    "late short APPEND truncates": Mutant("late short APPEND truncates", ((Replica, "_append", _truncates_always),)),
    "truncation not written": Mutant(2, ((Replica, "_append", _never_truncates_on_disk),)),
    "late BASE resets": Mutant("late BASE resets", ((Replica, "_base", _late_base_resets),)),
    "no epoch-start entry": Mutant(
        "no epoch-start entry", ((Leader, "__init__", _without_epoch_start), (Leader, "_acked", _any_epoch_counts))
    ),
    "one fewer sealed": Mutant(
        "one fewer sealed", ((takeover_module, "seal_quorum", lambda size: max(1, seal_quorum(size) - 1)),)
    ),
    "sealed by the new set's size": Mutant(
        "sealed by the new set's size", ((QuorumTakeover, "_choose", _own_set_size),)
    ),
    "log dropped whenever": Mutant("dropped before the open commit", ((Replica, "drop", _drops_whenever),)),
    "log dropped in a recovery that counts it": Mutant(
        "dropped in a recovery that counts it", ((Replica, "drop", _drops_in_recovery),)
    ),
    "promise forgotten with the log": Mutant(_FORGOTTEN, ((Replica, "drop", _drops_promise),)),
    "hw applied to an unmatched log": Mutant(_UNMATCHED, ((Replica, "durable", _hw_of_unmatched),)),
    "refused write kept in memory": Mutant(135, ((Replica, "failed", _keeps_what_failed),)),
    "opened when the log was chosen": Mutant(
        "served when chosen", ((Leader, "may_open", property(lambda leader: leader.ended is None)),)
    ),
    "empty disk under the old name": Mutant("empty disk under the old name", bugs=Bugs(keeps_name_of_lost_disk=True)),
    "served before the open commit": Mutant("served before the open commit", bugs=Bugs(serves_before_open_commit=True)),
    "published unfenced": Mutant(464, bugs=Bugs(publishes_unfenced=True)),
}

"""The commits of takeovers: several partitions in one, each under the fence of its own lease.

The one rule: a partition whose race is lost affects no other. A commit that loses is taken apart, and each partition gets its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, AtVersion, Committed, Conflict, Delete, Operation, Put, Requirement
from holdfast.contracts.validation import StoreLimits
from holdfast.kernel.lease import commit_fenced
from holdfast.log.keys import deleted_key, offline_key, state_key
from holdfast.log.partition.resources import PartitionResources
from holdfast.log.partition.takeover_recovery import RecoveredTakeover
from holdfast.log.replica_sets import replica_set_write
from holdfast.vocabulary.errors import ClosedError, HoldfastError, UnavailableError
from holdfast.vocabulary.tasks import gather_or_cancel


@dataclass(frozen=True, slots=True)
class _TakeoverCommit:
    """What one takeover requires, but for its fence, and applies."""

    takeover: RecoveredTakeover
    require: tuple[Requirement, ...]
    apply: tuple[Operation, ...]

    @property
    def size_bytes(self) -> int:
        """At least what an engine counts: keys and values."""
        keys = sum(4 * len(each.key) for each in (*self.require, *self.apply))
        return keys + sum(len(each.value) for each in self.apply if isinstance(each, Put))


async def commit_takeovers(
    recovered: Sequence[RecoveredTakeover], resources: PartitionResources
) -> list[int | HoldfastError]:
    """The version of each record, in their order, or why it was not written. `FencedError`: a newer epoch owns the partition."""
    groups = list(_split([_commit_of(each) for each in recovered], StoreLimits()))
    if len(groups) == 1:
        return list(await _commit_together(groups[0], resources))
    found = await gather_or_cancel(*(_commit_together(group, resources) for group in groups))
    return [each for versions in found for each in versions]


def _commit_of(recovered: RecoveredTakeover) -> _TakeoverCommit:
    takeover, entry = recovered.takeover, recovered.entry
    key = state_key(*takeover.place)
    # Not deleted: this agent may not have seen yet that the topic was.
    unchanged: Requirement = Absent(key) if entry is None else AtVersion(key, entry.version)
    apply: tuple[Operation, ...] = (Put(key, msgspec.json.encode(recovered.record)),)
    if recovered.replicated or recovered.was_replicated:
        apply = (*apply, replica_set_write(takeover.partition_id, recovered.record))
    if takeover.was_offline:
        apply = (*apply, Delete(offline_key(takeover.lease.resource)))
    return _TakeoverCommit(recovered, (unchanged, Absent(deleted_key(takeover.partition_id.topic_id))), apply)


def _split(commits: Sequence[_TakeoverCommit], limits: StoreLimits) -> Iterator[list[_TakeoverCommit]]:
    """As many at a time as one commit may have."""
    group: list[_TakeoverCommit] = []
    keys: set[str] = set()
    ops = size_bytes = 0
    for commit in commits:
        required = {each.key for each in commit.require} - keys
        more = 1 + len(required) + len(commit.apply)
        if group and (ops + more > limits.ops_max or size_bytes + commit.size_bytes > limits.bytes_max // 2):
            yield group
            group, keys, ops, size_bytes = [], set(), 0, 0
            required = {each.key for each in commit.require}
            more = 1 + len(required) + len(commit.apply)
        group.append(commit)
        keys |= required
        ops += more
        size_bytes += commit.size_bytes
    if group:
        yield group


async def _commit_together(
    commits: Sequence[_TakeoverCommit], resources: PartitionResources
) -> Sequence[int | HoldfastError]:
    if len(commits) == 1:
        return [await _commit_alone(commits[0], resources)]
    fences = [each.takeover.takeover.lease.fence() for each in commits]
    required = {each.key: each for commit in commits for each in commit.require}  # those of a topic once
    try:
        outcome = await commit_resolved(
            resources.store,
            clock=resources.clock,
            random=resources.random,
            require=(*fences, *required.values()),
            apply=[each for commit in commits for each in commit.apply],
        )
    except HoldfastError as error:
        return [error for _ in commits]
    if isinstance(outcome, Committed):
        return [outcome.version for _ in commits]
    return await gather_or_cancel(*(_commit_alone(each, resources) for each in commits))


async def _commit_alone(commit: _TakeoverCommit, resources: PartitionResources) -> int | HoldfastError:
    takeover = commit.takeover.takeover
    partition_id = takeover.partition_id
    try:
        outcome = await commit_fenced(
            resources.store,
            takeover.lease,
            clock=resources.clock,
            random=resources.random,
            require=commit.require,
            apply=commit.apply,
        )
    except HoldfastError as error:
        return error
    if not isinstance(outcome, Conflict):
        return outcome.version
    if outcome.found.get(deleted_key(partition_id.topic_id)) is not None:
        return ClosedError(f"partition {partition_id} of a deleted topic")
    # The lease is ours, so it was an earlier attempt of our own, whose answer was lost.
    return UnavailableError(f"partition {partition_id}", "its record changed while it was opened")

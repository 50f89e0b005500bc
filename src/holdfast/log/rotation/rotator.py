"""Rotates the partitions of one session of an agent whose topics ask for it.

The one rule: a segment is sealed once, at its true end, by one commit that the lease fences and that requires the record it was
decided from. The same commit names the next leader, which the planner follows by a transfer; so a process that dies anywhere has
sealed the segment and asked for the move, or has done neither. The end is what object storage has by then: everything below it is
readable by anybody, whoever leads. Producers are not held up by a seal; what they append meanwhile is in the next segment.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.contracts.store import Absent, AtVersion, Conflict, Put, Requirement, Store
from holdfast.kernel.keys import rotation_key
from holdfast.kernel.lease import commit_fenced
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.rotation.record import RotationRecord, decode_rotation
from holdfast.log.rotation.rules import is_due, next_leader, sealed
from holdfast.log.settings import LeadershipSettings
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, HoldfastError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import gather_limited
from holdfast.vocabulary.types import Member

_log: Final = logging.getLogger(__name__)

_SEALS_MAX: Final = 16  # at a time
_MOVE_MS: Final = 30_000  # how long the next leader may take before it is another one's turn


@dataclass(slots=True, eq=False)
class _RotatingPartition:
    partition: LeadingPartition
    group: str
    record: RotationRecord | None = None  # None: to be read
    version: int | None = None
    asked_ms: int = 0  # when the next leader was asked for; 0: not by us
    failure: str = ""


class Rotator:
    """The partitions that rotate, from `consider` to `forget`."""

    def __init__(
        self,
        *,
        agent: str,
        members: Callable[[], Sequence[Member]],
        settings: LeadershipSettings,
        store: Store,
        clock: Clock,
        random: Random,
    ) -> None:
        self._agent, self._members, self._settings = agent, members, settings
        self._store, self._clock, self._random = store, clock, random
        self._rotating: dict[LeadingPartition, _RotatingPartition] = {}
        self.sealed = 0  # segments, since it was made

    def consider(self, partition: LeadingPartition, group: str) -> None:
        """The partition was opened, or its topic was altered. `group`: the agents that may lead it."""
        known = self._rotating.get(partition)
        if _rotates(partition):
            if known is None:
                self._rotating[partition] = _RotatingPartition(partition, group)
            else:
                known.group = group
        # One that rotates no more is left until its next leader is no longer asked for.

    def forget(self, partition: LeadingPartition) -> None:
        """It is not led here any more."""
        self._rotating.pop(partition, None)

    async def run(self) -> None:
        """Seal what is due, until cancelled."""
        while True:
            if self._rotating:
                await gather_limited(self._look_at, list(self._rotating.values()), _SEALS_MAX)
            await self._clock.sleep_ms(self._settings.rotation_check_ms)

    async def _look_at(self, rotating: _RotatingPartition) -> None:
        try:
            await self._rotate_if_due(rotating)
            rotating.failure = ""
        except FencedError:
            self.forget(rotating.partition)  # the plan executor closes it
        except HoldfastError as error:
            rotating.record = None  # what became of a commit shows when the record is read again
            if str(error) != rotating.failure:
                rotating.failure = str(error)
                _log.info("sealing a segment of %s failed, retrying: %s", rotating.partition.partition_id, error)

    async def _rotate_if_due(self, rotating: _RotatingPartition) -> None:
        partition = rotating.partition
        if not partition.accepting:
            return  # it is moving, or closed
        if rotating.record is None:
            entry = await self._store.get(rotation_key(partition.lease.resource))
            rotating.record = decode_rotation(entry, partition.partition_id.topic_id)
            rotating.version = None if entry is None else entry.version
        record = rotating.record
        if not _rotates(partition):
            if record.target:
                await self._commit(rotating, msgspec.structs.replace(record, target=""))
            self.forget(partition)
            return
        if self._is_moving(rotating, record):
            return
        if is_due(
            partition.partition_config,
            entries=partition.high_watermark - record.start,
            size_bytes=_size_bytes(partition, record.start),
        ):
            await self._rotate(rotating, record)

    def _is_moving(self, rotating: _RotatingPartition, record: RotationRecord) -> bool:
        """Whether the agent that was asked for may still take over: another target would call off the transfer to it."""
        if not record.target or record.target == self._agent:
            return False
        if not rotating.asked_ms:
            rotating.asked_ms = self._clock.boot_ms()  # by an earlier leader, or an earlier session of ours
        return self._clock.boot_ms() - rotating.asked_ms < _MOVE_MS and any(
            member.id == record.target for member in self._members()
        )

    async def _rotate(self, rotating: _RotatingPartition, record: RotationRecord) -> None:
        partition = rotating.partition
        await failpoints.reached_async("rotation.due")
        try:
            async with asyncio.timeout(self._settings.drain_publish_ms / 1000):
                await partition.wait_published()
        except TimeoutError:
            return  # object storage is away: its own log lines say so
        await failpoints.reached_async("rotation.published")
        members = self._members()
        target = next_leader(members, group=rotating.group, leader=self._agent, before=record.target)
        node = next((member.node for member in members if member.id == self._agent), 0)
        after = sealed(record, end=partition.record.published, epoch=partition.lease.epoch, node=node, target=target)
        if not await self._commit(rotating, after):
            return
        await failpoints.reached_async("rotation.sealed")
        self.sealed += 1
        rotating.asked_ms = self._clock.boot_ms()
        _log.info(
            "sealed segment %d of %s at offset %d; next leader: %s",
            record.segment,
            partition.partition_id,
            after.start,
            target,
        )

    async def _commit(self, rotating: _RotatingPartition, record: RotationRecord) -> bool:
        """Write the record if it is as it was read; otherwise it is read again."""
        lease = rotating.partition.lease
        key = rotation_key(lease.resource)
        version = rotating.version
        unchanged: Requirement = Absent(key) if version is None else AtVersion(key, version)
        outcome = await commit_fenced(
            self._store,
            lease,
            clock=self._clock,
            random=self._random,
            require=(unchanged,),
            apply=(Put(key, msgspec.json.encode(record)),),
        )
        if isinstance(outcome, Conflict):
            rotating.record = None
            return False
        rotating.record, rotating.version = record, outcome.version
        return True


def _rotates(partition: LeadingPartition) -> bool:
    config = partition.partition_config
    return config.rotation_entries > 0 or config.rotation_bytes > 0


def _size_bytes(partition: LeadingPartition, start: int) -> int:
    """What is stored of the segment that begins at `start`, published or not."""
    published = sum(each.size_bytes for each in partition.segments.recent if each.base_offset >= start)
    return published + partition.unpublished_bytes

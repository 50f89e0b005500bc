"""A process that keeps replicas until somebody kills it: `python -m tests.support.replication.host_process DIR SEED`.

It leads its own partitions, each under a new epoch in every life, and says what they answered, one line each: `seen NUMBER PROMISED
EPOCH OFFSET` for what it finds at its start, `ack NUMBER PROMISED EPOCH OFFSET` for a position that is durable.
"""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
from tests.support.replication.in_process import hosted
from tests.support.replication.logs import P, append, start
from tests.support.wal import SMALL, frame

from holdfast.log.replication.messages import Ack, Answer, Request, Seal, Sealed
from holdfast.log.replication.positions import NOWHERE, Position, ReplicaEntry
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.vocabulary.random import SeededRandom

COPYING = replace(SMALL, copy_forward_files=3, copy_forward_bytes=8 << 10)
PARTITIONS = 4
BUSY = 7  # a partition that is not replicated, and fills files
WAL_ID = "w1"


def payload(epoch: int, offset: int) -> bytes:
    """What stands at this place, and nowhere else."""
    return f"{epoch}:{offset};".encode() * (1 + (epoch * 31 + offset * 7) % 60)


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Leader:
    """One partition: what its replica is sent, by what it has."""

    def __init__(self, host: ReplicaHost, number: int, random: SeededRandom) -> None:
        self._host, self._number, self._rng = host, number, random.random
        found = host.get((P[0], number))
        replica = None if found is None else found.replica
        self._epoch, self._ends = 1, [NOWHERE]
        if replica is not None:
            self._epoch = replica.promised + 1
            self._ends = [replica.log.base, *(each.position for each in replica.log.entries)]
            say("seen", number, replica.promised, *replica.log.position)
            for each in replica.log.entries:
                assert each.is_epoch_start or b"".join(each.payload) == payload(each.epoch, each.base_offset)

    def send(self) -> None:
        """A few messages, without waiting for answers."""
        for _ in range(self._rng.randrange(1, 6)):
            self._host.handle(self._message(), WAL_ID, self._on_answer)

    def _message(self) -> Request:
        kind = self._rng.random()
        if kind < 0.1:
            self._epoch += 1
            return Seal(partition=(P[0], self._number), epoch=self._epoch, wal_id=WAL_ID)
        previous = self._ends[-1]
        if kind < 0.2:  # a leader that did not get everything of the one before
            self._epoch += 1
            previous = self._rng.choice(self._ends)
            del self._ends[self._ends.index(previous) + 1 :]
        entries: list[ReplicaEntry] = []
        if previous.epoch < self._epoch:
            entries.append(start(self._epoch, previous.offset))
        for _ in range(self._rng.randrange(4)):
            offset = entries[-1].position.offset if entries else previous.offset
            entries.append(ReplicaEntry(self._epoch, offset, 1, (payload(self._epoch, offset),)))
        self._ends += [each.position for each in entries]
        published = NOWHERE
        if kind > 0.7:
            published = self._ends[len(self._ends) // 2]
            del self._ends[: len(self._ends) // 2]
        return msgspec.structs.replace(
            append(self._epoch, previous, *entries, published=published), partition=(P[0], self._number)
        )

    def _on_answer(self, answer: Answer | None) -> None:
        assert isinstance(answer, Ack | Sealed), answer
        position: Position = answer.matched if isinstance(answer, Ack) else answer.position
        say("ack", self._number, answer.epoch, *position)


async def main(directory: Path, seed: int) -> None:
    random = SeededRandom(seed)
    rng = random.random
    async with hosted(directory, WAL_ID, wal_settings=COPYING, seed=seed) as host:
        leaders = [Leader(host, number, random) for number in range(PARTITIONS)]
        wal, busy = host.wal, (P[0], BUSY)
        say("ready")
        while True:
            for leader in rng.sample(leaders, 2):
                leader.send()
            offset = wal.unreleased().get(busy, 0)
            await wal.append(frame(offset, partition=BUSY, topic_id=P[0], size=rng.randrange(3_000)))
            wal.release(*busy, offset + 1)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))

"""What `holdfast wal replicas` finds in a directory, with the server stopped or killed."""

from pathlib import Path

from tests.support.replication.logs import WAL, P, append, at, entry, seal, start
from tests.support.waiting import async_until
from tests.support.wal import fill, frame, opened

from holdfast.log.replication.inspection import ReplicaReport, inspect_replicas
from holdfast.log.replication.messages import Answer, Request
from holdfast.log.replication.positions import NOWHERE
from holdfast.log.replication.replica_wal import ReplicaWal


async def kept(directory: Path, *messages: Request) -> None:
    async with opened(directory) as wal:
        mine = await ReplicaWal.open(wal, WAL, P)
        answers: list[Answer | None] = []
        for each in messages:
            mine.handle(each, answers.append)
        await async_until(lambda: len(answers) == len(messages))


async def test_promise_base_and_log_of_every_replica_are_shown(tmp_path: Path) -> None:
    await fill(tmp_path / "wal", (frame(offset) for offset in range(3)))  # of a partition without replicas
    await kept(
        tmp_path / "wal",
        append(1, NOWHERE, start(1, 0), entry(1, 0), entry(1, 1, data=bytes(50)), entry(1, 2, data=bytes(70))),
        append(2, at(1, 2), start(2, 2), entry(2, 2, 4, data=bytes(30)), published=at(1, 1)),
        seal(7),
    )
    assert inspect_replicas(tmp_path / "wal") == [
        ReplicaReport(
            topic_id=P[0].hex(),
            partition=P[1],
            promised=7,
            base_epoch=1,
            base_offset=1,
            end_epoch=2,
            end_offset=6,
            entries=3,
            size_bytes=80,
        )
    ]


async def test_a_wal_without_replicas_has_none(tmp_path: Path) -> None:
    await fill(tmp_path / "wal", (frame(offset) for offset in range(3)))
    assert inspect_replicas(tmp_path / "wal") == []

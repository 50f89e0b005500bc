"""`holdfast wal replicas`: a line for each replica in a WAL."""

import asyncio
from pathlib import Path

from tests.support.command_line import Run
from tests.support.replication.logs import WAL, P, append, entry, start
from tests.support.wal import opened

from holdfast.log.replication.positions import NOWHERE
from holdfast.log.replication.replica_wal import ReplicaWal


def test_replicas_are_listed(tmp_path: Path, run: Run) -> None:
    async def keep() -> None:
        async with opened(tmp_path / "wal") as wal:
            mine = await ReplicaWal.open(wal, WAL, P)
            answered = asyncio.Event()
            mine.handle(append(3, NOWHERE, start(3, 0), entry(3, 0)), lambda _: answered.set())
            await answered.wait()

    asyncio.run(keep())
    (row,) = run("wal", "replicas", str(tmp_path / "wal"), "--json").rows
    assert (row["topic_id"], row["partition"], row["promised"], row["end_offset"]) == (P[0].hex(), P[1], 3, 1)
    assert P[0].hex()[:8] in run("wal", "replicas", str(tmp_path / "wal")).text
    assert run("wal", "replicas", str(tmp_path / "nothing")).code != 0

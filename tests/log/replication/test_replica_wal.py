"""A replica on real WAL files: what it answered is there after any crash, and what was cut off stays away."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.partitions import FullDisk
from tests.support.replication.logs import WAL, P, answer_of, append, at, base, entry, facts, seal, start
from tests.support.waiting import async_until
from tests.support.wal import SMALL, TOPIC, crash_copy, fill, frame, opened

from holdfast.log.replication.messages import Ack, Answer, Mismatch, Request, Sealed
from holdfast.log.replication.positions import NOWHERE, Position, ReplicaEntry
from holdfast.log.replication.replica import Replica
from holdfast.log.replication.replica_frames import state_key
from holdfast.log.replication.replica_wal import ReplicaWal, replica_id
from holdfast.log.wal import Wal, WalFrame, WalSettings
from holdfast.log.wal.files import live_files
from holdfast.log.wal.frames import FRAMES_AT, decode_file_header
from holdfast.log.wal.inspection import inspect
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom

COPYING = replace(SMALL, copy_forward_files=3, copy_forward_bytes=8 << 10)
HISTORY = (start(1, 0), entry(1, 0), entry(1, 1), entry(1, 2))
Facts = tuple[int, Position, list[tuple[int, int, int, bytes]]]


def facts_of(replica: Replica) -> Facts:
    entries = [(each.epoch, each.base_offset, each.count, b"".join(each.payload)) for each in replica.log.entries]
    return replica.promised, replica.log.base, entries


async def answer(mine: ReplicaWal, message: Request) -> Answer:
    answers: list[Answer | None] = []
    mine.handle(message, answers.append)
    await async_until(lambda: bool(answers))
    assert answers[0] is not None
    return answers[0]


async def reopened(directory: Path, settings: WalSettings = SMALL, partition: tuple[bytes, int] = P) -> Facts:
    async with opened(directory, settings=settings, seed=9) as wal:
        return facts_of((await ReplicaWal.open(wal, WAL, partition)).replica)


async def test_an_answer_comes_after_the_fsync_and_everything_is_there_after_a_crash(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal") as wal:
        mine = await ReplicaWal.open(wal, WAL, P)
        answers: list[Answer | None] = []
        for message in (
            append(1, NOWHERE, *HISTORY, hw=2),
            append(1, at(1, 3), published=at(1, 1)),
            append(2, at(1, 2), start(2, 2), entry(2, 2)),
            seal(4),
        ):
            mine.handle(message, answers.append)
        assert answers == []  # no answer in the turn in which the frames are queued
        await async_until(lambda: len(answers) == 4)
        assert facts(answers[0]) == (Ack, 1, at(1, 3))
        assert facts(answers[2]) == (Ack, 2, at(2, 3))
        assert facts(answers[3])[:4] == (Sealed, 4, at(1, 1), at(2, 3))
        copy = crash_copy(tmp_path / "wal", tmp_path / "crashed")
        expected = facts_of(mine.replica)
    assert expected[:2] == (4, at(1, 1))
    assert [each[:2] for each in expected[2]] == [(1, 1), (2, 2), (2, 2)]
    assert await reopened(copy) == expected
    assert await reopened(tmp_path / "wal") == expected


@pytest.mark.parametrize("dropped", [True, False])
async def test_what_a_leader_without_replicas_wrote_here_is_no_part_of_the_log_under_a_later_promise(
    tmp_path: Path, dropped: bool
) -> None:
    async with opened(tmp_path / "wal") as wal:
        mine = await ReplicaWal.open(wal, WAL, P)
        await answer(mine, append(1, NOWHERE, *HISTORY))
        if dropped:
            assert mine.drop(2, (), 3)
        else:
            await answer(mine, append(1, at(1, 3), published=at(1, 3)))
        for offset in (3, 4, 5):
            await wal.append(WalFrame(*P, 3, offset, 1, (b"local",)))
        wal.release(*P, 6)
        behind = append(5, at(3, 6), start(5, 6))
        assert isinstance(await answer(mine, behind), Mismatch)  # it has promised, and is not brought up yet
        expected = facts_of(mine.replica)
        copy = crash_copy(tmp_path / "wal", tmp_path / "crashed")
    assert expected == (5, NOWHERE if dropped else at(1, 3), [])
    assert await reopened(copy) == expected
    async with opened(copy) as wal:
        mine = await ReplicaWal.open(wal, WAL, P)
        await answer(mine, base(5, at(3, 6)))
        await answer(mine, behind)
        expected = facts_of(mine.replica)
    assert expected == (5, at(3, 6), [(5, 6, 0, b"")])
    assert await reopened(copy) == expected


MESSAGES: Sequence[Request] = (
    append(1, NOWHERE, *HISTORY),
    append(2, at(1, 1), start(2, 1), entry(2, 1, 4)),
    seal(3),
    append(3, at(1, 2), hw=9),
    append(3, at(1, 1), start(3, 1), entry(3, 1), published=at(3, 2)),
    base(5, at(4, 9)),
    append(5, at(4, 9), start(5, 9), entry(5, 9, 3)),
)


@pytest.mark.slow
async def test_a_torn_write_leaves_what_came_before_it(tmp_path: Path) -> None:
    """Whatever of the last bytes did not reach the disk: the replica is what the frames before it make it."""
    states: list[Facts] = []
    async with opened(tmp_path / "wal") as wal:
        mine = await ReplicaWal.open(wal, WAL, P)
        states.append(facts_of(mine.replica))
        for message in MESSAGES:
            await answer(mine, message)
            states.append(facts_of(mine.replica))
        crashed = crash_copy(tmp_path / "wal", tmp_path / "crashed")
    [(_, path)] = [each for each in live_files(crashed) if each[1].read_bytes()[FRAMES_AT : FRAMES_AT + 4] == b"HFWL"]
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    chance, seen = SeededRandom(5).random, set[int]()
    for cut in sorted({*chance.sample(range(FRAMES_AT, end), 25), FRAMES_AT, end}):
        torn = tmp_path / f"torn-{cut}"
        shutil.copytree(crashed, torn)
        # What is proven synced by a later frame is corruption if it is gone; so nothing later may be left.
        (torn / path.name).write_bytes(data[:cut] + bytes(len(data) - cut))
        found = await reopened(torn)
        if found in states:
            seen.add(states.index(found))
        assert found[0] in (0, 1, 2, 3, 5)
        shutil.rmtree(torn)
    assert {0, len(states) - 1} <= seen


@pytest.mark.slow
async def test_what_was_cut_off_does_not_come_back_when_frames_are_copied_forward(tmp_path: Path) -> None:
    busy = (TOPIC, 1)
    async with opened(tmp_path / "wal", settings=COPYING) as wal:
        mine = await ReplicaWal.open(wal, WAL, P)
        await answer(mine, append(1, NOWHERE, *HISTORY))
        await answer(mine, append(2, at(1, 1), start(2, 1), *(entry(2, offset) for offset in range(1, 30))))
        await answer(mine, append(3, at(1, 1), start(3, 1)))
        offset = 0
        while wal.stats.copied_frames < 200:  # everything was copied, some of it more than once
            await wal.append(frame(offset, partition=busy[1], size=3_000))
            offset += 1
            wal.release(*busy, offset)
            if offset % 10 == 0:
                await answer(mine, append(3, mine.replica.log.position, entry(3, mine.replica.log.position.offset)))
        expected = facts_of(mine.replica)
    assert [each[0] for each in expected[2]][:3] == [1, 1, 3]
    assert await reopened(tmp_path / "wal", COPYING) == expected


@pytest.mark.slow
async def test_the_space_of_what_is_published_is_used_again_and_the_promise_stays(tmp_path: Path) -> None:
    payload = bytes(3_000)
    async with opened(tmp_path / "wal", settings=COPYING) as wal:
        mine = await ReplicaWal.open(wal, WAL, P)
        await answer(mine, append(7, NOWHERE, start(7, 0)))
        for offset in range(200):
            at_end = mine.replica.log.position
            await answer(mine, append(7, at_end, entry(7, offset, data=payload), published=at_end))
        assert wal.stats.rolls > 10
        await async_until(lambda: len(live_files(tmp_path / "wal")) < 8)
        assert len(mine.replica.log) == 1
        assert wal.unreleased()[state_key(P)] >= 200  # the last state alone is kept
    promised, released, entries = await reopened(tmp_path / "wal", COPYING)
    assert (promised, released, len(entries)) == (7, at(7, 199), 1)


async def test_a_dropped_log_frees_its_space_and_stays_away_and_the_promise_stays(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal") as wal:
        mine = await ReplicaWal.open(wal, WAL, P)
        await answer(mine, append(1, NOWHERE, *HISTORY))
        assert not mine.drop(1, ("w0", WAL), 2)
        assert mine.drop(4, ("w0", "w2"), 2)
        await async_until(lambda: not mine.pending)
        assert wal.unreleased()[P] == 3  # what is not published may be somebody else's
        mine.release_published(3)
        assert P not in wal.unreleased()
    assert await reopened(tmp_path / "wal") == (4, NOWHERE, [])
    async with opened(tmp_path / "wal") as wal:  # and it may be filled again
        mine = await ReplicaWal.open(wal, WAL, P)
        await answer(mine, append(5, NOWHERE, start(2, 0), entry(2, 0)))
    assert [each[:2] for each in (await reopened(tmp_path / "wal"))[2]] == [(2, 0), (2, 0)]
    async with opened(tmp_path / "wal") as wal:
        (await ReplicaWal.open(wal, WAL, P)).discard()
        assert wal.unreleased() == {}


async def test_a_full_disk_answers_nobody_and_changes_nothing(tmp_path: Path) -> None:
    disk = FullDisk()
    async with opened(tmp_path / "wal", disk=disk) as wal:
        mine = await ReplicaWal.open(wal, WAL, P)
        await answer(mine, append(1, NOWHERE, *HISTORY))
        before = facts_of(mine.replica)
        disk.full = True
        answers: list[Answer | None] = []
        mine.handle(append(2, at(1, 1), start(2, 1), entry(2, 1)), answers.append)
        mine.handle(append(2, at(2, 2), entry(2, 2)), answers.append)
        assert facts_of(mine.replica) != before
        await async_until(lambda: facts_of(mine.replica) == before)
        assert answers == [None, None]
        disk.full = False
        assert facts(await answer(mine, append(2, at(1, 1), start(2, 1)))) == (Ack, 2, at(2, 1))
        expected = facts_of(mine.replica)
    assert await reopened(tmp_path / "wal") == expected


async def test_an_entry_that_does_not_fit_is_refused_before_anything_changes(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal") as wal:
        mine = await ReplicaWal.open(wal, WAL, P)
        huge = entry(1, 0, data=bytes(SMALL.payload_bytes_max))
        with pytest.raises(InvalidError, match="entry bytes"):
            mine.handle(append(1, NOWHERE, start(1, 0), huge), lambda _: None)
        assert facts_of(mine.replica) == (0, NOWHERE, [])


def versions(directory: Path) -> list[int]:
    decoded = (decode_file_header(path.read_bytes()[:512]) for _, path in live_files(directory))
    return [each[1] for each in decoded if each is not None]


async def test_a_release_that_does_not_know_replicas_refuses_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "wal") as wal:
        await wal.append(frame(0))
        assert set(versions(tmp_path / "wal")) == {1}  # it can go back as long as nothing is replicated
        await answer(await ReplicaWal.open(wal, WAL, P), seal(1))
        assert 2 in versions(tmp_path / "wal")
    monkeypatch.setattr("holdfast.log.wal.recovery.FILE_VERSIONS", (1,))
    with pytest.raises(InvalidError, match=r"format version of WAL file .* 2: must be at most 1: use a newer release"):
        await reopened(tmp_path / "wal")


async def test_frames_of_before_the_partition_was_replicated_are_no_part_of_the_log(tmp_path: Path) -> None:
    await fill(tmp_path / "wal", (frame(offset, partition=P[1], topic_id=P[0]) for offset in range(5)))
    async with opened(tmp_path / "wal") as wal:
        mine = await ReplicaWal.open(wal, WAL, P)
        assert facts_of(mine.replica) == (0, NOWHERE, [])
        assert wal.unreleased() == {P: 5}  # they are still somebody's
        await answer(mine, append(3, NOWHERE, start(3, 0), entry(3, 0)))
        expected = facts_of(mine.replica)
    assert await reopened(tmp_path / "wal") == expected


async def test_a_repaired_wal_is_another_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path / "wal") as wal:
        await answer(await ReplicaWal.open(wal, WAL, P), append(3, NOWHERE, *HISTORY))
    async with opened(tmp_path / "wal") as wal:
        wal.repairs.last_repair = 2
        mine = await ReplicaWal.open(wal, replica_id(WAL, 2), P)
        assert facts_of(mine.replica) == (0, NOWHERE, [])
        await answer(mine, append(4, NOWHERE, start(4, 0)))
    async with opened(tmp_path / "wal") as wal:
        wal.repairs.last_repair = 2
        mine = await ReplicaWal.open(wal, replica_id(WAL, 2), P)
        assert facts_of(mine.replica) == (4, NOWHERE, [(4, 0, 0, b"")])
    assert (replica_id(WAL, 0), replica_id(WAL, 2)) == (WAL, f"{WAL}.2")


async def test_an_inspection_lists_the_offsets_of_entries_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal") as wal:
        await answer(await ReplicaWal.open(wal, WAL, P), append(1, NOWHERE, *HISTORY))
    [found] = [report for report in inspect(tmp_path / "wal").files if report.frames]
    assert found.frames == 1 + len(HISTORY)
    assert [(each.partition, each.first_offset, each.end_offset) for each in found.partitions] == [(P[1], 0, 3)]


async def test_what_the_partition_wrote_here_since_the_start_is_no_part_of_the_log(tmp_path: Path) -> None:
    """It was not replicated then. Nothing of it is recovered when the replica is opened, and it stands in the files."""
    async with opened(tmp_path / "wal") as wal:
        for offset in range(3):
            await wal.append(frame(offset, partition=P[1], topic_id=P[0]))
        mine = await ReplicaWal.open(wal, WAL, P)
        await answer(mine, append(2, NOWHERE, start(2, 0), entry(2, 0)))
        expected = facts_of(mine.replica)
    assert await reopened(tmp_path / "wal") == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_restarts_at_any_time_leave_what_a_replica_in_memory_would_be(tmp_path: Path, seed: int) -> None:
    """The same messages to a replica on files and to one in memory, other partitions in the same WAL, and restarts."""
    chance = SeededRandom(seed).random
    twin = Replica(P, WAL)
    epoch = 1
    for _ in range(6):
        async with opened(tmp_path / "wal", settings=COPYING, seed=seed) as wal:
            mine = await ReplicaWal.open(wal, WAL, P)
            assert facts_of(mine.replica) == facts_of(twin)
            for _ in range(12):
                epoch += chance.random() < 0.3
                message = _message(
                    chance.choice(("append", "append", "append", "fork", "release", "base", "seal")),
                    twin,
                    epoch,
                    chance.random(),
                )
                answer_of(twin, message)
                await answer(mine, message)
                await _others(wal)
            assert facts_of(mine.replica) == facts_of(twin)


async def _others(wal: Wal) -> None:
    end = wal.unreleased().get((TOPIC, 2), 0)
    await wal.append(frame(end, partition=2, size=2_000))
    wal.release(TOPIC, 2, end + 1)


def _message(kind: str, twin: Replica, epoch: int, share: float) -> Request:
    """Something a leader of `epoch` could send to this replica."""
    log = twin.log
    ends = [log.base, *(each.position for each in log.entries)]
    somewhere = ends[int(share * len(ends))]
    if kind == "seal":
        return seal(epoch)
    if kind == "base" and share < 0.3:
        return base(epoch, Position(epoch, log.position.offset + 3))
    if kind == "release":
        return append(epoch, log.position, published=somewhere)
    previous = somewhere if kind == "fork" else log.position
    entries: list[ReplicaEntry] = []
    if previous.epoch < epoch:
        entries.append(start(epoch, previous.offset))
    entries.append(entry(epoch, previous.offset, 2))
    return append(epoch, previous, *entries)


async def test_a_step_that_the_wal_refuses_takes_no_earlier_one_back(tmp_path: Path) -> None:
    far = 1 << 31
    long = (start(1, 0), entry(1, 0), entry(1, 1, far - 2), entry(1, far - 1, 3))
    async with opened(tmp_path / "wal") as wal:
        mine = await ReplicaWal.open(wal, WAL, P)
        await answer(mine, append(1, NOWHERE, *long))
        answers: list[Answer | None] = []
        mine.handle(append(1, at(1, far + 2), entry(1, far + 2)), answers.append)
        with pytest.raises(
            InvalidError, match="partition and count"
        ):  # a truncation of more offsets than a frame counts
            mine.handle(append(2, at(1, 0), start(2, 0), entry(2, 0)), answers.append)
        await async_until(lambda: bool(answers))
        assert facts(answers[0]) == (Ack, 1, at(1, far + 3))
        expected = facts_of(mine.replica)
        copy = crash_copy(tmp_path / "wal", tmp_path / "crashed")
    assert expected[0] == 1
    assert len(answers) == 1
    assert await reopened(copy) == expected

"""The feed: order, resumption, the log behind it, and how watchers end."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.store import Change, Changed, Entry, Resync
from holdfast.stores.change_feed import ChangeFeed, ChangeLogPage
from holdfast.vocabulary.errors import ClosedError, CorruptError

WAIT_S = 5.0


def commit(version: int, *keys: str) -> Changed:
    return Changed(version, tuple(Change(key, Entry(key, b"1", version)) for key in keys or ("k",)))


async def take(commits: AsyncIterator[Changed | Resync], count: int) -> list[Changed | Resync]:
    async with asyncio.timeout(WAIT_S):
        return [await anext(commits) for _ in range(count)]


async def waits(commits: AsyncIterator[Changed | Resync]) -> bool:
    """Whether the watch has nothing more to say for now."""
    waiting = asyncio.ensure_future(anext(commits))
    done, _ = await asyncio.wait([waiting], timeout=0.02)
    waiting.cancel()
    await asyncio.wait([waiting])
    return not done


async def test_a_watcher_sees_what_was_published_before_and_after_it_started() -> None:
    feed = ChangeFeed(head=10)
    feed.publish(commit(11))
    feed.publish(commit(13))
    async with feed.watch("", from_version=10) as commits:
        assert await take(commits, 2) == [commit(11), commit(13)]
        assert await waits(commits)
        feed.publish(commit(14))
        assert await take(commits, 1) == [commit(14)]


async def test_a_watcher_starts_after_its_version() -> None:
    feed = ChangeFeed(head=0)
    for version in range(1, 6):
        feed.publish(commit(version))
    async with feed.watch("", from_version=3) as commits:
        assert await take(commits, 2) == [commit(4), commit(5)]
        assert await waits(commits)


async def test_a_watcher_ahead_of_the_feed_waits_for_what_is_new_to_it() -> None:
    feed = ChangeFeed(head=0)
    async with feed.watch("", from_version=2) as commits:
        for version in (1, 2, 3):
            feed.publish(commit(version))
        assert await take(commits, 1) == [commit(3)]


async def test_a_log_that_was_read_twice_is_published_once() -> None:
    feed = ChangeFeed(head=0)
    async with feed.watch("", from_version=0) as commits:
        for version in (1, 2, 1, 2, 3):
            feed.publish(commit(version))
        assert await take(commits, 3) == [commit(1), commit(2), commit(3)]
        assert await waits(commits)


async def test_a_watcher_sees_only_its_prefix() -> None:
    feed = ChangeFeed(head=0)
    async with feed.watch("a/", from_version=0) as commits:
        feed.publish(commit(1, "a/1", "b/1"))
        feed.publish(commit(2, "b/2"))
        feed.publish(commit(3, "a/3"))
        assert await take(commits, 2) == [commit(1, "a/1"), commit(3, "a/3")]


async def test_a_watcher_behind_memory_without_a_log_gets_resync() -> None:
    feed = ChangeFeed(head=0, commits_kept=2)
    for version in range(1, 6):
        feed.publish(commit(version))
    async with feed.watch("", from_version=0) as commits:
        assert await take(commits, 3) == [Resync(3), commit(4), commit(5)]


async def test_a_watcher_behind_memory_reads_the_log_until_it_has_caught_up() -> None:
    feed = ChangeFeed(head=100)
    asked = []

    async def read_log(after: int) -> ChangeLogPage:
        asked.append(after)
        return ChangeLogPage(tuple(commit(version) for version in range(after + 1, min(after + 40, 100) + 1)))

    feed.publish(commit(101))
    async with feed.watch("", from_version=5, read_log=read_log) as commits:
        assert await take(commits, 96) == [commit(version) for version in range(6, 102)]
        feed.publish(commit(102))
        assert await take(commits, 1) == [commit(102)]
    assert asked == [5, 45, 85]


async def test_a_log_with_a_gap_before_memory_is_not_read_for_ever() -> None:
    feed = ChangeFeed(head=100)

    async def read_log(after: int) -> ChangeLogPage:
        return ChangeLogPage((commit(50),) if after < 50 else ())

    feed.publish(commit(101))
    async with feed.watch("", from_version=5, read_log=read_log) as commits:
        assert await take(commits, 2) == [commit(50), commit(101)]


async def test_a_pruned_log_gives_the_watcher_a_resync() -> None:
    feed = ChangeFeed(head=100)

    async def read_log(after: int) -> ChangeLogPage:
        return ChangeLogPage((), gone_until=70)

    feed.publish(commit(101))
    async with feed.watch("", from_version=5, read_log=read_log) as commits:
        assert await take(commits, 2) == [Resync(100), commit(101)]


async def test_commits_published_while_the_log_is_read_are_not_skipped() -> None:
    feed = ChangeFeed(head=10, commits_kept=1)
    log: list[Changed] = []
    reading, go_on = asyncio.Event(), asyncio.Event()

    async def read_log(after: int) -> ChangeLogPage:
        page = ChangeLogPage(tuple(each for each in log if each.version > after))
        reading.set()
        await go_on.wait()
        return page

    async with feed.watch("", from_version=5, read_log=read_log) as commits:
        first = asyncio.ensure_future(anext(commits))
        await reading.wait()
        for version in range(11, 20):  # memory moves on past all that it knew when the log was read
            log.append(commit(version))
            feed.publish(log[-1])
        go_on.set()
        async with asyncio.timeout(WAIT_S):
            assert await first == commit(11)
        assert await take(commits, 8) == log[1:]


async def test_a_restarted_feed_sends_watchers_to_the_log() -> None:
    feed = ChangeFeed(head=0)

    async def read_log(after: int) -> ChangeLogPage:
        return ChangeLogPage((), gone_until=50)

    async with feed.watch("", from_version=0, read_log=read_log) as commits:
        feed.publish(commit(1))
        assert await take(commits, 1) == [commit(1)]
        waiting = asyncio.ensure_future(anext(commits))
        await asyncio.wait([waiting], timeout=0.01)
        feed.restart_at(50)
        async with asyncio.timeout(WAIT_S):
            assert await waiting == Resync(50)
        feed.publish(commit(51))
        assert await take(commits, 1) == [commit(51)]


async def test_the_end_reaches_waiting_busy_and_future_watchers_and_the_first_error_stays() -> None:
    feed = ChangeFeed(head=0)
    async with feed.watch("none", from_version=0) as idle, feed.watch("", from_version=0) as busy:
        waiting = asyncio.ensure_future(anext(idle))
        await asyncio.wait([waiting], timeout=0.01)
        feed.publish(commit(1))
        feed.publish(commit(2))
        assert await take(busy, 1) == [commit(1)]
        feed.end(CorruptError("store", "went back"))
        feed.end(ClosedError("store"))
        for _ in range(2):
            with pytest.raises(CorruptError):
                await take(busy, 1)
        with pytest.raises(CorruptError):
            await waiting
    async with feed.watch("", from_version=0) as late:
        with pytest.raises(CorruptError):
            await take(late, 1)


async def test_a_cancelled_wait_loses_nothing() -> None:
    feed = ChangeFeed(head=0)
    async with feed.watch("", from_version=0) as commits:
        for version in range(1, 4):
            assert await waits(commits)
            feed.publish(commit(version))
            assert await take(commits, 1) == [commit(version)]


async def test_a_cancelled_read_of_the_log_is_repeated() -> None:
    feed = ChangeFeed(head=3)
    stuck = asyncio.Event()

    async def read_log(after: int) -> ChangeLogPage:
        await stuck.wait()
        return ChangeLogPage(tuple(commit(version) for version in range(after + 1, 4)))

    async with feed.watch("", from_version=0, read_log=read_log) as commits:
        assert await waits(commits)
        stuck.set()
        assert await take(commits, 3) == [commit(1), commit(2), commit(3)]


async def test_a_closed_watcher_is_removed() -> None:
    feed = ChangeFeed(head=0)
    async with feed.watch("", from_version=0):
        assert len(feed._watches) == 1
    assert not feed._watches


async def test_what_every_watcher_has_seen_does_not_stay_in_memory() -> None:
    feed = ChangeFeed(head=0, changes_kept=10)
    async with feed.watch("", from_version=0) as first, feed.watch("b/", from_version=0) as second:
        for version in range(1, 101):
            feed.publish(commit(version, *(f"a/{number}" for number in range(50))))
        assert feed.changes == 100 * 50  # nobody has taken them
        await take(first, 100)
        assert await waits(first)
        assert feed.changes == 100 * 50
        assert await waits(second)
        assert feed.changes <= 50
        feed.publish(commit(101, "b/1"))
        assert await take(first, 1) == await take(second, 1) == [commit(101, "b/1")]


async def test_a_watcher_that_does_not_go_on_bounds_what_is_kept_for_it_by_changes() -> None:
    feed = ChangeFeed(head=0, changes_max=1_000)
    async with feed.watch("", from_version=0) as stuck:
        for version in range(1, 101):
            feed.publish(commit(version, *(f"a/{number}" for number in range(50))))
            assert feed.changes <= 2_000
        [resync] = await take(stuck, 1)
        assert isinstance(resync, Resync)
        assert 100 - 2_000 // 50 <= resync.version <= 100 - 1_000 // 50


@given(
    kept=st.integers(1, 4),
    changes=st.integers(1, 4),
    gaps=st.lists(st.integers(1, 3), max_size=30),
    start=st.integers(0, 90),
    log_from=st.integers(0, 90),
    page=st.integers(1, 5),
)
def test_no_commit_is_lost_silently_whatever_memory_and_log_keep(
    kept: int, changes: int, gaps: list[int], start: int, log_from: int, page: int
) -> None:
    async def follow() -> None:
        feed, log, version = ChangeFeed(head=0, commits_kept=kept, changes_kept=changes, changes_max=changes), [], 0
        for gap in gaps:
            version += gap
            log.append(commit(version))
            feed.publish(log[-1])

        async def read_log(after: int) -> ChangeLogPage:
            gone = [each.version for each in log if each.version <= log_from]
            commits = [each for each in log if each.version > max(after, log_from)]
            return ChangeLogPage(tuple(commits[:page]), gone_until=gone[-1] if gone else 0)

        end = commit(max(version, start) + 1)
        log.append(end)
        feed.publish(end)
        async with feed.watch("", from_version=start, read_log=read_log) as commits:
            seen: list[Changed | Resync] = []
            while not seen or seen[-1].version < end.version:
                seen += await take(commits, 1)
        resyncs = [each for each in seen if isinstance(each, Resync)]
        assert seen[: len(resyncs)] == resyncs  # at most at the start: this log forgets nothing later
        after = resyncs[-1].version if resyncs else start
        assert seen[len(resyncs) :] == [each for each in log if each.version > after]
        assert not resyncs or start < log_from

    asyncio.run(follow())

"""Reading ahead: what is guessed, how much, and what becomes of guesses nobody comes for."""

import asyncio

import pytest

from holdfast.log.read_ahead import ReadAhead, ReadPosition

HERE = ReadPosition("topic", 0, 10)


async def value(given: str) -> str:
    return given


async def test_a_guess_is_there_once() -> None:
    ahead: ReadAhead[str] = ReadAhead(2)
    ahead.begin(HERE, value("a"))
    assert await ahead.take(HERE) == "a"
    assert await ahead.take(HERE) is None


async def test_only_who_reads_on_where_a_read_ended_goes_on() -> None:
    ahead: ReadAhead[str] = ReadAhead(2)
    assert not ahead.continues(HERE)
    ahead.expect(HERE)
    assert ahead.continues(HERE)
    assert not ahead.continues(HERE)


async def test_no_guess_gives_way_while_its_reader_may_come(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead: ReadAhead[str] = ReadAhead(2)
    for number in range(3):
        ahead.begin(HERE._replace(offset=number), value(str(number)))
    assert await ahead.take(HERE._replace(offset=2)) is None
    assert await ahead.take(HERE._replace(offset=0)) == "0"


async def test_an_unused_read_ahead_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.log.read_ahead._STALE_S", 0.0)
    ahead: ReadAhead[bool] = ReadAhead(2)
    for number in range(3):
        ahead.begin(HERE._replace(offset=number), asyncio.Event().wait())
    assert len(ahead) == 2
    assert await ahead.take(HERE._replace(offset=0)) is None
    await ahead.close()
    assert len(ahead) == 0


async def test_a_failed_read_ahead_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> str:
        raise ValueError("no")

    ahead: ReadAhead[str] = ReadAhead(2)
    ahead.begin(HERE, broken())
    assert await ahead.take(HERE) is None
    ahead.begin(HERE, broken())
    await ahead.close()
    assert not caplog.records


async def test_without_room_nothing_is_guessed() -> None:
    ahead: ReadAhead[str] = ReadAhead(0)
    ahead.begin(HERE, value("a"))
    assert await ahead.take(HERE) is None
    ahead.put_back(HERE, "a")
    assert await ahead.take(HERE) is None


async def test_what_was_not_asked_for_yet_is_there_for_who_reads_on() -> None:
    ahead: ReadAhead[str] = ReadAhead(2)
    ahead.put_back(HERE, "rest")
    assert await ahead.take(HERE) == "rest"


async def test_where_a_read_ends_is_known_as_soon_as_it_is_said() -> None:
    ahead: ReadAhead[str] = ReadAhead(2)
    assert ahead.end_of(HERE) is None
    ahead.begin(HERE, value("a"))
    assert ahead.end_of(HERE) == HERE.offset
    ahead.ends(HERE, 20)
    assert ahead.end_of(HERE) == 20
    ahead.ends(HERE._replace(offset=99), 20)  # nothing is read for it (any more)
    assert ahead.end_of(HERE._replace(offset=99)) is None
    await ahead.close()

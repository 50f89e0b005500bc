"""Reading ahead: what is guessed, how much, and what becomes of guesses nobody comes for."""

import asyncio

import pytest

from holdfast.log.read_ahead import ReadAhead, Spot

HERE = Spot("object", 0, 10)


async def value(given: str) -> str:
    return given


async def test_a_guess_is_there_once() -> None:
    ahead: ReadAhead[str] = ReadAhead(2)
    ahead.begin(HERE, value("a"))
    guess = ahead.take(HERE)
    assert guess is not None
    assert await guess == "a"
    assert ahead.take(HERE) is None


async def test_only_who_reads_on_where_a_read_ended_goes_on() -> None:
    ahead: ReadAhead[str] = ReadAhead(2)
    assert not ahead.continues(HERE)
    ahead.expect(HERE)
    assert ahead.continues(HERE)
    assert not ahead.continues(HERE)


async def test_the_oldest_guess_gives_way() -> None:
    ahead: ReadAhead[str] = ReadAhead(2)
    waits = [asyncio.Event() for _ in range(3)]
    for number, wait in enumerate(waits):
        ahead.begin(HERE._replace(offset=number), wait.wait())  # type: ignore[arg-type]
    await asyncio.wait([ahead._guesses[HERE._replace(offset=2)]], timeout=0)
    assert len(ahead) == 2
    assert ahead.take(HERE._replace(offset=0)) is None
    await ahead.close()
    assert len(ahead) == 0


async def test_a_guess_that_fails_is_nobodys_trouble(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> str:
        raise ValueError("no")

    ahead: ReadAhead[str] = ReadAhead(2)
    ahead.begin(HERE, broken())
    await ahead.close()
    assert not caplog.records


async def test_without_room_nothing_is_guessed() -> None:
    ahead: ReadAhead[str] = ReadAhead(0)
    ahead.begin(HERE, value("a"))
    assert ahead.take(HERE) is None

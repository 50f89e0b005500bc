"""Faults between a client and its engine: lost answers, an engine that goes away."""

import asyncio

from holdfast.contracts.objects import AlreadyExists, Missing, Objects, Stored
from holdfast.testing.harness import ObjectsHarness
from holdfast.testing.objects_contract.operations import keys_below, put, read
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError


class ObjectFaults:
    """Nothing acknowledged is lost; failures are raised in time."""

    async def test_a_put_whose_answer_was_lost_is_found_already_there(
        self, harness: ObjectsHarness, objects: Objects
    ) -> None:
        await put(objects, "warm")
        harness.lose_answer_to("lost-7f3a")
        assert await objects.put("lost-7f3a", [b"body"]) == AlreadyExists("lost-7f3a")
        assert await objects.get("lost-7f3a") == b"body"

    async def test_an_unreachable_engine_is_unavailable_by_the_deadline(
        self, harness: ObjectsHarness, objects: Objects
    ) -> None:
        await put(objects, "away/a")
        async with harness.client(deadline_ms=1_500) as hasty:
            await harness.set_reachable(False)
            started_ms = RealClock().boot_ms()
            calls = [
                hasty.put("away/b", [b"b"]),
                hasty.get("away/a"),
                hasty.get_tail("away/a", 1),
                hasty.delete(["away/c"]),  # may still be done once the engine is back
                keys_below(hasty, "away/"),
            ]
            for failed in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(failed, UnavailableError), f"an engine that is away answered {failed!r}"
                assert "times in" in failed.reason, f"the error lacks the attempts: {failed}"
            assert RealClock().boot_ms() - started_ms < 10_000
            await harness.set_reachable(True)
        assert await objects.get("away/a") == b"away/a"
        assert await keys_below(objects, "away/") == ["away/a"]

    async def test_calls_succeed_when_the_engine_becomes_reachable_again(
        self, harness: ObjectsHarness, objects: Objects
    ) -> None:
        await put(objects, "back/a")
        await harness.set_reachable(False)
        calls = [
            asyncio.ensure_future(objects.put("back/b", [b"b"])),
            asyncio.ensure_future(objects.get("back/a")),
            asyncio.ensure_future(keys_below(objects, "back/")),
        ]
        await asyncio.wait(calls, timeout=0.3)
        assert not any(call.done() for call in calls)
        await harness.set_reachable(True)
        stored, found, listed = await asyncio.gather(*calls)
        assert stored == Stored("back/b", 1)
        assert found == b"back/a"
        assert listed in (["back/a"], ["back/a", "back/b"])

    async def test_a_cancelled_put_leaves_all_or_nothing(self, harness: ObjectsHarness) -> None:
        body = b"cancelled " * 100_000
        async with harness.client() as objects:
            for n in range(10):
                putting = asyncio.ensure_future(objects.put(f"cancelled/{n}", [body[:10], memoryview(body)[10:]]))
                await asyncio.wait({putting}, timeout=n * 0.002)
                putting.cancel()
                await asyncio.gather(putting, return_exceptions=True)
        # The engine is closed now, so nothing is in flight.
        async with harness.client() as objects:
            for n in range(10):
                found = await objects.get(f"cancelled/{n}")
                assert isinstance(found, Missing) or found == body

    async def test_another_client_sees_earlier_puts(self, harness: ObjectsHarness) -> None:
        async with harness.client() as first:
            for n in range(5):
                await put(first, f"reopened/{n}")
        async with harness.client() as second:
            assert await keys_below(second, "reopened/") == [f"reopened/{n}" for n in range(5)]
            for n in range(5):
                assert await read(second, f"reopened/{n}") == f"reopened/{n}".encode()
            assert await second.put("reopened/0", [b"other"]) == AlreadyExists("reopened/0")

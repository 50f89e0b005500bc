"""Engines with a server, which is killed and restarted."""

import asyncio
from collections.abc import Sequence

from holdfast.contracts.objects import AlreadyExists, Missing, Objects, Stored
from holdfast.testing.harness import ObjectsHarness
from holdfast.testing.objects_contract.operations import keys_below, put
from holdfast.vocabulary.errors import UnavailableError


class ObjectServers:
    """Acknowledged objects survive the server, and calls succeed after its restart."""

    async def test_nothing_acknowledged_is_lost_when_the_server_is_killed_under_it(
        self, harness: ObjectsHarness, objects: Objects
    ) -> None:
        await put(objects, "killed/old", b"old")
        acknowledged: dict[str, bytes] = {}
        reads = 0
        done = asyncio.Event()

        async def write(writer: int) -> None:
            n = 0
            while not done.is_set():
                n += 1
                key, body = f"killed/{writer}/{n}", f"{writer} {n} ".encode() * 300
                try:
                    outcome = await objects.put(key, [body])
                except UnavailableError:
                    continue  # not acknowledged
                assert outcome in (Stored(key, len(body)), AlreadyExists(key))
                acknowledged[key] = body

        async def read() -> None:
            nonlocal reads
            while not done.is_set():
                assert await objects.get("killed/old") == b"old"
                reads += 1

        workers = [asyncio.ensure_future(work) for work in (*(write(n) for n in range(4)), read())]
        try:
            while len(acknowledged) < 20 or not reads:
                await self._wait_beside(workers)
            before, reads_before = len(acknowledged), reads
            await harness.restart()
            async with asyncio.timeout(60):
                while len(acknowledged) < before + 20 or reads < reads_before + 5:  # calls have recovered
                    await self._wait_beside(workers)
        finally:
            done.set()
            await asyncio.gather(*workers)

        listed = set(await keys_below(objects, "killed/"))
        for key, body in acknowledged.items():
            found = await objects.get(key)
            assert not isinstance(found, Missing), f"{key} was acknowledged and is lost"
            assert found == body, f"{key} holds something else than what was acknowledged"
            assert key in listed

    async def _wait_beside(self, workers: Sequence[asyncio.Future[None]]) -> None:
        done, _ = await asyncio.wait(workers, timeout=0.05)
        for worker in done:
            await worker  # raises its failure

    async def test_objects_survive_a_restart_byte_for_byte(self, harness: ObjectsHarness, objects: Objects) -> None:
        large = bytes(range(256)) * 20_000
        await put(objects, "durable/large", large)
        await put(objects, "durable/empty", b"")
        await harness.restart()
        async with harness.client() as fresh:
            assert await fresh.get("durable/large") == large
            assert await fresh.get("durable/empty") == b""
            assert await fresh.put("durable/empty", [b"x"]) == AlreadyExists("durable/empty")

"""Puts: whole, once, and only if absent."""

import asyncio

import pytest

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, Objects, Stored
from holdfast.testing.harness import ObjectsHarness
from holdfast.testing.objects_contract.operations import ODD_KEYS, REFUSED_KEYS, put, read
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import MIB


class ObjectWrites:
    """One writer wins, and every reader gets what it wrote."""

    async def test_what_is_put_can_be_read(self, objects: Objects) -> None:
        assert await objects.put("topic/0/a.seg", [b"hello"]) == Stored("topic/0/a.seg", 5)
        assert await objects.get("topic/0/a.seg") == b"hello"

    async def test_parts_are_joined_in_order(self, objects: Objects) -> None:
        slab = bytearray(b"--lazy dog--")
        parts: list[Buffer] = [
            b"the quick ",
            bytearray(b"brown "),
            b"",
            memoryview(b"fox and the "),
            memoryview(slab)[2:-2],
        ]
        assert await objects.put("parts", parts) == Stored("parts", 36)
        slab[:] = b"############"  # what was put no longer depends on the caller's memory
        assert await objects.get("parts") == b"the quick brown fox and the lazy dog"

    async def test_many_small_parts_make_one_object(self, objects: Objects) -> None:
        parts = [n.to_bytes(4, "big") for n in range(5_000)]
        assert await objects.put("many", parts) == Stored("many", 20_000)
        assert await read(objects, "many") == b"".join(parts)

    @pytest.mark.parametrize("parts", [[], [b""]], ids=["no parts", "an empty part"])
    async def test_an_empty_object_is_an_object(self, objects: Objects, parts: list[bytes]) -> None:
        assert await objects.put("empty", parts) == Stored("empty", 0)
        assert await objects.get("empty") == b""
        assert await objects.get("empty", start=3, end=9) == b""
        assert await objects.get_tail("empty", 8) == b""
        assert await objects.put("empty", [b"x"]) == AlreadyExists("empty")

    async def test_a_large_object_arrives_whole(self, objects: Objects) -> None:
        block = bytes(range(256)) * 4_096  # 1 MiB
        parts = [n.to_bytes(8, "big") + block[8:] for n in range(20)]
        assert await objects.put("large", parts) == Stored("large", 20 * MIB)
        assert await read(objects, "large") == b"".join(parts)
        assert await objects.get("large", start=7 * MIB, end=7 * MIB + 8) == (7).to_bytes(8, "big")

    async def test_a_key_that_exists_is_left_alone(self, objects: Objects) -> None:
        await put(objects, "taken", b"first")
        assert await objects.put("taken", [b"second, and longer"]) == AlreadyExists("taken")
        assert await objects.get("taken") == b"first"

    async def test_of_racing_writers_one_wins_and_its_body_stays(self, harness: ObjectsHarness) -> None:
        async with harness.client() as ann, harness.client() as bob:
            bodies = [f"writer {n} ".encode() * 1_000 for n in range(20)]
            puts = ((ann if n % 2 else bob).put("race", [body]) for n, body in enumerate(bodies))
            outcomes = await asyncio.gather(*puts)
            winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Stored)]
            assert len(winners) == 1, f"{len(winners)} of 20 racing puts were reported as winners"
            assert await ann.get("race") == bodies[winners[0]]

    async def test_a_reader_sees_all_of_an_object_or_nothing(self, harness: ObjectsHarness) -> None:
        body = b"all or nothing " * 20_000
        async with harness.client() as writer, harness.client() as reader:
            for n in range(10):
                key = f"atomic/{n}"
                putting = asyncio.ensure_future(writer.put(key, [body]))
                while not putting.done():
                    found = await reader.get(key)
                    assert isinstance(found, Missing) or found == body
                    await asyncio.wait({putting}, timeout=0)  # engines in memory never pause by themselves
                assert await putting == Stored(key, len(body))
                assert await reader.get(key) == body

    async def test_writers_and_readers_of_many_keys_do_not_disturb_each_other(self, objects: Objects) -> None:
        async def write_and_read(n: int) -> None:
            body = n.to_bytes(4, "big") * (1 + n * 37 % 500)
            assert await objects.put(f"crowd/{n}", [body]) == Stored(f"crowd/{n}", len(body))
            assert await objects.get(f"crowd/{n}") == body
            assert await objects.get_tail(f"crowd/{n}", 4) == n.to_bytes(4, "big")

        await asyncio.gather(*(write_and_read(n) for n in range(60)))

    @pytest.mark.parametrize("key", ODD_KEYS)
    async def test_a_key_may_hold_any_printable_text(self, objects: Objects, key: str) -> None:
        await put(objects, key, b"odd")
        assert await objects.get(key) == b"odd"
        assert [info.key async for info in objects.list(key.partition("/")[0] + "/")] == [key]
        assert await objects.put(key, [b"again"]) == AlreadyExists(key)
        await objects.delete([key])
        assert await objects.get(key) == Missing(key)

    async def test_a_key_that_some_engine_could_not_store_is_refused(self, objects: Objects) -> None:
        await put(objects, "fine")
        for key in REFUSED_KEYS:
            with pytest.raises(InvalidError, match="key"):
                await objects.put(key, [b"x"])
            with pytest.raises(InvalidError, match="key"):
                await objects.get(key)
            with pytest.raises(InvalidError, match="key"):
                await objects.get_tail(key, 1)
            with pytest.raises(InvalidError, match="key"):
                await objects.delete(["fine", key])
        assert await objects.get("fine") == b"fine"  # refused before anything was done

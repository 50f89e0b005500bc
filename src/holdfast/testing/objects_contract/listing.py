"""Listings: in key order, by prefix, past the pages of any server."""

import asyncio

import pytest

from holdfast.contracts.objects import ObjectInfo, Objects
from holdfast.testing.harness import ObjectsHarness
from holdfast.testing.objects_contract.operations import REFUSED_KEYS, chunks, keys_below, put
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError

# In code point order; servers that list folder by folder bring `a/…` before `a-b` and `a b`.
ORDERED = ("a b", "a!", "a-b", "a.b", "a/0", "a/b/c", "a/b-c", "a0", "ab/c", "b", "z", "ä", "日本", "😀")


class ObjectListing:
    """What a sweeper relies on."""

    async def test_keys_come_in_code_point_order(self, objects: Objects) -> None:
        for key in reversed(ORDERED):
            await put(objects, f"order/{key}")
        assert await keys_below(objects, "order/") == [f"order/{key}" for key in sorted(ORDERED)]

    async def test_a_listing_starts_after_a_key(self, objects: Objects) -> None:
        for key in ORDERED:
            await put(objects, f"after/{key}")
        for after in (
            "",
            "a",
            "after/",
            "after/a b",
            "after/a/",
            "after/a/0",
            "after/a/zz",
            "after/aa",
            "after/😀",
            "b",
        ):
            expected = [key for each in sorted(ORDERED) if (key := f"after/{each}") > after]
            assert await keys_below(objects, "after/", after=after) == expected, f"after {after!r}"

    async def test_a_prefix_is_text_and_not_a_folder(self, objects: Objects) -> None:
        keys = ("p/a", "p/a1", "p/ab/c", "p/b", "pq/a", "q")
        for key in keys:
            await put(objects, key)
        for prefix in ("", "p", "p/", "p/a", "p/a1", "p/ab", "p/ab/", "p/ab/c", "p/ab/cd", "pq", "r", "p/a/"):
            expected = [key for key in keys if key.startswith(prefix)]
            assert await keys_below(objects, prefix) == expected, f"prefix {prefix!r}"

    async def test_an_entry_has_size_and_time(self, objects: Objects) -> None:
        before_ms = RealClock().now_ms()
        await put(objects, "info/five", b"12345")
        infos = [info async for info in objects.list("info/")]
        assert infos == [ObjectInfo("info/five", 5, infos[0].modified_ms)]
        # Servers report whole seconds, by their own clocks.
        assert before_ms - 5_000 < infos[0].modified_ms < RealClock().now_ms() + 5_000

    async def test_more_keys_than_a_page_holds_are_listed(self, objects: Objects) -> None:
        keys = [f"pages/{n % 3}/{n:04}" for n in range(1_010)]
        for some in chunks(keys, 50):
            await asyncio.gather(*(put(objects, key, b"") for key in some))
        assert await keys_below(objects, "pages/") == sorted(keys)
        assert await keys_below(objects, "pages/", after="pages/2/1000") == [
            "pages/2/1001",
            "pages/2/1004",
            "pages/2/1007",
        ]
        await objects.delete(keys)  # also more than one request removes
        assert await keys_below(objects, "pages/") == []

    async def test_a_listing_may_be_abandoned_and_keys_may_be_deleted_meanwhile(self, harness: ObjectsHarness) -> None:
        async with harness.client() as reader, harness.client() as sweeper:
            for n in range(5):
                await put(reader, f"left/{n}")
            seen = []
            async for info in reader.list("left/"):
                seen.append(info.key)
                await sweeper.delete([info.key])
                if len(seen) == 3:
                    break
            assert seen == ["left/0", "left/1", "left/2"]
            assert await keys_below(reader, "left/") == ["left/3", "left/4"]

    async def test_a_prefix_that_no_key_has_is_refused(self, objects: Objects) -> None:
        for prefix in REFUSED_KEYS:
            if prefix not in ("", "trail/"):
                with pytest.raises(InvalidError, match="key"):
                    await keys_below(objects, prefix)

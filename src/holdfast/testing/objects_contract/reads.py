"""Reads: whole, by range, from the end."""

import pytest

from holdfast.contracts.objects import Missing, Objects
from holdfast.testing.objects_contract.operations import put
from holdfast.vocabulary.errors import InvalidError

BODY = bytes(range(100))
RANGES = ((0, 100), (0, 1), (99, 100), (10, 20), (10, 10), (0, 0), (50, 101), (99, 5_000), (100, 101), (500, 600))


class ObjectReads:
    """A range is truncated at the object's end; an absent object is `Missing`."""

    async def test_a_range_is_cut_at_the_end_of_the_object(self, objects: Objects) -> None:
        await put(objects, "ranged", BODY)
        for start, end in RANGES:
            assert await objects.get("ranged", start=start, end=end) == BODY[start:end], f"[{start}, {end})"

    async def test_without_an_end_it_reads_to_the_end(self, objects: Objects) -> None:
        await put(objects, "open", BODY)
        for start in (0, 1, 99, 100, 5_000):
            assert await objects.get("open", start=start) == BODY[start:], f"from {start}"

    async def test_the_tail_is_read_without_knowing_the_size(self, objects: Objects) -> None:
        await put(objects, "tailed", BODY)
        for size_bytes in (1, 16, 99, 100, 101, 5_000):
            assert await objects.get_tail("tailed", size_bytes) == BODY[-size_bytes:], f"the last {size_bytes}"

    async def test_an_absent_object_is_missing(self, objects: Objects) -> None:
        await put(objects, "there/a")
        for key in ("nowhere", "there/b", "there/a/below", "there"):
            assert await objects.get(key) == Missing(key)
            assert await objects.get(key, start=5, end=9) == Missing(key)
            assert await objects.get(key, start=5, end=5) == Missing(key)
            assert await objects.get(key, start=5) == Missing(key)
            assert await objects.get_tail(key, 8) == Missing(key)

    async def test_an_invalid_range_is_refused(self, objects: Objects) -> None:
        await put(objects, "strict", BODY)
        for start, end in ((-1, None), (-5, -1), (5, 4)):
            with pytest.raises(InvalidError):
                await objects.get("strict", start=start, end=end)
        for size_bytes in (0, -1):
            with pytest.raises(InvalidError):
                await objects.get_tail("strict", size_bytes)

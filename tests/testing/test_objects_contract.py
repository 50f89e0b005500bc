"""The contract suite can fail: each planted defect is caught by its test, which passes on the correct engine."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.object_engines.memory import MemoryObjectsHarness

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Objects, Stored
from holdfast.objects.errors import RequestRefusedError
from holdfast.objects.memory import MemoryObjects
from holdfast.testing import objects_contract as contract
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError, UnavailableError
from holdfast.vocabulary.random import SystemRandom


class Overwrites(MemoryObjects):
    """As S3 look-alikes do that do not know the header."""

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        await self.delete([key])
        return await super().put(key, body)


class ChecksThenPuts(MemoryObjects):
    """If-absent as two steps."""

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        if key in self._bodies:
            return AlreadyExists(key)
        await self._clock.sleep_ms(1)
        await self.delete([key])
        return await super().put(key, body)


class SaysStoredToLosers(MemoryObjects):
    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        await super().put(key, body)
        return Stored(key, sum(map(len, body)))


class ShowsHalfObjects(MemoryObjects):
    """The name first, the bytes afterwards."""

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        first = await super().put(key, [b"".join(body)[:100]])
        await self._clock.sleep_ms(1)
        if isinstance(first, Stored):
            await self.delete([key])
            return await super().put(key, body)
        return first


class ForgetsParts(MemoryObjects):
    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        return await super().put(key, body[:1_024])


class KeepsTheCallersMemory(MemoryObjects):
    """Copies when it is read, not when it is put."""

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        self.borrowed = {**getattr(self, "borrowed", {}), key: body}
        return await super().put(key, body)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes | Missing:
        return b"".join(self.borrowed[key])[start:end]


class MissesEmptyObjects(MemoryObjects):
    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes | Missing:
        return await super().get(key, start=start, end=end) or Missing(key)


class FailsBeyondTheEnd(MemoryObjects):
    """416, passed on."""

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes | Missing:
        found = await super().get(key, start=start, end=end)
        if found == b"" and start:
            raise RequestRefusedError("memory", "416")
        return found


class EndIsInclusive(MemoryObjects):
    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes | Missing:
        return await super().get(key, start=start, end=None if end is None else end + 1)


class TailFromTheStart(MemoryObjects):
    async def get_tail(self, key: str, size_bytes: int) -> bytes | Missing:
        return await super().get(key, end=size_bytes)


class ListsFolderByFolder(MemoryObjects):
    """As some servers do: what is below `a/` comes before `a-b`."""

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        infos = [info async for info in super().list(prefix, after=after)]
        for info in sorted(infos, key=lambda info: info.key.split("/")):
            yield info


class SkipsByTheServersOrder(MemoryObjects):
    """`after` left to a server that compares folder by folder."""

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list(prefix):
            if info.key.split("/") > after.split("/"):
                yield info


class PrefixIsAFolder(MemoryObjects):
    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list(prefix, after=after):
            if not prefix or info.key.startswith(prefix.removesuffix("/") + "/"):
                yield info


class ListsOnePage(MemoryObjects):
    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        seen = 0
        async for info in super().list(prefix, after=after):
            if seen < 1_000:
                seen += 1
                yield info


class FailsOnMissingDeletes(MemoryObjects):
    async def delete(self, keys: Sequence[str]) -> None:
        if any(key not in self._bodies for key in keys):
            raise RequestRefusedError("memory", "404")
        await super().delete(keys)


class StopsAtTheFirstMissing(MemoryObjects):
    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if key not in self._bodies:
                return
            await super().delete([key])


class TakesAnyKey(MemoryObjects):
    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        return await super().put(key.strip("/.\\\t\n\0\ud800")[:150] or "x", body)


class LosesWhatFailed(FaultyObjects):
    """A put without an answer is taken back, as a client might that cleans up after a failure."""

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        try:
            return await super().put(key, body)
        except UnavailableError:
            await self._objects.delete([key])
            return AlreadyExists(key)


class Hasty(MemoryObjectsHarness):
    """No retries."""

    @asynccontextmanager
    async def client(self, *, deadline_ms: int = 30_000) -> AsyncIterator[Objects]:
        yield self.faulty


class Endless(MemoryObjectsHarness):
    """No deadline."""

    def client(self, *, deadline_ms: int = 30_000) -> Any:
        return super().client(deadline_ms=3_600_000)


W, R, L, D, F = (
    contract.ObjectWrites,
    contract.ObjectReads,
    contract.ObjectListing,
    contract.ObjectDeletion,
    contract.ObjectFaults,
)

PLANTED: list[tuple[type, type, str]] = [
    (Overwrites, W, "a_key_that_exists_is_left_alone"),
    (Overwrites, W, "of_racing_writers_one_wins_and_its_body_stays"),
    (Overwrites, F, "another_client_sees_earlier_puts"),
    (ChecksThenPuts, W, "of_racing_writers_one_wins_and_its_body_stays"),
    (SaysStoredToLosers, W, "of_racing_writers_one_wins_and_its_body_stays"),
    (SaysStoredToLosers, F, "a_put_whose_answer_was_lost_is_found_already_there"),
    (ShowsHalfObjects, W, "a_reader_sees_all_of_an_object_or_nothing"),
    (ShowsHalfObjects, F, "a_cancelled_put_leaves_all_or_nothing"),
    (ForgetsParts, W, "many_small_parts_make_one_object"),
    (KeepsTheCallersMemory, W, "parts_are_joined_in_order"),
    (MissesEmptyObjects, W, "an_empty_object_is_an_object"),
    (FailsBeyondTheEnd, R, "a_range_is_cut_at_the_end_of_the_object"),
    (EndIsInclusive, R, "a_range_is_cut_at_the_end_of_the_object"),
    (TailFromTheStart, R, "the_tail_is_read_without_knowing_the_size"),
    (ListsFolderByFolder, L, "keys_come_in_code_point_order"),
    (SkipsByTheServersOrder, L, "a_listing_starts_after_a_key"),
    (PrefixIsAFolder, L, "a_prefix_is_text_and_not_a_folder"),
    (ListsOnePage, L, "more_keys_than_a_page_holds_are_listed"),
    (FailsOnMissingDeletes, D, "deleting_a_missing_key_does_nothing"),
    (StopsAtTheFirstMissing, D, "deleting_a_missing_key_does_nothing"),
    (TakesAnyKey, W, "a_key_that_some_engine_could_not_store_is_refused"),
    (LosesWhatFailed, F, "a_put_whose_answer_was_lost_is_found_already_there"),
    (Hasty, F, "calls_succeed_when_the_engine_becomes_reachable_again"),
    (Hasty, F, "a_put_whose_answer_was_lost_is_found_already_there"),
    (Endless, F, "an_unreachable_engine_is_unavailable_by_the_deadline"),
]

# The arguments of parametrised sentences that the defects show with
ARGUMENTS: dict[str, Any] = {"parts": [b""]}

# How a sentence that is not true fails: anything else is a mistake in the defect
FAILED = (AssertionError, TimeoutError, HoldfastError, pytest.fail.Exception)


async def hold_against(suite: type, sentence: str, harness: MemoryObjectsHarness, *, timeout_s: float = 60) -> None:
    test = getattr(suite(), f"test_{sentence}")
    async with harness.client() as objects:
        offered = {"harness": harness, "objects": objects, **ARGUMENTS}
        async with asyncio.timeout(timeout_s):
            await test(**{name: offered[name] for name in inspect.signature(test).parameters})


def harness_with(defect: type) -> MemoryObjectsHarness:
    engine = (defect if issubclass(defect, MemoryObjects) else MemoryObjects)(clock=RealClock())
    harness = (defect if issubclass(defect, MemoryObjectsHarness) else MemoryObjectsHarness)(engine)
    if issubclass(defect, FaultyObjects):
        harness.faulty = defect(engine, clock=RealClock(), random=SystemRandom())
    return harness


@pytest.mark.parametrize(
    ("defect", "suite", "sentence"), PLANTED, ids=[f"{defect.__name__}-{name}" for defect, _, name in PLANTED]
)
async def test_a_planted_defect_is_caught(defect: type, suite: type, sentence: str) -> None:
    try:
        await hold_against(suite, sentence, harness_with(defect), timeout_s=4)
    except FAILED:
        return
    pytest.fail("the planted defect was not noticed")


@pytest.mark.parametrize(
    ("suite", "sentence"), list(dict.fromkeys((suite, sentence) for _, suite, sentence in PLANTED))
)
async def test_the_same_test_passes_on_the_correct_engine(suite: type, sentence: str) -> None:
    await hold_against(suite, sentence, MemoryObjectsHarness(MemoryObjects(clock=RealClock())))

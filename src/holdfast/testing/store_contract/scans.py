"""Scans: ranges in code point order, at one version however many keys there are."""

import asyncio
from contextlib import suppress
from typing import Final

import pytest

from holdfast.contracts.store import Delete, Put, Scan, Store
from holdfast.contracts.validation import prefix_end
from holdfast.testing.harness import StoreHarness
from holdfast.testing.store_contract.suite import ContractSuite, put, text, write
from holdfast.vocabulary.errors import UnavailableError

# Where byte order, UTF-16 order, locales and pattern languages disagree
ODD_NAMES: Final = (  # noqa: SIM905 - forty strings in a list hide what they are
    " ! \" # % ' * + - -a A B Z [ab] \\ ^ _ a a% a%b a* a/ a/b a? aB a_ a_b aa ab b z {a} ~ $1 :a "
    "Ä ß à ä é \u0301a ǅ Ж 世 界 \ufb01 ～ \ufffd 😀 😀a 😁 \U0002fa1d"
).split()


class StoreScans(ContractSuite):
    """A scan is a photograph: everything in it is of one moment."""

    async def test_keys_come_in_code_point_order(self, store: Store) -> None:
        keys = sorted(f"odd/{name}" for name in [*ODD_NAMES, " ", "a b"])  # Python orders text by code points
        await write(store, *(Put(key, text(key)) for key in reversed(keys)))
        entries = (await store.scan("odd/", "odd0")).entries
        assert [entry.key for entry in entries] == keys
        assert [entry.value for entry in entries] == [text(key) for key in keys]
        backwards = await store.scan("odd/", "odd0", reverse=True)
        assert backwards.entries == entries[::-1]
        for entry in entries:
            assert await store.get(entry.key) == entry

    async def test_a_range_includes_its_start_and_excludes_its_end(self, store: Store) -> None:
        for name in ("a", "b", "b/1", "b/2", "c"):
            await put(store, f"range/{name}")

        async def between(start: str, end: str) -> list[str]:
            entries = (await store.scan(f"range/{start}", f"range/{end}")).entries
            return [entry.key.removeprefix("range/") for entry in entries]

        assert await between("a", "c") == ["a", "b", "b/1", "b/2"]
        assert await between("b", "b/2") == ["b", "b/1"]
        assert await between("aa", "b") == []
        assert await between("b", "b") == []
        assert await between("c", "a") == []
        assert await between("", "zzz") == ["a", "b", "b/1", "b/2", "c"]

    async def test_a_limited_scan_reports_whether_there_is_more(self, store: Store) -> None:
        await write(store, *(Put(f"page/{n}", b"1") for n in range(5)))

        async def page(limit: int, *, reverse: bool = False) -> tuple[list[str], bool]:
            scan = await store.scan("page/", "page0", limit=limit, reverse=reverse)
            return [entry.key[-1] for entry in scan.entries], scan.more

        assert await page(2) == (["0", "1"], True)
        assert await page(4) == (["0", "1", "2", "3"], True)
        assert await page(5) == (["0", "1", "2", "3", "4"], False)
        assert await page(6) == (["0", "1", "2", "3", "4"], False)
        assert await page(2, reverse=True) == (["4", "3"], True)
        assert await page(5, reverse=True) == (["4", "3", "2", "1", "0"], False)
        assert not (await store.scan("page/", "page0")).more

    async def test_the_last_key_below_a_bound_is_one_reverse_scan(self, store: Store) -> None:
        await write(store, *(Put(f"segment/{offset:08}", text(offset)) for offset in (0, 100, 250, 900)))

        async def floor(offset: int) -> bytes | None:
            scan = await store.scan("segment/", f"segment/{offset + 1:08}", limit=1, reverse=True)
            return scan.entries[0].value if scan.entries else None

        assert await floor(0) == b"0"
        assert await floor(99) == b"0"
        assert await floor(100) == b"100"
        assert await floor(899) == b"250"
        assert await floor(10_000_000) == b"900"
        await write(store, Delete("segment/00000000"))
        assert await floor(99) is None

    async def test_a_scan_has_the_version_it_read(self, harness: StoreHarness, store: Store) -> None:
        async with harness.client() as other:
            for n in range(10):
                version = await put(store, "now/1", n)
                scan = await other.scan("now/", "now0")
                assert scan.version >= version
                assert [entry.version for entry in scan.entries] == [version]
                assert (await other.scan("nothing/", "nothing0")).version >= version

    @pytest.mark.parametrize("reverse", [False, True])
    async def test_a_large_scan_is_of_one_version_while_others_write(
        self, harness: StoreHarness, store: Store, reverse: bool
    ) -> None:
        # Each commit writes the same number at both ends of the range, so a scan that pages at two versions is torn.
        filler = [Put(f"wide/m/{n:05}", text("x" * 200)) for n in range(4_000)]
        await asyncio.gather(*(write(store, *filler[at : at + 100]) for at in range(0, len(filler), 100)))
        history = {await write(store, Put("wide/a", b"0"), Put("wide/z", b"0")): 0}
        done = asyncio.Event()

        async def keep_writing() -> None:
            number = 0
            async with harness.client() as writer:
                while not done.is_set():
                    number += 1
                    history[await write(writer, Put("wide/a", text(number)), Put("wide/z", text(number)))] = number
                    await self.clock.sleep_ms(1)

        async with asyncio.TaskGroup() as group:
            group.create_task(keep_writing())
            scans: list[Scan] = []
            try:
                while len(scans) < 12 or len(history) < 12:
                    with suppress(UnavailableError):  # a machine may be too busy for one
                        scans.append(await store.scan("wide/", prefix_end("wide/"), reverse=reverse))
                    await self.clock.sleep_ms(1)
            finally:
                done.set()
        for scan in scans:
            assert len(scan.entries) == len(filler) + 2
            keys = [entry.key for entry in scan.entries]
            assert keys == sorted(keys, reverse=reverse)
            ends = {scan.entries[0], scan.entries[-1]}
            assert len({(entry.value, entry.version) for entry in ends}) == 1, f"torn: {ends}"
            # The numbers seen are those of the last commit at or before the version of the scan.
            assert text(history[max(at for at in history if at <= scan.version)]) == scan.entries[0].value
        assert [scan.version for scan in scans] == sorted(scan.version for scan in scans)

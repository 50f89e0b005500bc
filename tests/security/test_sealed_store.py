"""Secrets at rest: sealed below their prefixes, opened for who has the key, rotated, and nothing lost without it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.contracts.store import Committed, Put, Store
from holdfast.security.master_keys import (
    MasterKeys,
    MissingMasterKeyError,
    new_key_text,
    parse_master_keys,
    read_master_keys,
    sealed_with,
)
from holdfast.security.sealed_store import PLAIN, SealedStore, count_sealed, seal_stored
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, InvalidError
from holdfast.vocabulary.random import SystemRandom

PREFIXES = ("part/", "revision/")
CLOCK, RANDOM = RealClock(), SystemRandom()
SECRET = b'{"password": "planted-secret"}'


def keys(*texts: str) -> MasterKeys:
    return parse_master_keys("test keys", "\n".join(texts))


@pytest_asyncio.fixture
async def store() -> AsyncIterator[Store]:
    async with open_store("memory:", clock=CLOCK, random=RANDOM) as opened:
        yield opened


def sealed(store: Store, given: MasterKeys | None) -> SealedStore:
    return SealedStore(store, given, prefixes=PREFIXES, random=RANDOM)


async def values(store: Store) -> dict[str, bytes]:
    return {each.key: each.value for each in (await store.scan("a", "z")).entries}


async def seal(store: Store, given: MasterKeys, *, rotate: bool = False) -> int:
    return await seal_stored(store, given, prefixes=PREFIXES, clock=CLOCK, random=RANDOM, rotate=rotate)


async def test_what_is_written_is_sealed_and_what_is_read_is_not(store: Store) -> None:
    ours = sealed(store, keys(new_key_text()))
    await ours.commit(apply=[Put("part/1/sink", SECRET), Put("name/1", b'{"plain": 1}')])
    raw = await values(store)
    assert sealed_with(raw["part/1/sink"])
    assert b"planted" not in raw["part/1/sink"]
    assert raw["name/1"] == b'{"plain": 1}'
    entry = await ours.get("part/1/sink")
    assert entry is not None
    assert entry.value == SECRET
    assert [each.value for each in (await ours.scan("part/", "part0")).entries] == [SECRET]


async def test_the_same_value_is_never_sealed_the_same_and_opens_at_its_own_place_alone(store: Store) -> None:
    given = keys(new_key_text())
    ours = sealed(store, given)
    await ours.commit(apply=[Put("part/1/a", SECRET), Put("part/1/b", SECRET)])
    raw = await values(store)
    assert raw["part/1/a"] != raw["part/1/b"]
    broken = raw["part/1/b"][:-6] + b"AAA" + raw["part/1/b"][-3:]
    await store.commit(apply=[Put("part/2/a", raw["part/1/a"]), Put("part/1/b", broken)])
    for moved in ("part/2/a", "part/1/b"):
        with pytest.raises(CorruptError, match=moved):
            await ours.get(moved)


async def test_without_the_key_nothing_is_read_written_or_lost(store: Store) -> None:
    text = new_key_text()
    given = keys(text)
    await sealed(store, None).commit(apply=[Put("part/1/sink", SECRET)])
    assert await seal(store, given) == 1
    before = await values(store)
    for stranger in (None, keys(new_key_text())):
        with pytest.raises(MissingMasterKeyError, match=f"master key {given.current}.*--master-key-file"):
            await sealed(store, stranger).get("part/1/sink")
    with pytest.raises(MissingMasterKeyError, match=given.current):
        await sealed(store, None).commit(apply=[Put("part/2/sink", SECRET)])
    assert await values(store) == before
    assert isinstance(await sealed(store, None).commit(apply=[Put("name/2", b"{}")]), Committed)
    found = await sealed(store, keys(new_key_text(), text)).get("part/1/sink")
    assert found is not None
    assert found.value == SECRET


async def test_rotation_goes_on_where_it_was_stopped(store: Store) -> None:
    old, new = new_key_text(), new_key_text()
    await sealed(store, keys(old)).commit(apply=[Put(f"part/{n}/sink", SECRET) for n in range(3)])
    await store.commit(apply=[Put("revision/1/1", SECRET)])
    both = keys(new, old)
    await sealed(store, both).commit(apply=[Put("part/0/sink", SECRET)])  # as one that was stopped has left it
    assert await count_sealed(store, PREFIXES) == {keys(old).current: 2, both.current: 1, PLAIN: 1}
    with pytest.raises(MissingMasterKeyError):
        await seal(store, keys(new), rotate=True)
    assert await seal(store, both, rotate=True) <= 3
    assert await count_sealed(store, PREFIXES) == {both.current: 4}
    assert await seal(store, both, rotate=True) == 0
    assert [each.value for each in (await sealed(store, keys(new)).scan("part/", "part0")).entries] == [SECRET] * 3


def test_a_key_file_is_its_owners_and_no_error_shows_a_key(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with pytest.raises(InvalidError, match="No such file"):
        read_master_keys(path)
    path.write_text(f"# newest first\n{new_key_text()}\n{new_key_text()}\n")
    path.chmod(0o640)
    with pytest.raises(InvalidError, match="chmod 600"):
        read_master_keys(path)
    path.chmod(0o600)
    assert len(repr(read_master_keys(path))) < 40
    for bad in ("c2hvcnQ=", "not base64!", ""):
        path.write_text(bad)
        with pytest.raises(InvalidError) as refused:
            read_master_keys(path)
        assert not bad or bad not in str(refused.value)

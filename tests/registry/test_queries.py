"""Queries over many namespaces: what pipelines and the log ask of the registry, without spelling its keys."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.registry import RegistryWorld
from tests.support.waiting import async_until

import holdfast
from holdfast.contracts.store import Committed, Conflict, Entry, Operation, Requirement
from holdfast.registry import RegistryStore, keys, queries, records
from holdfast.vocabulary.errors import CorruptError

RANGE = '{"start":10,"end":20,"topic":"orders","topicId":"T1"}'


@pytest.fixture(params=["memory"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def family(world: RegistryWorld) -> tuple[RegistryStore, RegistryStore]:
    return await world.initialized(namespace="jobs-1"), await world.initialized(namespace="jobs-2")


async def test_partitions_are_listed_by_namespace_and_only_those_of_the_family(world: RegistryWorld) -> None:
    first, _ = await family(world)
    await world.initialized(namespace="mails-1")
    await first.claim(3, "a", 0)
    found = await queries.partitions_by_namespace(world.store, "jobs-")
    assert sorted(found) == ["jobs-1", "jobs-2"]
    assert [state.owner for state in found["jobs-1"]][3] == "a"
    assert await queries.partitions_of(world.store, "jobs-1") == found["jobs-1"]
    assert await queries.partitions_of(world.store, "nobody") == []


async def test_the_number_of_partitions_is_known_once_a_namespace_was_initialized(world: RegistryWorld) -> None:
    await family(world)
    assert await queries.partition_count(world.store, "jobs-1") == 8
    assert await queries.partition_count(world.store, "jobs-3") is None


async def test_an_owner_is_live_until_its_claim_has_expired(world: RegistryWorld) -> None:
    first, second = await family(world)
    await first.claim(3, "a", 0)
    await second.claim(3, "b", 0)
    assert await queries.live_owners(world.store, "jobs-") == ["a", "b"]
    await first.expire_claim(3, 1)
    assert await queries.live_owners(world.store, "jobs-") == ["b"]
    assert await queries.live_owners(world.store, "jobs-1") == []


async def test_abandoned_partitions_are_cleared_and_those_of_the_living_are_not(world: RegistryWorld) -> None:
    first, _ = await family(world)
    for number in (1, 2):
        await first.claim(number, "a", 0)
        assert await first.begin_range(number, "a", 1, RANGE)
    await first.release(1, "a", 1)
    await first.claim(0, "dead", 0)
    assert await first.begin_range(0, "dead", 1, RANGE)
    await first.expire_claim(0, 1)

    async def commit(require: Sequence[Requirement], apply: Sequence[Operation]) -> Committed | Conflict:
        return await world.store.commit(require=require, apply=apply)

    assert not await queries.clear_abandoned(world.store, "jobs-1", commit=commit)
    states = await first.partitions()
    assert [(each.owner, each.epoch, each.intent is not None) for each in states[:3]] == [
        (None, 2, False),
        (None, 2, False),
        ("a", 1, True),
    ]
    await first.release(2, "a", 1)
    assert await queries.clear_abandoned(world.store, "jobs-1", commit=commit)


async def test_deletions_cover_a_family_and_nothing_else(world: RegistryWorld) -> None:
    await family(world)
    other = await world.initialized(namespace="mails-1")
    while batch := await queries.deletions(world.store, "jobs-", limit=7):
        assert len(batch) <= 7
        await world.store.commit(apply=batch)
    assert await queries.partitions_by_namespace(world.store, "jobs-") == {}
    assert len(await other.partitions()) == 8


async def test_a_start_is_decided_once(world: RegistryWorld) -> None:
    for offset in (40, 50):
        decided = await queries.fix_start(world.store, "jobs-1", 3, offset, clock=world.clock, random=world.random)
        assert decided == 40
    assert await queries.fixed_starts(world.store, "jobs-1") == {3: 40}
    stored = await world.store.get("registry/jobs-1/starts/00003")
    assert stored is not None
    assert stored.value == b'{"offset":40}'


async def test_the_mirror_of_topic_intents_follows_begin_and_finish(world: RegistryWorld) -> None:
    first, _ = await family(world)
    await first.claim(3, "a", 0)
    async with queries.mirror_topic_intents(world.store, clock=world.clock, random=world.random) as mirror:
        assert await first.begin_range(3, "a", 1, RANGE)
        key = keys.partition_key("jobs-1", 3)
        await async_until(lambda: mirror.items[key] == (queries.TopicIntent("orders", 3, 10, "T1"),))
        assert await first.update_checkpoint(3, "a", 20, 1)
        await async_until(lambda: mirror.items[key] == ())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("registry/jobs-1/partitions/00003", b'{"owner":null,"checkpoint":0,"epoch":0}'),
        ("registry/jobs-1/partitions/00003", b'{"intent":{"start":1,"end":2}}'),
        ("registry/jobs-1/partitions/00003", b'{"intent":"intent"}'),
        ("registry/jobs-1/partitions/three", b'{"intent":{"start":1,"topic":"orders"}}'),
        ("registry/jobs-1/consumers/partitions", b'{"intent":{"start":1,"topic":"orders"}}'),
        ("registry/jobs-1/meta", b'{"intent":{"start":1,"topic":"orders"}}'),
    ],
)
def test_a_record_without_a_range_of_a_topic_is_none(key: str, value: bytes) -> None:
    assert queries.topic_intents(Entry(key, value, 1)) == ()


def test_the_kinds_of_records_are_told_apart_by_their_keys() -> None:
    assert keys.record_kind(keys.partition_key("ns", 3)) == keys.PARTITIONS
    assert keys.record_kind(keys.heartbeat_key("ns", 3)) == keys.HEARTBEATS
    assert keys.record_kind(keys.consumer_key("ns", "partitions")) == keys.CONSUMERS
    assert keys.record_kind(keys.meta_key("ns")) == ""
    assert keys.namespace_of(keys.start_key("ns", 3)) == "ns"


def test_a_start_that_cannot_be_decoded_is_corrupt() -> None:
    with pytest.raises(CorruptError):
        records.decode_start(Entry("registry/ns/starts/00001", b"{}", 1))


@pytest.mark.slow
def test_no_other_package_spells_a_key_of_the_registry() -> None:
    source = Path(holdfast.__file__ or "").parent
    spelled = re.compile(
        r"""["']registry/|["']/?(beats|partitions)/|registry\.(keys|records)\b|registry import .*\b(keys|records)\b"""
    )
    docstring = re.compile(r'^\s*""".*?"""', re.DOTALL | re.MULTILINE)
    others = [path for path in source.rglob("*.py") if source / "registry" not in path.parents]
    assert [path for path in others if spelled.search(docstring.sub("", path.read_text()))] == []

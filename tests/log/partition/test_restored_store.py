"""A store that was restored from a backup, to before an epoch under which replicas have acknowledged records: nobody writes under
the same number again, as if their entries were its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.partitions import ORDERS, append, batch
from tests.support.replication.partitions import ReplicatedWorld, open_replicated
from tests.support.waiting import async_until

from holdfast.contracts.store import Delete, Put
from holdfast.kernel.keys import epoch_key, holder_key
from holdfast.log.keys import state_key
from holdfast.vocabulary.errors import CorruptError


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ReplicatedWorld]:
    made = ReplicatedWorld(tmp_path)
    yield made
    for owner in made.owners:
        await owner.end()


@pytest.mark.parametrize("unpublished", [False, True], ids=["clean", "with a tail"])
async def test_an_epoch_that_replicas_know_from_before_is_not_led_again(
    world: ReplicatedWorld, unpublished: bool
) -> None:
    ann, bob, carol = await world.three()
    first = await open_replicated(ann)
    if unpublished:
        await append(first, batch("a"))
    keys = (epoch_key(first.lease.resource), state_key(ORDERS.topic_id, ORDERS.number))
    backup = [await world.store.get(key) for key in keys]
    await world.store.close_session(ann.session.id)
    second = await open_replicated(bob)
    await append(second, batch("forgotten"))
    await async_until(lambda: len(second.in_sync) == 3)
    for owner in (ann, bob, carol):
        await world.kill(owner)
    restored = [Put(each.key, each.value) for each in backup if each is not None]
    await world.store.commit(apply=[*restored, Delete(holder_key(first.lease.resource))])
    with pytest.raises(CorruptError, match="restored from before"):
        await open_replicated((await world.three())[2])

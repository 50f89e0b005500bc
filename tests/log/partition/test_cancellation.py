"""Work that a cancellation does not interrupt."""

import asyncio

import pytest
from tests.support.wal import turns

from holdfast.log.partition.cancellation import run_to_completion
from holdfast.vocabulary.errors import ClosedError


@pytest.mark.parametrize("cancellations", [1, 2, 3])
@pytest.mark.parametrize("fails", [False, True])
async def test_work_comes_to_its_end_however_often_its_caller_is_cancelled_and_leaves_no_error_behind(
    cancellations: int, fails: bool
) -> None:
    go_on, ended, left_behind = asyncio.Event(), False, list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: left_behind.append(str(context)))

    async def work() -> None:
        nonlocal ended
        await go_on.wait()
        ended = True
        if fails:
            raise ClosedError("store")

    caller = asyncio.ensure_future(run_to_completion(work()))
    for _ in range(cancellations):
        await turns(1)
        caller.cancel()
    await turns()
    assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended
    await turns()
    assert left_behind == []

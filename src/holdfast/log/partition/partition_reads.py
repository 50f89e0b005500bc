"""Reading partitions that are opened at the same time: neighbours in one scan.

The first of those that ask in one turn of the loop reads for all of them. The one rule: each gets its own partition's entries as of
one commit, whoever it was read with.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.contracts.store import Entry, Store
from holdfast.contracts.validation import prefix_end
from holdfast.log.keys import partition_prefix
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.tasks import gather_or_cancel

_NEIGHBOURS_MAX: Final = 16  # in one scan: each may list a hundred segments

_Place = tuple[str, int]  # topic id, partition


class PartitionReads:
    """Reads of one session."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[_Place, asyncio.Future[Sequence[Entry]]] = {}

    async def read(self, topic_id: str, number: int) -> Sequence[Entry]:
        """Everything the store has of a partition: index objects, segments, its record; in the order of keys."""
        place = topic_id, number
        if place in self._waiting:
            return await asyncio.shield(self._waiting[place])
        first = not self._waiting
        answer: asyncio.Future[Sequence[Entry]] = asyncio.get_running_loop().create_future()
        self._waiting[place] = answer
        if first:
            await self._read_waiting()
        return await answer

    async def _read_waiting(self) -> None:
        taken: dict[_Place, asyncio.Future[Sequence[Entry]]] = {}
        try:
            try:
                await asyncio.sleep(0)  # noqa: TID251 (no time passes): those of the same turn come first
            finally:
                taken, self._waiting = self._waiting, {}
            await gather_or_cancel(*(self._scan(run, taken) for run in _runs(taken)))
        except BaseException as error:
            facts = error.args if isinstance(error, UnavailableError) else ("store", "a read with others was given up")
            for answer in taken.values():
                if not answer.done():
                    answer.set_exception(UnavailableError(*facts))
                    answer.exception()  # retrieved: whoever gave up does not wait any more
            raise

    async def _scan(self, run: Sequence[_Place], taken: dict[_Place, asyncio.Future[Sequence[Entry]]]) -> None:
        scan = await self._store.scan(partition_prefix(*run[0]), prefix_end(partition_prefix(*run[-1])))
        found: dict[str, list[Entry]] = {partition_prefix(*place): [] for place in run}
        for entry in scan.entries:
            found[entry.key[: entry.key.index("/", entry.key.index("/", entry.key.index("/") + 1) + 1) + 1]].append(
                entry
            )
        for place in run:
            if not taken[place].done():
                taken[place].set_result(found[partition_prefix(*place)])


def _runs(places: Iterable[_Place]) -> list[list[_Place]]:
    """Neighbours, so many at a time."""
    runs: list[list[_Place]] = []
    for topic_id, number in sorted(places):
        last = runs[-1][-1] if runs else None
        if last != (topic_id, number - 1) or len(runs[-1]) >= _NEIGHBOURS_MAX:
            runs.append([])
        runs[-1].append((topic_id, number))
    return runs

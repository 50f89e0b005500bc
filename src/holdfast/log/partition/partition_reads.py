"""Reading partitions that are opened together: neighbours in one scan.

The one rule: each gets its own partition's entries as of one commit, whoever it was read with.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.contracts.store import Entry, Store
from holdfast.contracts.validation import prefix_end
from holdfast.log.keys import partition_prefix
from holdfast.vocabulary.tasks import gather_or_cancel

_NEIGHBOURS_MAX: Final = 24  # in one scan: each may list a hundred segments

_Place = tuple[str, int]  # topic id, partition


async def read_partitions(store: Store, places: Sequence[_Place]) -> list[Sequence[Entry]]:
    """Everything the store has of each partition: index objects, segments, its record; in the order of keys."""
    found: dict[_Place, list[Entry]] = {place: [] for place in places}
    runs = _runs(found)
    if len(runs) == 1:
        await _scan(store, runs[0], found)
    else:
        await gather_or_cancel(*(_scan(store, run, found) for run in runs))
    return [found[place] for place in places]


async def _scan(store: Store, run: Sequence[_Place], found: dict[_Place, list[Entry]]) -> None:
    scan = await store.scan(partition_prefix(*run[0]), prefix_end(partition_prefix(*run[-1])))
    if len(run) == 1:
        found[run[0]].extend(scan.entries)
        return
    by_prefix = {partition_prefix(*place): found[place] for place in run}
    length = len(partition_prefix(*run[0]))
    for entry in scan.entries:
        by_prefix[entry.key[:length]].append(entry)


def _runs(places: Iterable[_Place]) -> list[list[_Place]]:
    """Neighbours, so many at a time."""
    runs: list[list[_Place]] = []
    for topic_id, number in sorted(places):
        last = runs[-1][-1] if runs else None
        if last != (topic_id, number - 1) or len(runs[-1]) >= _NEIGHBOURS_MAX:
            runs.append([])
        runs[-1].append((topic_id, number))
    return runs

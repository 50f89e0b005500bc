"""Several keys in one call: a commit without operations is a consistent read of what it requires.

For keys that lie too far apart for a scan. Each chunk is read as of one version; two chunks may be of different ones.
"""

from collections.abc import Mapping, Sequence

from holdfast.contracts.store import Absent, Conflict, Entry, Store
from holdfast.contracts.validation import StoreLimits


async def read_keys(store: Store, keys: Sequence[str], *, limits: StoreLimits | None = None) -> Mapping[str, Entry]:
    """Those of the (distinct) keys that exist."""
    count = (limits or StoreLimits()).ops_max
    found: dict[str, Entry] = {}
    for at in range(0, len(keys), count):
        outcome = await store.commit(require=[Absent(key) for key in keys[at : at + count]])
        if isinstance(outcome, Conflict):
            found.update((key, entry) for key, entry in outcome.found.items() if entry is not None)
    return found

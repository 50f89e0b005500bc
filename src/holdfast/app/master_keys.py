"""The master keys of a server: given by file or environment, or, for a store in its own data directory, generated there.

The one rule: a key is generated only where no other node could need it.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final

from holdfast.app.config import ServeSettings
from holdfast.contracts.store import Store
from holdfast.pipeline.catalog.keys import SECRET_PREFIXES
from holdfast.security.master_keys import MasterKeys, new_key_text, parse_master_keys, read_master_keys
from holdfast.security.sealed_store import PLAIN, SealedStore, count_sealed, seal_stored
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.files import write_atomic
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

GENERATED: Final = "master-key"
_VARIABLE: Final = "HOLDFAST_MASTER_KEY"


def key_file(settings: ServeSettings) -> str:
    """The file with the master keys; empty: there is none."""
    if settings.master_key_file:
        return settings.master_key_file
    own = settings.data / GENERATED
    return str(own) if not settings.master_key and settings.store.startswith("sqlite:") else ""


def load_master_keys(settings: ServeSettings, *, generate: bool) -> MasterKeys | None:
    """The keys; None: this node has none. Blocks. With `generate`, a missing file of our own is written."""
    if settings.master_key:
        return parse_master_keys(_VARIABLE, settings.master_key)
    path = key_file(settings)
    if not path:
        return None
    if not settings.master_key_file and not Path(path).exists():
        if not generate:
            return None
        write_atomic(Path(path), (new_key_text() + "\n").encode(), mode=0o600)
    return read_master_keys(Path(path))


def master_key_text(settings: ServeSettings) -> str:
    """The keys as text, for the driver process; empty: none. Blocks."""
    path = key_file(settings)
    return settings.master_key or (Path(path).read_text() if path else "")


async def sealed_pipelines(settings: ServeSettings, store: Store, *, clock: Clock, random: Random) -> Store:
    """The store as pipelines see it: their secrets are sealed, also those that were stored before there was a key."""
    keys = await asyncio.to_thread(load_master_keys, settings, generate=True)
    if keys is not None:
        sealed = await seal_stored(store, keys, prefixes=SECRET_PREFIXES, clock=clock, random=random, rotate=False)
        if sealed:
            _log.info("sealed %d records of pipelines with master key %s", sealed, keys.current)
    elif (await count_sealed(store, SECRET_PREFIXES))[PLAIN]:
        _log.warning("secrets of pipelines are stored in plain text: give --master-key-file or %s", _VARIABLE)
    return SealedStore(store, keys, prefixes=SECRET_PREFIXES, random=random)
